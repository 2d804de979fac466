"""Read a checksum list: the portable profile fast, every other dialect with a note of it.

Nothing is passed over: sha256sum ignores a line that it does not understand as long as another is
right, and so would verify less than the list means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import repeat

from ...errors import Unusable
from ...records.names import printable
from ..content.shown import shown
from ..content.twins import twins_among
from ..finding import Finding, FindingKind
from .algorithms import WEAK, rank
from .dialects import Dialect
from .line import BadLine, parse_line
from .model import Sums, SumsLine
from .names import PORTABLE_NAME, SURELY_FITS, fault_in, is_portable, size_fault
from .text import text_of

_PORTABLE_LINE = re.compile(rf"(?m)^([0-9a-f]{{64}})  ({PORTABLE_NAME})\n")
_BESIDES_NAME = 64 + len("  \n")
_SINGLE = frozenset({Dialect.ONE_SPACE, Dialect.TAB})
_SEPARATED_ONCE = _SINGLE | {Dialect.TAGGED, Dialect.OPENSSL}
_REMEDY = "Mend the line, or write the list again."


def read_sums(data: bytes, label: str, *, strict: bool = False) -> Sums:
    """Read a list; `label` is what to call it, safe to print.

    Every departure from the portable profile that is understood is one finding with its count,
    or refused when `strict`. Raises Unusable where any line is not understood or has a name that
    leads out of the folder, and for what is no list at all.
    """
    text, marked = text_of(data, label)
    found = None if marked else _portable(text)
    if found is None:
        reader = _Reader(label)
        if marked:
            reader.note(Dialect.BYTE_ORDER_MARK, 1)
        found = reader.read(text)
    if strict:
        _refuse_dialects(found, label)
    return found


def _portable(text: str) -> Sums | None:
    """Read a list that keeps the profile in every line, or give None."""
    if _PORTABLE_LINE.match(text) is None:
        return None
    pairs: list[tuple[str, str]] = _PORTABLE_LINE.findall(text)
    names = [name for _, name in pairs]
    if _BESIDES_NAME * len(pairs) + sum(map(len, names)) != len(text):
        return None
    if max(map(len, names)) > SURELY_FITS and any(map(size_fault, names)):
        return None
    if len(set(names)) != len(names) or names != sorted(names):
        return None
    digests = (digest for digest, _ in pairs)
    lines = tuple(map(SumsLine, names, repeat("sha256"), digests, range(1, len(names) + 1)))
    del pairs  # as large as the list itself
    return Sums(lines, twins_among(names))


class _Reader:
    """Collects lines and dialects; a name with several digests keeps the preferred one."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._dialects: dict[Dialect, list[int]] = {}
        self._lines: dict[str, SumsLine] = {}
        self._several: dict[str, dict[str, SumsLine]] = {}
        self._conflicts: dict[str, Finding] = {}
        self._last = ""
        self._double = 0

    def note(self, dialect: Dialect, number: int) -> None:
        """Count a dialect and keep the first line that has it."""
        seen = self._dialects.get(dialect)
        if seen is None:
            self._dialects[dialect] = [1, number]
        else:
            seen[0] += 1

    def read(self, text: str) -> Sums:
        """Read all lines. Raises Unusable."""
        number = 0
        for number, line in enumerate(_lines(text), 1):
            if line.endswith("\r"):
                self.note(Dialect.CRLF, number)
                line = line[:-1]
            if line.startswith("#"):
                self.note(Dialect.COMMENT, number)
            elif not line.strip(" \t"):
                self.note(Dialect.BLANK, number)
            else:
                self._take(line, number)
        if not text.endswith("\n"):
            self.note(Dialect.NO_FINAL_NEWLINE, number)
        self._refuse_ambiguity()
        return self._result()

    def _take(self, line: str, number: int) -> None:
        try:
            parsed = parse_line(line, self._label)
        except BadLine as error:
            raise self._refused(number, f"{error}: `{printable(line[:60])}`") from None
        name, dialects = parsed.name, parsed.dialects
        if not is_portable(name):
            fault = fault_in(name)
            if fault is not None:
                raise self._refused(number, f"names `{shown(name)}`, which is {fault}")
            if Dialect.ESCAPED not in dialects:
                self.note(Dialect.AWKWARD_NAME, number)
        for dialect in dialects:
            self.note(dialect, number)
        if not self._double and _SEPARATED_ONCE.isdisjoint(dialects):
            self._double = number
        self._keep(SumsLine(name, parsed.algorithm, parsed.digest, number))

    def _keep(self, line: SumsLine) -> None:
        name = line.name
        kept = self._lines.setdefault(name, line)
        if kept is not line:
            digests = self._several.setdefault(name, {kept.algorithm: kept})
            earlier = digests.setdefault(line.algorithm, line)
            if earlier is not line:
                if earlier.digest == line.digest:
                    self.note(Dialect.REPEATED, line.line)
                else:
                    self._conflict(earlier, line)
                return
            self.note(Dialect.FURTHER_DIGEST, line.line)
            if rank(line.algorithm) < rank(kept.algorithm):
                self._lines[name] = line
        if name < self._last:
            self.note(Dialect.UNSORTED, line.line)
        self._last = name

    def _conflict(self, earlier: SumsLine, line: SumsLine) -> None:
        self._conflicts.setdefault(
            line.name,
            Finding(
                FindingKind.CONFLICTING_DIGESTS,
                line.name,
                f"Lines {earlier.line:,} and {line.line:,} of {self._label} give different "
                f"{line.algorithm} digests for `{shown(line.name)}`.",
            ),
        )

    def _refuse_ambiguity(self) -> None:
        """Refuse two separators in one list, where the second space may belong to the name."""
        single = [self._dialects[each][1] for each in _SINGLE if each in self._dialects]
        if single and self._double:
            raise self._refused(
                max(min(single), self._double),
                "mixes one space and two before the name, so that where names begin is not certain",
            )

    def _result(self) -> Sums:
        if not self._lines:
            raise Unusable(
                f"{self._label} lists nothing.", remedy="Get the list from its source again."
            )
        findings = [
            *self._dialect_findings(),
            *self._conflicts.values(),
            *_weak(self._lines.values(), self._label),
            *twins_among(tuple(self._lines)),
        ]
        return Sums(tuple(self._lines.values()), tuple(findings))

    def _dialect_findings(self) -> Iterator[Finding]:
        for dialect, (count, first) in self._dialects.items():
            more = f", and {count - 1:,} more" if count > 1 else ""
            said = f"Line {first:,} of {self._label}{more}: it {dialect.value}."
            yield Finding(FindingKind.DIALECT, None, said)

    def _refused(self, number: int, fault: str) -> Unusable:
        return Unusable(f"Line {number:,} of {self._label} {fault}.", remedy=_REMEDY)


def _lines(text: str) -> Iterator[str]:
    """Give the lines without LF; a list of a million is never there twice as a whole."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def _weak(lines: Iterable[SumsLine], label: str) -> Iterator[Finding]:
    found: dict[str, list[str]] = {}
    for line in lines:
        if line.algorithm in WEAK:
            found.setdefault(line.algorithm, []).append(line.name)
    for algorithm, names in found.items():
        what = f"`{shown(names[0])}`" if len(names) == 1 else f"{len(names):,} files"
        yield Finding(
            FindingKind.NOT_CHECKED,
            names[0] if len(names) == 1 else None,
            f"{label} has only {algorithm.upper()} for {what}, which is too weak to tell the file "
            "from one made to match.",
        )


def _refuse_dialects(found: Sums, label: str) -> None:
    for finding in found.findings:
        if finding.kind is FindingKind.DIALECT:
            raise Unusable(
                f"{label} is not in the portable profile: {finding.diagnosis}",
                remedy="Write it again in the profile, as `reef-archive sign` does.",
            )
