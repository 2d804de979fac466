"""Whether the verifier trusts a key, and whether enough of those whom it trusts have signed."""

from __future__ import annotations

import math
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import cached_property
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from ..finding import Finding, FindingKind
from ..sign.identity import allowed_signers_line
from ..sign.key import PublicKey
from ..sign.public_key import fingerprint
from .allowed_signers import LIMIT, AllowedSigner, read_allowed_signers
from .own_files import default_signers, named_signers, read_own_file, shown
from .policy import Policy, read_policy
from .quorum import count_signers, literal_principals, owners_by_patterns
from .revocation import Revocations

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_END = 253_402_300_799  # the last second that a datetime can hold


@dataclass(frozen=True)
class Judgement:
    """What the verifier's files say of a key; `kind` is None when it is trusted.

    `identity` is who they say it is, as it stands there: escape it before it is printed.
    """

    identity: str | None
    trusted: bool
    kind: FindingKind | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Trust:
    """The verifier's own files, and the moment at which they are asked.

    `source` is the signers file, also one that is not there yet; then nobody is trusted.
    """

    signers: tuple[AllowedSigner, ...]
    source: Path | None
    policy: Policy | None
    at: datetime
    revocations: Revocations

    @classmethod
    def load(
        cls,
        signers: Path | None,
        policy: Path | None,
        at: datetime | None,
        *,
        revoked: Sequence[Path] = (),
    ) -> Trust:
        """Read all files that are named, or the default signers file. A naive `at` is local time.

        Raises Unusable for a named file that cannot be read, and for whatever is not understood.
        """
        rules = None if policy is None else read_policy(policy)
        lines, source = _load_signers(signers, rules)
        lists = [*revoked, *(rules.revoked if rules else ())]
        revocations = Revocations.load(lists)
        revocations.ask([line.key for line in lines])
        for authority in rules.timestamp_authorities if rules else ():
            read_own_file(authority, LIMIT)
        moment = datetime.now(timezone.utc) if at is None else at.astimezone(timezone.utc)
        return cls(lines, source, rules, moment, revocations)

    @property
    def required(self) -> tuple[str, ...]:
        """The names that the policy wants to be among the verified files."""
        return self.policy.require if self.policy else ()

    @property
    def timestamp_authorities(self) -> tuple[Path, ...]:
        """The certificates of the authorities whose timestamps count."""
        return self.policy.timestamp_authorities if self.policy else ()

    def keys(self) -> tuple[PublicKey, ...]:
        """Give every key that the signers file names: those to try where a signature names none."""
        return tuple(dict.fromkeys(line.key for line in self.signers))

    def judge(
        self, key: PublicKey, namespace: str, *, signed_at: datetime | None = None
    ) -> Judgement:
        """Say whether a key may sign in a namespace, at `at` or at `signed_at`.

        `signed_at` is the time of a timestamp that an authority of the policy made: it keeps what
        was signed inside a window valid after its end. Nothing keeps a revoked key valid. Of
        several lines for a key any may fit. Raises Unusable.
        """
        lines = [line for line in self.signers if line.key == key]
        identity = lines[0].principals if lines else None
        revoked = self.revocations.revoked_in(key)
        if revoked is not None:
            reason = f"the key {fingerprint(key)} is revoked by {shown(revoked)}"
            return Judgement(identity, False, FindingKind.REVOKED, reason)
        if not lines:
            return Judgement(None, False, FindingKind.UNKNOWN_SIGNER, self._unknown(key))
        lines = [line for line in lines if self._owners(line)]
        if not lines:
            reason = f"{printable(identity or '')} is not among the principals of the policy"
            return Judgement(identity, False, FindingKind.UNKNOWN_SIGNER, reason)
        lines = [line for line in lines if line.may_sign_in(namespace)]
        if not lines:
            reason = f"the key is not trusted for the namespace {printable(namespace)}"
            return Judgement(identity, False, FindingKind.NAMESPACE, reason)
        return self._judge_time(lines, signed_at)

    def _judge_time(self, lines: list[AllowedSigner], signed_at: datetime | None) -> Judgement:
        seconds = _seconds(self.at)
        for line in lines:
            if line.is_valid_at(seconds):
                return Judgement(self._identity(line), True)
        if signed_at is not None and signed_at <= self.at:
            for line in lines:
                if line.is_valid_at(_seconds(signed_at)):
                    reason = f"a timestamp proves {_said(signed_at)}, when the key was valid"
                    return Judgement(self._identity(line), True, None, reason)
        reason = f"the key is valid {_window(lines[0])}, not at {_said(self.at)}"
        return Judgement(self._identity(lines[0]), False, FindingKind.OUTSIDE_VALIDITY, reason)

    def missing(
        self, trusted: Collection[PublicKey], unknown: Collection[PublicKey] = ()
    ) -> tuple[Finding, ...]:
        """Say what is missing when exactly these keys signed: validly, and judged as trusted.

        `unknown` are keys that signed validly but are not trusted. Signers are counted by distinct
        keys of distinct principals: one with two keys counts once, two who share a key too.
        """
        needed = self.policy.threshold if self.policy else 1
        count = count_signers([self._owners_of(key) for key in set(trusted)])
        if count >= needed:
            return ()
        if count:
            names = sorted({line.principals for line in self.signers if line.key in set(trusted)})
            signed = ", ".join(printable(name) for name in names)
            return (
                Finding(
                    FindingKind.TOO_FEW_SIGNERS,
                    None,
                    f"{needed} signers are needed, each with a key of their own, and {count} "
                    f"signed ({signed}): let others sign, too, with reef-archive sign.",
                ),
            )
        if unknown:
            return tuple(
                Finding(FindingKind.UNKNOWN_SIGNER, None, f"Nobody trusted signed: {reason}.")
                for reason in sorted({self._unknown(key) for key in unknown})
            )
        return (
            Finding(
                FindingKind.UNSIGNED,
                None,
                "No signature of anybody trusted is there: ask the author for one "
                "(reef-archive sign), or look at the bytes alone with --integrity-only.",
            ),
        )

    def _owners_of(self, key: PublicKey) -> frozenset[str]:
        lines = [line for line in self.signers if line.key == key]
        return frozenset[str]().union(*(self._owners(line) for line in lines))

    @cached_property
    def _literals(self) -> frozenset[str]:
        return literal_principals(self.signers)

    def _owners(self, line: AllowedSigner) -> frozenset[str]:
        """Give the principals whose key it is, of those who count."""
        if self.policy is not None and self.policy.principals:
            return frozenset(name for name in self.policy.principals if line.is_named(name))
        return owners_by_patterns(line, self._literals)

    def _identity(self, line: AllowedSigner) -> str:
        if self.policy is not None and self.policy.principals:
            return ",".join(sorted(self._owners(line)))
        return line.principals

    def _unknown(self, key: PublicKey) -> str:
        where = "your allowed_signers file" if self.source is None else shown(self.source)
        line = allowed_signers_line("NAME@PLACE", key).rstrip("\n")
        return (
            f"the key {fingerprint(key)} is not in {where}; to trust it, ask the signer for this "
            "fingerprint by another way than the one that brought the evidence, and then add the "
            f"line {line}"
        )


def _load_signers(
    named: Path | None, policy: Policy | None
) -> tuple[tuple[AllowedSigner, ...], Path | None]:
    of_policy = policy.signers if policy else None
    if named is not None and of_policy is not None:
        raise Unusable(
            f"Two signers files are named: {shown(named)}, and {shown(of_policy)} by the policy.",
            remedy="Leave --signers away, or take `signers` out of the policy.",
        )
    path = named or of_policy or named_signers()
    if path is None:
        path = default_signers()
        if path is None or not os.path.lexists(path):
            return (), path
    return read_allowed_signers(read_own_file(path, LIMIT), shown(path)), path


def _seconds(moment: datetime) -> int:
    return math.floor(moment.timestamp())


def _said(moment: datetime) -> str:
    return moment.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")


def _window(line: AllowedSigner) -> str:
    parts: list[str] = []
    for word, seconds in (("from", line.valid_after), ("until", line.valid_before)):
        if seconds is not None:
            moment = _EPOCH + timedelta(seconds=min(seconds, _END))
            parts.append(f"{word} {_said(moment)}")
    return " ".join(parts)
