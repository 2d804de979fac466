"""What can be wrong with evidence, and how much each finding weighs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum


class Gravity(IntEnum):
    """What a finding does to the verdict; the gravest decides."""

    NOTE = 0
    UNTRUSTED = 1
    INCOMPLETE = 2
    FAILED = 3


class FindingKind(str, Enum):
    """Every kind of finding; the values are what `verify --json` says."""

    # notes
    DIALECT = "dialect"
    NORMAL_FORM = "normal-form"
    NOT_REQUIRED = "not-required"
    SUPERSEDED = "superseded"
    RESUMED = "resumed"
    REWRITTEN_COMMIT = "rewritten-commit"
    NOT_REDACTED = "not-redacted"
    UNLISTED = "unlisted"
    IGNORED_PATHS = "ignored-paths"
    UNSIGNED_HEAD = "custody-without-head"
    UNCHECKED_TIMESTAMP = "timestamp-not-checked"
    CLAIMED = "claimed"
    COMMITTED = "checkout-not-checked"
    FURTHER_SIGNER = "further-signer"
    # the signer
    UNSIGNED = "unsigned"
    UNKNOWN_SIGNER = "unknown-signer"
    OUTSIDE_VALIDITY = "outside-validity"
    REVOKED = "revoked"
    NAMESPACE = "namespace-not-allowed"
    TOO_FEW_SIGNERS = "too-few-signers"
    UNTRUSTED_TIMESTAMP = "untrusted-timestamp"
    # less than all was looked at
    MISSING = "missing"
    UNREADABLE = "unreadable"
    NOT_CHECKED = "not-checked"
    NOTHING_VERIFIED = "nothing-verified"
    # the bytes, or the set of files
    MISMATCH = "mismatch"
    EXTRA = "extra"
    EMPTY_FOLDER = "empty-folder"
    LINK = "link"
    SPECIAL_FILE = "special-file"
    TWIN_NAMES = "twin-names"
    CHANGED_MEANWHILE = "changed-meanwhile"
    CONFLICTING_DIGESTS = "conflicting-digests"
    # the zip
    DUPLICATE_MEMBER = "duplicate-member"
    UNSAFE_NAME = "unsafe-name"
    HIDDEN_BYTES = "hidden-bytes"
    HEADERS_DIFFER = "headers-differ"
    NOT_STORED = "not-stored"
    TOO_LARGE = "too-large"
    CHECKSUM = "zip-checksum"
    # signatures and statements
    INVALID_SIGNATURE = "invalid-signature"
    OTHER_FILES_SIGNED = "other-files-signed"
    PREDICATE_TYPE = "predicate-type"
    CUSTODY_BROKEN = "custody-broken"
    CUSTODY_TRUNCATED = "custody-truncated"
    WITHDRAWN = "withdrawn"
    RECORD = "record"
    COMMIT_MISSING = "commit-missing"
    TREE_DIFFERS = "tree-differs"

    @property
    def gravity(self) -> Gravity:
        """Say what it does to the verdict."""
        if self in _NOTES:
            return Gravity.NOTE
        if self in _SIGNER:
            return Gravity.UNTRUSTED
        return Gravity.INCOMPLETE if self in _INCOMPLETE else Gravity.FAILED


_NOTES = {
    FindingKind.DIALECT,
    FindingKind.NORMAL_FORM,
    FindingKind.NOT_REQUIRED,
    FindingKind.SUPERSEDED,
    FindingKind.RESUMED,
    FindingKind.REWRITTEN_COMMIT,
    FindingKind.NOT_REDACTED,
    FindingKind.UNLISTED,
    FindingKind.IGNORED_PATHS,
    FindingKind.UNSIGNED_HEAD,
    FindingKind.UNCHECKED_TIMESTAMP,
    FindingKind.CLAIMED,
    FindingKind.COMMITTED,
    FindingKind.FURTHER_SIGNER,
}
_SIGNER = {
    FindingKind.UNSIGNED,
    FindingKind.UNKNOWN_SIGNER,
    FindingKind.OUTSIDE_VALIDITY,
    FindingKind.REVOKED,
    FindingKind.NAMESPACE,
    FindingKind.TOO_FEW_SIGNERS,
    FindingKind.UNTRUSTED_TIMESTAMP,
}
_INCOMPLETE = {
    FindingKind.MISSING,
    FindingKind.UNREADABLE,
    FindingKind.NOT_CHECKED,
    FindingKind.NOTHING_VERIFIED,
}


@dataclass(frozen=True)
class Finding:
    """One finding; `diagnosis` is a sentence for people, fit to print, names escaped.

    `path` is the member that it concerns, as it is called there (bytes that are no UTF-8 as
    surrogate escapes: escape it before it is printed), or None for the whole.
    """

    kind: FindingKind
    path: str | None
    diagnosis: str

    @property
    def gravity(self) -> Gravity:
        """Say what it does to the verdict."""
        return self.kind.gravity
