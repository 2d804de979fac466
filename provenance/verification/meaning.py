"""What each kind of finding means, and what to do about it: for people who did not expect it."""

from __future__ import annotations

from dataclasses import dataclass

from ..finding import FindingKind as Kind


@dataclass(frozen=True)
class Meaning:
    """A short title, what the finding says, and the next step."""

    title: str
    text: str
    remedy: str


_AGAIN = "Get the evidence from its source again, and compare."
_AUTHOR = "Ask the author; do not use the evidence until it is explained."
_TABLE: dict[Kind, tuple[str, str, str]] = {
    Kind.DIALECT: (
        "Unusual checksum file",
        "A list or signature is in a form that not every tool reads. It was understood.",
        "Nothing need be done; --strict refuses it.",
    ),
    Kind.NORMAL_FORM: (
        "Unicode normal form differs",
        "A name is composed in the list and decomposed on disk, or the other way round.",
        "Nothing need be done: some file systems change the form.",
    ),
    Kind.NOT_REQUIRED: (
        "Not there, not required",
        "A listed file is absent, and --require named only others.",
        "Get the whole package to check everything.",
    ),
    Kind.SUPERSEDED: (
        "Superseded",
        "The evidence names what has replaced it.",
        "Look at its successor.",
    ),
    Kind.RESUMED: (
        "Resumed run",
        "The chain of custody says that a stage was interrupted and went on.",
        "Nothing need be done.",
    ),
    Kind.REWRITTEN_COMMIT: (
        "Rewritten commit",
        "The commit is gone from the repository, but the very tree it had is there.",
        "Nothing need be done: history was rewritten, the sources were not.",
    ),
    Kind.NOT_REDACTED: (
        "Not redacted",
        "The package was made without looking for private data.",
        "Look for private data before passing it on.",
    ),
    Kind.COMMITTED: (
        "The checkout was not checked",
        "The bytes that a commit holds were checked, not the files that lie in the folder.",
        "Leave out --git, or compare with `git status`, where the files themselves matter.",
    ),
    Kind.FURTHER_SIGNER: (
        "A further signature that counts nothing",
        "Enough signers are trusted; one more signature is by a key that is not, or no longer.",
        "Ask who signed it, where the key was revoked.",
    ),
    Kind.UNLISTED: (
        "Files that the list leaves out",
        "A checksum file was named, and its folder holds more than it lists.",
        "Verify the folder instead to have every file in it demanded.",
    ),
    Kind.IGNORED_PATHS: (
        "Signature that lets paths be skipped",
        "The signature tells its own verifier to skip paths. Here they were looked at.",
        "Nothing need be done; what is there beyond the list is reported.",
    ),
    Kind.UNSIGNED_HEAD: (
        "Chain of custody without a signed head",
        "Nothing would show that links were cut off at the end of the chain before it was packed.",
        "Let the author sign the folder with reef-archive sign, which signs the head.",
    ),
    Kind.UNCHECKED_TIMESTAMP: (
        "Timestamp not checked",
        "A timestamp is there, and no policy says which authority to believe. It counts nothing.",
        "Name the authority's certificate in the policy, as timestamp_authorities.",
    ),
    Kind.CLAIMED: (
        "Claimed, not recomputed",
        "A record says something of a run that nothing in the evidence allows to compute again.",
        "Take it as its author's word.",
    ),
    Kind.UNSIGNED: (
        "Not signed",
        "Nobody you trust has signed it; whoever changes a file can change the list, too.",
        "Ask the author for a signature, or look at the bytes alone with --integrity-only.",
    ),
    Kind.UNKNOWN_SIGNER: (
        "Unknown signer",
        "The signature is by a key that your signers file does not name.",
        "Learn the signer's fingerprint by another way than the evidence, and add the key.",
    ),
    Kind.OUTSIDE_VALIDITY: (
        "Outside the key's validity",
        "The key was not valid at the time that counts.",
        "Give the time of signing with --at if you know it, or ask for a new signature.",
    ),
    Kind.REVOKED: (
        "Revoked key",
        "The key has been revoked: somebody else may have signed with it.",
        "Ask the signer for a signature with the new key.",
    ),
    Kind.NAMESPACE: (
        "Signed for another purpose",
        "The signature, or the trust in the key, is for something else than checksum files.",
        "Ask for a signature in the namespace reefkit-sums.",
    ),
    Kind.TOO_FEW_SIGNERS: (
        "Too few signers",
        "Not everybody has signed whose signature you ask for.",
        "Let the others sign, with reef-archive sign --add.",
    ),
    Kind.UNTRUSTED_TIMESTAMP: (
        "Timestamp of another authority",
        "The timestamp is not by an authority of your policy.",
        "Ask for one by yours, or add that authority's certificate.",
    ),
    Kind.MISSING: (
        "Missing",
        "What the list names is not there.",
        "Get the whole package, or name what you need with --require.",
    ),
    Kind.UNREADABLE: ("Unreadable", "A file could not be read.", "Check permissions and the disk."),
    Kind.NOT_CHECKED: (
        "Not checked",
        "Something that should be checked could not be. That is never a pass.",
        "See the message for what stands in the way.",
    ),
    Kind.NOTHING_VERIFIED: (
        "Nothing verified",
        "Not one file was compared with a digest.",
        "Check that the right place was named.",
    ),
    Kind.MISMATCH: ("Changed", "A file has other bytes than the list says.", _AGAIN),
    Kind.EXTRA: (
        "Not listed",
        "A file is there that the list does not name, so that nothing vouches for it.",
        "Move it elsewhere; if it belongs there, let the author sign anew.",
    ),
    Kind.EMPTY_FOLDER: (
        "Empty folder",
        "A folder without files is there, which no list can name.",
        "Remove it.",
    ),
    Kind.LINK: (
        "Link",
        "A link is there. It is not followed: it could lead anywhere.",
        "Put the file itself in its place.",
    ),
    Kind.SPECIAL_FILE: (
        "Special file",
        "Something is there that is neither a file nor a folder.",
        "Remove it.",
    ),
    Kind.TWIN_NAMES: (
        "Names that are one elsewhere",
        "Names differ only in case or normal form: other systems take them for one.",
        "Let the author rename one of them.",
    ),
    Kind.CHANGED_MEANWHILE: (
        "Changed meanwhile",
        "A file changed while it was read.",
        "Verify again once nothing writes there any more.",
    ),
    Kind.CONFLICTING_DIGESTS: (
        "Conflicting digests",
        "The same name has two digests, and only one can be right.",
        _AUTHOR,
    ),
    Kind.DUPLICATE_MEMBER: ("Twice in the zip", "Two members have one name.", _AUTHOR),
    Kind.UNSAFE_NAME: ("Unsafe name", "A name leads elsewhere when it is unpacked.", _AUTHOR),
    Kind.HIDDEN_BYTES: ("Hidden bytes", "The zip holds bytes that belong to no member.", _AUTHOR),
    Kind.HEADERS_DIFFER: (
        "Two headers, two stories",
        "The zip says one thing in its directory and another at the member.",
        _AUTHOR,
    ),
    Kind.NOT_STORED: (
        "Compressed member",
        "The zip holds a compressed or encrypted member; evidence is stored as it is.",
        "Unpack it and verify the folder, or ask for a zip made by reef-archive pack.",
    ),
    Kind.TOO_LARGE: ("Too large", "It exceeds what is read.", _AUTHOR),
    Kind.CHECKSUM: ("Damaged in the zip", "A member has another CRC than the zip says.", _AGAIN),
    Kind.INVALID_SIGNATURE: (
        "Invalid signature",
        "A signature does not fit what it lies beside: one of the two was changed or exchanged.",
        _AGAIN,
    ),
    Kind.OTHER_FILES_SIGNED: (
        "Other files signed",
        "A signature is valid, but for another set of files than the list's.",
        _AUTHOR,
    ),
    Kind.PREDICATE_TYPE: (
        "Other kind of statement",
        "What was signed is a statement of another kind.",
        _AUTHOR,
    ),
    Kind.CUSTODY_BROKEN: (
        "Broken chain of custody",
        "The links do not follow from one another.",
        _AUTHOR,
    ),
    Kind.CUSTODY_TRUNCATED: (
        "Chain of custody cut off",
        "Links are missing at the end of the chain.",
        _AUTHOR,
    ),
    Kind.WITHDRAWN: ("Withdrawn", "The evidence was withdrawn.", "Do not rely on it."),
    Kind.RECORD: (
        "A record does not hold",
        "A record of a run or a gate claims what the files beside it do not show.",
        _AUTHOR,
    ),
    Kind.COMMIT_MISSING: (
        "Commit missing",
        "The repository has neither the commit that is named nor its tree.",
        "Fetch the whole history (fetch-depth: 0), or ask where the commit is.",
    ),
    Kind.TREE_DIFFERS: (
        "Tree differs",
        "The commit has another tree than the evidence says it had.",
        _AUTHOR,
    ),
}


def meaning_of(kind: Kind) -> Meaning:
    """Look a kind up."""
    return Meaning(*_TABLE[kind])
