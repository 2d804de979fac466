"""Match module names by PEFT's rules, without ever hanging on a hostile pattern.

`target_modules` and the like come from files, and Python's `re` has no time limit; `regex` has.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from ...errors import Unusable
from ...records.names import printable

_SECONDS = 2.0
_SECONDS_IN_ALL = 4.0
_LITERAL = re.compile(r"(?:[\w.-]|\\[.\-_])+", re.ASCII)
_ESCAPED = re.compile(r"\\(.)")
_LONGEST = 1 << 16
_V = TypeVar("_V")


def suffixes(name: str) -> Iterator[str]:
    """Give a dotted name and each of its ends: `a.b.c`, `b.c`, `c`."""
    while True:
        yield name
        _, dot, name = name.partition(".")
        if not dot:
            return


def ends_with_any(name: str, ends: frozenset[str]) -> bool:
    """Tell whether a name is one of these, or ends with a dot and one of them."""
    return any(end in ends for end in suffixes(name))


def full_match(pattern: str) -> Callable[[str], bool]:
    """Compile a pattern that must match a whole name. Raises Unusable, on matching too."""
    compiled = _Pattern(pattern, pattern)
    return lambda name: compiled.match(name, whole=True) is not None


def within_any(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Tell whether one of these patterns matches some whole segments of a name, next to another.

    As `modules_to_save` of peft 0.21 keeps what lies in a module out of its targets. Names, of
    which there may be thousands, are looked up and not searched. Raises Unusable.
    """
    words = _Words()
    budget = _Budget()
    rest: list[_Pattern] = []
    for number, pattern in enumerate(dict.fromkeys(patterns)):
        if _LITERAL.fullmatch(pattern):
            words.add(pattern, number)
        else:
            rest.append(_Pattern(rf"(^|.*\.){pattern}($|\..*)", pattern, budget))

    def within(name: str) -> bool:
        begins = (end for end in suffixes(name))
        spans = (part for end in begins for part in _beginnings(end))
        if any(True for span in spans for _ in words.found(span)):
            return True
        return any(pattern.match(name) is not None for pattern in rest)

    return within


def _beginnings(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition(".")[0]


def last_group_at_start(pattern: str, shown: str) -> Callable[[str], str | None]:
    """Compile a pattern that gives its last group where it matches how a name begins.

    The group is empty where it took no part. Raises Unusable that shows `shown`.
    """
    return _Pattern(pattern, shown).match


@dataclass
class _Budget:
    """The time that patterns which belong together may take, compiling included."""

    left: float = _SECONDS_IN_ALL

    def spend(self, since: float, shown: str) -> None:
        self.left -= time.perf_counter() - since
        if self.left < 0:
            raise Unusable(
                f"The patterns of modules take longer than {_SECONDS_IN_ALL:g} s in all, as "
                f"`{shown}` does.",
                remedy="State the modules by name with --set, as in target_modules=a,b,c.",
            )


class _Pattern:
    """A pattern from outside: compiled, and matched within a limit of time."""

    def __init__(self, pattern: str, shown: str, budget: _Budget | None = None) -> None:
        import regex

        self._shown = printable(shown[:80])
        self._budget = budget or _Budget()
        if len(pattern) > _LONGEST:
            raise Unusable(f"A pattern of {len(pattern):,} characters is none for modules.")
        since = time.perf_counter()
        try:
            self._compiled = regex.compile(pattern)
        except (regex.error, ValueError, OverflowError, RecursionError) as error:
            raise Unusable(
                f"`{self._shown}` is no regular expression: {printable(str(error))}.",
                remedy="Mend it in the configuration or state it anew with --set.",
            ) from None
        self._budget.spend(since, self._shown)

    def match(self, name: str, *, whole: bool = False) -> str | None:
        """Give the last group of a match, or an empty text; None without a match."""
        match = self._compiled.fullmatch if whole else self._compiled.match
        since = time.perf_counter()
        try:
            found = match(name, timeout=_SECONDS)
        except TimeoutError:
            raise Unusable(
                f"`{self._shown}` takes longer than {_SECONDS:g} s on one name.",
                remedy="State the modules by name with --set target_modules=a,b,c.",
            ) from None
        self._budget.spend(since, self._shown)
        return None if found is None else str(found[self._compiled.groups] or "")


def by_pattern(patterns: Mapping[str, _V]) -> Callable[[str], _V | None]:
    """Look a module up in a rank_pattern or alpha_pattern: the first key that matches counts.

    A key is a regular expression for the whole name or for what follows a dot in it
    (`get_pattern_key` of peft 0.21). Names, of which there may be thousands as keys, are looked
    up and not searched. Raises Unusable.
    """
    keys = pattern_key(patterns)

    def look_up(name: str) -> _V | None:
        key = keys(name)
        return None if key is None else patterns[key]

    return look_up


def pattern_key(patterns: Iterable[str]) -> Callable[[str], str | None]:
    """Give the first of these keys that matches a name; see `by_pattern`. Raises Unusable."""
    whole, ends = _Words(), _Words()
    rest: list[tuple[int, _Pattern]] = []
    order = list(patterns)
    budget = _Budget()
    for number, key in enumerate(order):
        body = key.removeprefix("^").removesuffix("$")
        if _LITERAL.fullmatch(body):
            (whole if key.startswith("^") else ends).add(body, number)
        else:
            rest.append((number, _Pattern(rf"(.*\.)?({key})$", key, budget)))

    def look_up(name: str) -> str | None:
        found = [*whole.found(name), *(n for end in suffixes(name) for n in ends.found(end))]
        first = min(found, default=len(order))
        for number, pattern in rest:
            if number < first and pattern.match(name) is not None:
                first = number
        return order[first] if first < len(order) else None

    return look_up


@dataclass
class _Words:
    """Names as patterns, in which a dot that is not escaped stands for any character.

    They are kept by their length and the places of those dots, so that each is found by look-up.
    """

    by_dots: dict[int, dict[tuple[int, ...], dict[str, int]]] = field(
        default_factory=dict[int, dict[tuple[int, ...], dict[str, int]]]
    )

    def add(self, body: str, number: int) -> None:
        plain = _ESCAPED.sub(lambda found: "\0" if found[1] == "." else found[1], body)
        dots = tuple(place for place, letter in enumerate(plain) if letter == ".")
        words = self.by_dots.setdefault(len(plain), {}).setdefault(dots, {})
        words.setdefault(plain.replace("\0", "."), number)

    def found(self, name: str) -> Iterator[int]:
        for dots, words in self.by_dots.get(len(name), {}).items():
            letters = list(name)
            for place in dots:
                letters[place] = "."
            number = words.get("".join(letters))
            if number is not None:
                yield number


def alternatives(names: Iterable[str]) -> str:
    """Give the pattern that matches exactly these names."""
    return "|".join(re.escape(name) for name in names)
