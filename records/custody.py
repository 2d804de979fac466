"""What happened to bytes, stage by stage: `custody.jsonl`, a chain that each stage appends to.

The format is described in docs/custody.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..errors import Unusable
from .custody_lines import (
    FILE,
    LIMIT,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    Line,
    lines,
    order_fault,
)
from .custody_lock import locked
from .custody_schema import CONTINUED
from .names import decoded, printable
from .new_file import new_file
from .tool import tool_identity

BROKEN = "custody.broken"  # what a chain is called once it cannot go on: custody.broken*.jsonl
NOT_REDACTED = "none"  # the value of `redaction` in a link of that stage


class Action:
    """What became of a tensor, or of all tensors of a file that are not named."""

    CARRIED = "carried"
    REBUILT = "rebuilt"
    COPIED = "copied"
    DROPPED = "dropped"


@dataclass(frozen=True)
class Artifact:
    """One file: name relative to the chain's folder with `/`, sha256 in hex, size in bytes.

    `elsewhere` marks an input that is not in that folder: its name says nothing of one there.
    `action` holds for each of an output's tensors that `tensors` does not name.
    """

    name: str
    sha256: str
    size: int | None = None
    elsewhere: bool = False
    action: str | None = None
    tensors: Mapping[str, object] = field(default_factory=lambda: {})
    facts: Mapping[str, object] = field(default_factory=lambda: {})

    def to_json(self) -> dict[str, object]:
        """Give one entry of `inputs` or `outputs`."""
        document: dict[str, object] = {**self.facts, "name": decoded(self.name)}
        document |= {"sha256": self.sha256, "size": self.size}
        if self.elsewhere:
            document["elsewhere"] = True
        if self.action is not None:
            document["action"] = self.action
        if self.tensors:
            document["tensors"] = {decoded(name): what for name, what in self.tensors.items()}
        return document


@dataclass(frozen=True)
class Link:
    """What one stage did. `run_id` is new for every run; None where output must repeat exactly.

    `resumes` is the sha256 of an earlier line of the same stage that this run goes on from;
    `time` is RFC 3339 in UTC; `facts` are further keys of the predicate.
    """

    stage: str
    outputs: Sequence[Artifact] = ()
    inputs: Sequence[Artifact] = ()
    verdict: str | None = None
    resumes: str | None = None
    time: str | None = None
    run_id: str | None = field(default_factory=lambda: os.urandom(16).hex())
    facts: Mapping[str, object] = field(default_factory=lambda: {})


def now() -> str:
    """Give the time as links carry it: RFC 3339, UTC, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def extended(data: bytes, link: Link, *, broken: Sequence[Artifact] = ()) -> bytes:
    """Give the chain with one more link; `data` is the chain so far, empty for a new one.

    Where a new chain starts beside `broken` ones, its first link says so. Raises Unusable for a
    chain that is damaged: it is never bridged.
    """
    if len(data) > LIMIT:
        raise _too_large(FILE)
    last = _last(data)
    if last is None and broken:
        data = _statement(_continued(broken, link), None) + b"\n"
        last = _last(data)
    if link.resumes is not None and link.resumes not in {line.sha256 for line in lines(data)}:
        raise Unusable(
            f"The chain of custody holds no link {link.resumes[:16]}… to resume.",
            remedy="Record a new run instead.",
        )
    raw = _statement(link, last) + b"\n"
    for line in lines(raw):
        if line.fault is not None:
            raise Unusable(f"The link of this stage cannot be recorded: it {line.fault}.")
    return data + raw


def append(folder: Path | int, link: Link) -> str:
    """Add a link to the chain in a folder, or begin one; give the sha256 of the new line.

    The folder may be held open as a descriptor (Linux). Links are added one after the other,
    also by several processes; a crash leaves the old chain or the new one. Raises Unusable for a
    chain that is damaged, for what cannot be written, and while another one keeps writing.
    """
    place = Path(f"/proc/self/fd/{folder}") if isinstance(folder, int) else folder
    path = place / FILE
    with locked(path) as mode:
        data = extended(read(place) or b"", link, broken=_broken(place))
        with new_file(path, force=True, mode=mode) as file:
            file.write(data)
    return hashlib.sha256(data[:-1].rpartition(b"\n")[2]).hexdigest()


