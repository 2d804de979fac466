"""Statements about evidence that is out already: it is withdrawn, or something replaces it.

They are links of a chain, or stand alone in a file beside the evidence (`withdrawn.json`), which
names the sha256 of the SHA256SUMS that it speaks of and is signed like the head of a chain.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from ...errors import Unusable
from ...records.custody import Artifact, Link, append, now, read, statement
from ...records.custody_lines import PREDICATE_TYPE, STATEMENT_TYPE, lines
from ...records.custody_schema import SUPERSEDED, WITHDRAWN, is_sha256
from ...records.names import printable
from ...records.strict_json import Json, parse_object
from ..finding import Finding, FindingKind

LOOSE_FILE = "withdrawn.json"
_SUMS = "SHA256SUMS"
_LIMIT = 1 << 20
_LONGEST_REASON = 2000


@dataclass(frozen=True)
class Statement:
    """What a loose statement says: `withdrawn` or `superseded-by`, of which sums (sha256)."""

    stage: str
    sums: frozenset[str]
    reason: str
    successor: str | None

    def speaks_of(self, sums: bytes) -> bool:
        """Tell whether it is about the evidence with these checksums."""
        return hashlib.sha256(sums).hexdigest() in self.sums

    def finding(self, path: str) -> Finding:
        """Give what verification says of evidence that it speaks of."""
        return standing_of(self.stage, {"reason": self.reason, "by": self.successor}, path)


def withdraw(folder: Path, reason: str) -> str:
    """Append a link that withdraws what the folder holds; sign the folder anew after it.

    Gives the sha256 of the new line. Raises Unusable.
    """
    return append(folder, _link(folder, WITHDRAWN, reason, None))


def supersede(folder: Path, by: str, reason: str) -> str:
    """Append a link that names what replaces the folder's evidence: a name, or a sha256.

    Gives the sha256 of the new line. Raises Unusable.
    """
    return append(folder, _link(folder, SUPERSEDED, reason, _successor(by)))


def loose_statement(sums: bytes, reason: str, *, by: str | None = None) -> bytes:
    """Give a statement in a file of its own about the evidence with these checksums.

    It withdraws, or with `by` names what replaces it. Raises Unusable.
    """
    stage = WITHDRAWN if by is None else SUPERSEDED
    predicate: dict[str, object] = {"stage": stage, "reason": _said(reason), "time": now()}
    if by is not None:
        predicate["by"] = _successor(by)
    subject = Artifact(_SUMS, hashlib.sha256(sums).hexdigest(), len(sums))
    return statement([subject], predicate) + b"\n"


def read_statement(data: bytes, label: str = LOOSE_FILE) -> Statement:
    """Read a loose statement. Raises Unusable for what is none."""
    if len(data) > _LIMIT:
        raise Unusable(f"{label} is larger than {_LIMIT >> 20} MiB.", remedy="Leave it out.")
    document = parse_object(data, label)
    predicate = document.get("predicate")
    if document.get("_type") != STATEMENT_TYPE or document.get("predicateType") != PREDICATE_TYPE:
        raise _no_statement(label, "it is no in-toto Statement about custody")
    stage = predicate.get("stage") if isinstance(predicate, dict) else None
    if not isinstance(predicate, dict) or stage not in (WITHDRAWN, SUPERSEDED):
        raise _no_statement(label, "it neither withdraws nor names a successor")
    reason, by = predicate.get("reason"), predicate.get("by")
    if not isinstance(reason, str) or (stage == SUPERSEDED and not isinstance(by, str)):
        raise _no_statement(label, "it gives no reason, or no successor")
    sums = frozenset(_digests(document.get("subject")))
    if not sums:
        raise _no_statement(label, f"it names no {_SUMS} by sha256")
    return Statement(str(stage), sums, reason, by if isinstance(by, str) else None)


def standing_of(stage: str, predicate: dict[str, Json], path: str) -> Finding:
    """Say what a `withdrawn` or `superseded-by` statement means for the evidence."""
    reason, by = predicate.get("reason"), predicate.get("by")
    why = printable(reason[:_LONGEST_REASON]) if isinstance(reason, str) else "no reason is given"
    if stage == WITHDRAWN:
        return Finding(FindingKind.WITHDRAWN, path, f"This evidence was withdrawn: {why}")
    who = printable(by[:200]) if isinstance(by, str) else "something that is not named"
    return Finding(FindingKind.SUPERSEDED, path, f"This evidence was superseded by {who}: {why}")


def _link(folder: Path, stage: str, reason: str, by: str | None) -> Link:
    facts: dict[str, object] = {"reason": _said(reason)}
    if by is not None:
        facts["by"] = by
    return Link(stage, inputs=_spoken_of(folder), time=now(), facts=facts)


def _spoken_of(folder: Path) -> list[Artifact]:
    """Give the checksums of the folder, or else what its chain says was made last."""
    try:
        sums = (folder / _SUMS).read_bytes()
    except FileNotFoundError:
        pass
    except OSError as error:
        raise Unusable(f"Cannot read {_SUMS}: {error.strerror}.", remedy="Mend that.") from None
    else:
        return [Artifact(_SUMS, hashlib.sha256(sums).hexdigest(), len(sums), elsewhere=True)]
    made: dict[str, str] = {}
    for line in lines(read(folder) or b""):
        if line.stage not in (WITHDRAWN, SUPERSEDED):
            made |= {each.name: each.sha256 for each in line.files if not each.elsewhere}
    if not made:
        raise Unusable(
            f"{printable(folder.name)} holds no {_SUMS} and no chain that could be spoken of.",
            remedy="Name the folder of the evidence.",
        )
    return [Artifact(name, digest) for name, digest in made.items()]


def _said(reason: str) -> str:
    text = reason.strip()
    if not text or len(text) > _LONGEST_REASON:
        raise Unusable(
            f"A reason of 1 to {_LONGEST_REASON:,} characters is needed.",
            remedy="Say in one sentence what is wrong with the evidence.",
        )
    return text


def _successor(by: str) -> str:
    if not by.strip() or len(by) > 500:
        raise Unusable("A successor needs a name, or a sha256.", remedy="Name what replaces it.")
    return by.strip()


def _digests(subject: Json) -> list[str]:
    found: list[str] = []
    for each in subject if isinstance(subject, list) else []:
        digest = each.get("digest") if isinstance(each, dict) else None
        sha256 = digest.get("sha256") if isinstance(digest, dict) else None
        if isinstance(each, dict) and each.get("name") == _SUMS and is_sha256(sha256):
            found.append(str(sha256))
    return found


def _no_statement(label: str, why: str) -> Unusable:
    return Unusable(f"{label} cannot be used: {why}.", remedy="Leave it out, or get it again.")
