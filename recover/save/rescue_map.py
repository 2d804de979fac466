"""GNU ddrescue mapfiles: which ranges of a file were read, so that a second run can go on.

Format: ddrescue manual, "Mapfile structure". Comment lines carry what the file was, since ranges
read from one inode must never be joined with ranges of another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...errors import Unusable
from ..ranges import Range, merge, subtract

_FINISHED, _BAD, _DOUBTFUL, _UNTRIED = "+", "-", "*", "?"
_STATUSES = frozenset("?*/-+")
_PREFIX = "# reefkit "


@dataclass(frozen=True)
class RescueMap:
    """What was read of one file of `size` bytes.

    `finished` was read twice and was equal, `bad` could not be read, `doubtful` differed between
    the two reads; the rest was not tried. `facts` name the file and how it was read.
    """

    size: int
    finished: tuple[Range, ...] = ()
    bad: tuple[Range, ...] = ()
    doubtful: tuple[Range, ...] = ()
    facts: dict[str, str] = field(default_factory=dict[str, str])

    def to_text(self) -> str:
        """Write it as a mapfile that ddrescue and ddrescuelog accept."""
        rest = subtract(Range(0, self.size), (*self.finished, *self.bad, *self.doubtful))
        marked = sorted(
            (piece, status)
            for status, pieces in (
                (_FINISHED, self.finished),
                (_BAD, self.bad),
                (_DOUBTFUL, self.doubtful),
                (_UNTRIED, rest),
            )
            for piece in pieces
        )
        over = "+" if not rest else "?"
        position = rest[0].start if rest else 0
        lines = ["# Mapfile. Created by reefkit"]
        lines += [f"{_PREFIX}{key}: {value}" for key, value in sorted(self.facts.items())]
        lines += ["# current_pos  current_status  current_pass"]
        lines += [f"0x{position:08X}     {over}     1", "#      pos        size  status"]
        lines += [f"0x{r.start:08X}  0x{r.size:08X}  {status}" for r, status in marked]
        return "\n".join(lines) + "\n"

    @classmethod
    def from_text(cls, text: str) -> RescueMap:
        """Read a mapfile back. Raises Unusable when it is not one."""
        facts: dict[str, str] = {}
        blocks: list[tuple[Range, str]] = []
        state_seen = False
        for line in text.splitlines():
            if line.startswith("#"):
                key, _, value = line.removeprefix(_PREFIX).partition(": ")
                if line.startswith(_PREFIX):
                    facts[key] = value
            elif line.strip() and not state_seen:
                state_seen = True
            elif line.strip():
                blocks.append(_block(line))
        position = 0
        for piece, _ in blocks:
            if piece.start != position or piece.size <= 0:
                raise Unusable(f"The mapfile has a gap or an overlap at byte {position}.")
            position = piece.stop
        return cls(
            size=position,
            finished=_with_status(blocks, _FINISHED),
            bad=_with_status(blocks, _BAD),
            doubtful=_with_status(blocks, "*/"),
            facts=facts,
        )


def _block(line: str) -> tuple[Range, str]:
    try:
        start, size, status = line.split()
        piece = Range(int(start, 0), int(start, 0) + int(size, 0))
    except ValueError:
        raise Unusable("The mapfile holds a line that is no block.") from None
    if status not in _STATUSES:
        raise Unusable(f"The mapfile holds a block of unknown status {status!r}.")
    return piece, status


def _with_status(blocks: Iterable[tuple[Range, str]], statuses: str) -> tuple[Range, ...]:
    return merge(piece for piece, status in blocks if status in statuses)