def read(folder: Path) -> bytes | None:
    """Read the chain of a folder; None where there is none. Raises Unusable, follows no link."""
    return _bytes_of(folder / FILE)


def resumable(folder: Path, stage: str) -> str | None:
    """Give the sha256 of the last link of a stage; None where there is none."""
    found = [line.sha256 for line in lines(read(folder) or b"") if line.stage == stage]
    return found[-1] if found else None


def _last(data: bytes) -> Line | None:
    before: Line | None = None
    for line in lines(data):
        fault = order_fault(line, before)
        if fault is not None:
            raise Unusable(
                f"{FILE} is damaged: line {line.number:,} {fault}.",
                remedy=f"Get it from its source again; or keep it as {BROKEN}.jsonl, and the next "
                "stage starts a new chain whose first link names it as the gap.",
            )
        before = line
    return before


def _statement(link: Link, before: Line | None) -> bytes:
    described = link.outputs or link.inputs
    if not described:
        raise Unusable("A link of custody needs a file that it speaks of.")
    predicate: dict[str, object] = {
        **link.facts,
        "stage": link.stage,
        "seq": 0 if before is None or before.seq is None else before.seq + 1,
        "previous": None if before is None else {"sha256": before.sha256},
        "run_id": link.run_id,
        "time": link.time,
        "inputs": [each.to_json() for each in link.inputs],
        "outputs": [each.to_json() for each in link.outputs],
        "verdict": link.verdict,
        "tool": tool_identity(),
    }
    if link.resumes is not None:
        predicate["resumes"] = link.resumes
    return statement(described, predicate)


def statement(subject: Sequence[Artifact], predicate: Mapping[str, object]) -> bytes:
    """Give an in-toto Statement about custody as one line without its newline."""
    document = {
        "_type": STATEMENT_TYPE,
        "predicateType": PREDICATE_TYPE,
        "subject": [
            {"name": decoded(each.name), "digest": {"sha256": each.sha256}} for each in subject
        ],
        "predicate": predicate,
    }
    return json.dumps(document, sort_keys=True, allow_nan=False, separators=(",", ":")).encode()


def _continued(broken: Sequence[Artifact], link: Link) -> Link:
    reason = "The chain before this link is damaged; what it says is not relied on."
    return replace(
        link,
        stage=CONTINUED,
        inputs=broken,
        outputs=(),
        verdict=None,
        resumes=None,
        facts={"reason": reason},
    )


def is_broken_chain(name: str) -> bool:
    """Tell whether a file in the chain's folder is an earlier chain that could not go on."""
    return name.startswith(BROKEN) and name.endswith(".jsonl")


def _broken(folder: Path) -> tuple[Artifact, ...]:
    found: list[Artifact] = []
    for name in sorted(os.listdir(folder)):
        if is_broken_chain(name):
            data = _bytes_of(folder / name) or b""
            found.append(Artifact(name, hashlib.sha256(data).hexdigest(), len(data)))
    return tuple(found)


def _bytes_of(path: Path) -> bytes | None:
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        with open(os.open(path, flags), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unusable(f"{printable(path.name)} is no file.", remedy="Move it away.")
            data = file.read(LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unusable(
            f"Cannot read {printable(path.name)}: {os.strerror(error.errno or 0).lower()}.",
            remedy="Make it a readable file, or move it away.",
        ) from None
    if len(data) > LIMIT:
        raise _too_large(printable(path.name))
    return data


def _too_large(label: str) -> Unusable:
    return Unusable(
        f"{label} is larger than {LIMIT >> 20} MiB.",
        remedy=f"Call it {BROKEN}.jsonl: the next stage starts a new chain that names it.",
    )
