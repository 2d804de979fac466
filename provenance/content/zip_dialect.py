"""What makes a zip unlike those that are written here, counted: one note for each habit."""

from __future__ import annotations

from ..finding import Finding, FindingKind
from .shown import shown
from .zip_entry import DEFLATED, UNIX, UTF8, VERSION, VERSION_ZIP64, Entry
from .zip_extra import Extra
from .zip_local import Placed

DATE_1980 = (1 << 5) | 1
ATTRIBUTES = 0o100644 << 16


class Dialects:
    """Collects habits of other writers; harmless, but they do not come from ours."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, str]] = {}

    def look_at(self, placed: Placed, name: str, extra: Extra, by_name: str | None) -> None:
        """Look at one entry."""
        entry = placed.entry
        habits = list(placed.dialects)
        if extra.fields and "extra fields about times and owners" not in habits:
            habits.append("extra fields about times and owners")
        if by_name is not None:
            habits.append(by_name)
        habits += _habits(entry)
        for habit in dict.fromkeys(habits):
            count, first = self._seen.get(habit, (0, name))
            self._seen[habit] = (count + 1, first)

    def findings(self) -> list[Finding]:
        """Give one note for each habit."""
        return [
            Finding(
                FindingKind.DIALECT,
                None,
                f"The zip has {habit}: {count:,} {'entry' if count == 1 else 'entries'}, "
                f"first {shown(first)}.",
            )
            for habit, (count, first) in self._seen.items()
        ]


def _habits(entry: Entry) -> list[str]:
    habits: list[str] = []
    if entry.is_folder:
        habits.append("folders as entries of their own")
    if entry.method == DEFLATED:
        habits.append("deflated data")
    if (entry.date, entry.time) != (DATE_1980, 0):
        habits.append("times of change")
    if entry.external != ATTRIBUTES or entry.internal:
        habits.append("other file attributes")
    if entry.special_bits:
        habits.append("a mode with the set-user-ID, set-group-ID or sticky bit")
    version = VERSION if entry.unused is None else VERSION_ZIP64
    if entry.made_by != (UNIX << 8 | version) or entry.needed != version:
        habits.append("other version numbers")
    if bool(entry.flags & UTF8) == entry.raw_name.isascii() or entry.flags & ~UTF8:
        habits.append("other flags")
    return habits
