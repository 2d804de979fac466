"""The stage before: it must have passed, be clean, and be the one that the manifest pins.

It is judged anew where its artifacts are, and its chain report must say what is found; a chain
report alone counts only when the manifest pins its SHA-256. What was found before a run is
recorded, and the chain report is copied: where the stage itself is not at hand, a pinned copy
counts, and one that is not pinned leaves the run incomplete.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import ReefError, Unusable
from ...records.names import printable
from ..content.members import Content
from ..evidence.run_document import LIMIT as RUN_LIMIT
from ..evidence.run_document import Predecessor, read_run
from .chain import Findings
from .files import ContentFiles, read_small
from .manifest import Manifest, PredecessorPin
from .manifest_file import read_bytes
from .model import ChainReport, GateVerdict, PredecessorRecord, RankReport
from .part import gate_part
from .provenance import run_record_name
from .report import LIMIT, parse_chain_report

COPY_NAME = "predecessor.json"
CHAIN_NAME = "chain.json"
_DEEPEST = 16
# What a stored chain report must say as it is found anew; cells and reasons follow from these.
_SAME = (
    "stage", "config_fingerprint", "reports", "verdict", "commit", "tree", "dirty", "topology",
    "ranks", "predecessor", "first_drift",
)  # fmt: skip


class PredecessorRefused(Unusable):
    """The stage before does not allow this one to run."""


@dataclass(frozen=True)
class Before:
    """A predecessor that was accepted, the bytes of its chain report, and its run, if known."""

    record: PredecessorRecord
    chain: bytes
    run: Predecessor | None = None


def place(manifest: Manifest, folder: Path | None, given: Path | None) -> Path | None:
    """Give the path of the predecessor: as given, else as the manifest says, if it is there."""
    if given is not None:
        if manifest.predecessor is None:
            raise Unusable("The manifest names no predecessor.", remedy="Leave --predecessor out.")
        return given
    if manifest.predecessor is None or folder is None:
        return None
    path = folder / manifest.predecessor.path
    try:
        return path if path.exists() else None
    except (OSError, ValueError):
        return None


def demand(
    manifest: Manifest, given: Path | None, commit: str | None, depth: int = 0
) -> Before | None:
    """Judge the predecessor before a run; None where the manifest names none.

    Raises PredecessorRefused when it did not pass, is missing, dirty or has another identity.
    """
    path = place(manifest, manifest.folder, given)
    pin = manifest.predecessor
    if pin is None:
        return None
    if path is None:
        raise _refused(pin, f"is missing: {printable(os.fsencode(pin.path))} is not there")
    try:
        found = _look(pin, path, depth)
    except PredecessorRefused:
        raise
    except ReefError as error:
        raise _refused(pin, f"cannot be judged: {error.message}") from None
    fault = fault_of(pin, found.chain, found.data, commit) or found.stale()
    if fault is not None:
        raise _refused(pin, fault)
    return Before(_record(found.chain, found.data), found.data, found.run)


def recall(
    manifest: Manifest,
    reports: Mapping[int, RankReport],
    content: Content,
    path: Path | None,
    commit: str | None,
    findings: Findings,
    depth: int,
    *,
    pinned: bool = False,
) -> PredecessorRecord | None:
    """Ask again about the predecessor of a finished run, and add what speaks against it.

    `pinned`: the reports are pinned, and with them the SHA-256 of the chain report that they name.
    """
    records = {report.predecessor for report in reports.values()}
    pin = manifest.predecessor
    if pin is None:
        if records != {None}:
            findings.failed.append("A report names a predecessor, which the manifest does not.")
        return None
    name = printable(pin.stage)
    if len(records) != 1 or None in records:
        findings.failed.append(f"Not all ranks say after which run of stage `{name}` they ran.")
        return None
    (record,) = records
    copies = ContentFiles(content, "")
    try:
        if path is not None:
            found = _look(pin, path, depth)
        elif COPY_NAME in copies.names():
            data = read_small(copies, COPY_NAME, LIMIT)
            found = _Looked(parse_chain_report(data, COPY_NAME), data)
            if pinned or pin.sha256 is not None:
                findings.note(
                    f"Stage `{name}` is known by its chain report only, whose SHA-256 is pinned."
                )
            else:
                findings.incomplete.append(
                    f"The stage `{name}` before it is not here to be judged, and its chain report "
                    "is not pinned (--predecessor says where it lies)."
                )
        else:
            findings.incomplete.append(f"Nothing here says how stage `{name}`, before it, ended.")
            return record
    except ReefError as error:
        findings.failed.append(f"The stage `{name}` before it cannot be judged: {error.message}")
        return record
    fault = fault_of(pin, found.chain, found.data, commit) or found.stale()
    if fault is None and _record(found.chain, found.data) != record:
        fault = "is not the run that the reports name"
    if fault is not None:
        unknown = found.chain.verdict is GateVerdict.INCOMPLETE and not found.says_other
        where = findings.incomplete if unknown else findings.failed
        where.append(f"The stage `{name}` before it {fault}.")
    return record


def fault_of(
    pin: PredecessorPin, chain: ChainReport, data: bytes, commit: str | None
) -> str | None:
    """Say why a chain cannot be the predecessor; None when it can."""
    if chain.stage != pin.stage:
        return f"is of stage `{printable(chain.stage)}`"
    if chain.dirty is not False:
        return "ran from a tree with changes" if chain.dirty else "does not say if it ran clean"
    if pin.config_fingerprint is not None and chain.config_fingerprint != pin.config_fingerprint:
        return "ran with another configuration than the one pinned"
    wanted = commit if pin.commit == "same" else pin.commit
    if pin.commit is not None and (wanted is None or chain.commit != wanted):
        return f"ran at commit {printable(str(chain.commit))}, not at {wanted}"
    if pin.sha256 is not None and hashlib.sha256(data).hexdigest() != pin.sha256:
        return "has another chain report than the one whose SHA-256 is pinned"
    if not chain.passed:
        why = f" ({chain.reasons[0].rstrip('.')})" if chain.reasons else ""
        return f"did not pass{why}"
    return None


@dataclass(frozen=True)
class _Looked:
    """A predecessor as it was found: `chain` judged anew where it could be.

    `data` is its chain report, and `stored` what that says, None where it is all that there is.
    """

    chain: ChainReport
    data: bytes
    run: Predecessor | None = None
    stored: ChainReport | None = None

    @property
    def says_other(self) -> bool:
        """Tell whether the chain report is not of what lies beside it."""
        return self.stored is not None and self.stored.reports != self.chain.reports

    def stale(self) -> str | None:
        """Say what in the chain report is not as it was judged anew; None when all is."""
        if self.stored is None:
            return None
        for name in _SAME:
            if getattr(self.stored, name) != getattr(self.chain, name):
                return f"has a {CHAIN_NAME} that is not of this run: it says another `{name}`"
        return None


def _look(pin: PredecessorPin, path: Path, depth: int) -> _Looked:
    """Judge a folder or zip anew, or read a chain report alone."""
    from ..content.open import open_content
    from .verdict import Question, judge_content

    if depth >= _DEEPEST:
        raise _refused(pin, f"is one of more than {_DEEPEST} stages in a row")
    if path.is_file() and path.suffix.lower() == ".json":
        if pin.sha256 is None:
            raise _refused(
                pin, "is a chain report alone, which the manifest must pin by its SHA-256"
            )
        data = read_bytes(path, LIMIT)
        return _Looked(parse_chain_report(data, printable(path.name)), data)
    with open_content(path) as whole:
        content = gate_part(whole)
        files = ContentFiles(content, "")
        if CHAIN_NAME not in files.names():
            raise _refused(pin, f"has no {CHAIN_NAME}: not all of its ranks ended")
        data = read_small(files, CHAIN_NAME, LIMIT)
        stored = parse_chain_report(data, CHAIN_NAME)
        if not stored.passed:
            why = f" ({stored.reasons[0].rstrip('.')})" if stored.reasons else ""
            raise _refused(pin, f"did not pass, says its {CHAIN_NAME}{why}")
        target = path if path.is_dir() else None
        known = hashlib.sha256(data).hexdigest() == pin.sha256
        asked = Question(
            content, target, depth=depth + 1, pinned_reports=stored.reports if known else None
        )
        return _Looked(judge_content(asked), data, _run(files), stored)


def _run(files: ContentFiles) -> Predecessor | None:
    name = run_record_name(0)
    if name not in files.names():
        return None
    data = read_small(files, name, RUN_LIMIT)
    return Predecessor(read_run(data, name).execution_id, hashlib.sha256(data).hexdigest())


def _record(chain: ChainReport, data: bytes) -> PredecessorRecord:
    return PredecessorRecord(
        chain.stage,
        chain.config_fingerprint or "",
        hashlib.sha256(data).hexdigest(),
        chain.commit,
    )


def _refused(pin: PredecessorPin, fault: str) -> PredecessorRefused:
    return PredecessorRefused(
        f"The stage `{printable(pin.stage)}` before this one {fault}.",
        remedy="Let it pass first, from a clean tree, and name it with --predecessor. Its run must "
        "lie below its manifest, beside which the references lie; else pin the SHA-256 of its "
        f"{CHAIN_NAME}.",
    )
