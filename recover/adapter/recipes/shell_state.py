"""What a script has set where a command stands: its variables, and what is not certain of them.

An uncertain piece of a text is a mark: a NUL, the number of its reason, a NUL. No script's text
holds a NUL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .document import too_large
from .identity import looks_like_secret, names_a_secret
from .shell_words import Part, PartKind, Word

_MAX_TEXT = 1 << 16
_MAX_EXPANDED = 32 << 20
_WORD_COST = 100
_MAX_BRANCHES = 1_000
_MARK = re.compile("\0([0-9]+)\0")
NAMED_VALUE = re.compile(r"(--?[\w.-]+|[+~]{0,2}[A-Za-z_][\w./@-]*)=", re.ASCII)
# Names of variables that hold flags, and not one flag's value.
_FLAGS = re.compile(
    r"(?:^|_)(?:EXTRA|ARGS?|ARGUMENTS|OPTS?|OPTIONS|FLAGS?|PARAMS|PARAMETERS|CMD|COMMAND|OVERRIDES?"
    r"|CONFIG_?ARGS)(?:_|$)|^[@*]$",
    re.IGNORECASE,
)
_WORDS = re.compile(r"^--|\s|=")
CONDITION = "a condition or a loop decides it"


@dataclass(frozen=True)
class Expanded:
    """A word after expansion, with marks for what is uncertain."""

    text: str
    line: int


@dataclass(frozen=True)
class _Reason:
    text: str
    flags: bool


@dataclass
class _Branches:
    """An `if`: what was set before it, and after each branch that has ended."""

    before: _State
    ended: list[_State]
    complete: bool = False


@dataclass
class _State:
    variables: dict[str, str]
    arrays: dict[str, tuple[Expanded, ...]]

    def copy(self) -> _State:
        return _State(dict(self.variables), dict(self.arrays))


class Script:
    """A script's variables at a place in it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.unsure = 0
        self._state = _State({}, {})
        self._ifs: list[_Branches] = []
        self._functions: list[tuple[_State, int]] = []
        self._reasons: list[_Reason] = []
        self._numbers: dict[_Reason, int] = {}
        self._spent = 0

    @property
    def conditional(self) -> bool:
        """Tell whether a condition stands above the place."""
        return bool(self.unsure or self._ifs)

    def unknown(self, reason: str, *, flags: bool = False) -> str:
        """Give the mark of something uncertain."""
        made = _Reason(reason, flags)
        if made not in self._numbers:
            self._numbers[made] = len(self._reasons)
            self._reasons.append(made)
        return f"\0{self._numbers[made]}\0"

    def reason(self, text: str) -> tuple[str, bool] | None:
        """Say why a text is uncertain, and whether it may hold flags; None if it is certain."""
        found = _MARK.search(text)
        if not found:
            return None
        reason = self._reasons[int(found[1])]
        return reason.text, reason.flags

    def enter_if(self) -> None:
        """Begin the branches of an `if`."""
        if len(self._ifs) >= _MAX_BRANCHES:
            raise too_large(self.name, f"more than {_MAX_BRANCHES:,} conditions in one another")
        self._spend(_cost(self._state) + _WORD_COST)
        self._ifs.append(_Branches(self._state.copy(), []))

    def next_branch(self, *, last: bool) -> None:
        """Begin the next branch with what was set before the first."""
        if self._ifs:
            branches = self._ifs[-1]
            branches.complete = branches.complete or last
            branches.ended.append(self._state)
            self._spend(_cost(branches.before))
            self._state = branches.before.copy()

    def leave_if(self) -> None:
        """Keep of an `if` what all its branches agree on."""
        if not self._ifs:
            return
        branches = self._ifs.pop()
        states = [*branches.ended, self._state]
        if not branches.complete:
            states.append(branches.before)
        self._spend(sum(map(_cost, states)))
        names = dict.fromkeys(name for state in states for name in state.variables)
        merged = _State({}, {})
        for name in names:
            found = {state.variables.get(name) for state in states}
            value = next(iter(found))
            if len(found) > 1 or value is None:
                flags = _holds_flags(name) or any(map(_WORDS.search, filter(None, found)))
                value = self.unknown(_uncertain(name), flags=flags)
            merged.variables[name] = value
        for name in dict.fromkeys(name for state in states for name in state.arrays):
            merged.arrays[name] = self._common([state.arrays.get(name, ()) for state in states])
        self._state = merged

    def _common(self, arrays: Sequence[tuple[Expanded, ...]]) -> tuple[Expanded, ...]:
        length = 0
        while all(len(a) > length and a[length] == arrays[0][length] for a in arrays):
            length += 1
        rest = (item for array in arrays for item in self.doubtful(array[length:]))
        return (*arrays[0][:length], *dict.fromkeys(rest))

    def doubtful(self, words: Iterable[Expanded]) -> Iterator[Expanded]:
        """Keep of words under a condition which flags they would set."""
        unknown = self.unknown(CONDITION, flags=True)
        flagged = False
        for word in words:
            named = NAMED_VALUE.match(word.text)
            if word.text.startswith("--"):
                flagged = True
                yield Expanded(f"{word.text.partition('=')[0]}={unknown}", word.line)
            elif named:
                flagged = True
                yield Expanded(f"{named[0]}{unknown}", word.line)
            elif not flagged or "\0" in word.text:
                yield Expanded(unknown, word.line)

    def enter_function(self, changed: Iterable[str]) -> None:
        """Begin a function: what is set more than once may have any value when it is called."""
        changed = [*changed]
        self._spend(_cost(self._state) + _WORD_COST * (1 + len(changed)))
        self._functions.append((self._state.copy(), self.unsure))
        for name in changed:
            self.forget(name)

    def leave_function(self, changed: Iterable[str]) -> None:
        """End a function; what it sets is uncertain from here on."""
        if self._functions:
            self._state, self.unsure = self._functions.pop()
            for name in changed:
                self.forget(name)

    def forget(self, name: str) -> None:
        """Take a variable as uncertain."""
        self._state.variables[name] = self.unknown(_uncertain(name), flags=_holds_flags(name))
        if name in self._state.arrays:
            self._state.arrays[name] = (Expanded(self.unknown(CONDITION, flags=True), 1),)

    def forget_all(self) -> None:
        """Take all that was set as uncertain: other code may have changed it."""
        self._spend(_cost(self._state))
        for name in [*self._state.variables, *self._state.arrays]:
            self.forget(name)

    def set_items(self, name: str, items: Iterable[Word], *, add: bool, sure: bool) -> None:
        """Set an array, or add to it."""
        expanded = tuple(item for each in items for item in self.expand(each))
        before = self._state.arrays.get(name, ())
        self._spend(len(before) + len(expanded))
        certain = sure and not self.unsure
        if not certain:
            kept = before if add else self.doubtful(before)
            self._state.arrays[name] = (*kept, *self.doubtful(expanded))
        else:
            self._state.arrays[name] = (*before, *expanded) if add else expanded

    def set(self, name: str, parts: list[Part], *, add: bool, sure: bool) -> None:
        """Set a variable; what is set twice, to different values, is uncertain."""
        value = self._joined(parts)
        known = self._state.variables
        before = known.get(name)
        itself = any(p.kind is PartKind.VARIABLE and p.text == name for p in parts)
        if add:
            value = (before or "") + value
        elif before is not None and before != value and not (itself and value.startswith(before)):
            value = self.unknown(_uncertain(name), flags=_holds_flags(name))
        if not sure or self.unsure:
            value = self.unknown(_uncertain(name), flags=_holds_flags(name))
        elif len(value) > _MAX_TEXT:
            value = self.unknown("it becomes too long")
        known[name] = value

    def expand(self, word: Word) -> Iterator[Expanded]:
        """Expand a word: an array's elements, an unquoted variable's words, else one."""
        meaningful = [part for part in word.parts if part.text or part.kind is not PartKind.TEXT]
        if len(meaningful) == 1:
            part = meaningful[0]
            if part.kind is PartKind.ARRAY and part.text in self._state.arrays:
                for item in self._state.arrays[part.text]:
                    self._spend(len(item.text) + _WORD_COST)
                    yield Expanded(item.text, word.line)
                return
            if part.kind is PartKind.VARIABLE and not part.quoted:
                for text in self._joined(word.parts).split():
                    yield Expanded(text, word.line)
                return
        if word.parts:
            yield Expanded(self._joined(word.parts), word.line)

    def _joined(self, parts: list[Part]) -> str:
        texts: list[str] = []
        length = 0
        for part in parts:
            text = part.text if part.kind is PartKind.TEXT else self._looked_up(part)
            length += len(text)
            if length > _MAX_TEXT:
                return self.unknown("it becomes too long", flags=True)
            texts.append(text)
        self._spend(length + _WORD_COST)
        return "".join(texts)

    def _looked_up(self, part: Part) -> str:
        if part.kind is PartKind.COMPUTED:
            named = _uncertain(part.text) if part.text.isidentifier() else "the shell computes it"
            return self.unknown(named, flags=_holds_flags(part.text))
        if names_a_secret(part.text):
            named = "a variable" if looks_like_secret(part.text) else f"${part.text}"
            return self.unknown(f"{named} names a secret")
        if part.kind is PartKind.VARIABLE and part.text in self._state.variables:
            return self._state.variables[part.text]
        flags = part.kind is PartKind.ARRAY or _holds_flags(part.text)
        return self.unknown(_uncertain(part.text), flags=flags)

    def _spend(self, characters: int) -> None:
        """Bound what expansion makes, however often variables double one another."""
        self._spent += characters
        if self._spent > _MAX_EXPANDED:
            raise too_large(self.name, "variables that expand to too much")


def _cost(state: _State) -> int:
    return len(state.variables) + sum(1 + len(array) for array in state.arrays.values())


def _uncertain(name: str) -> str:
    named = "a variable" if looks_like_secret(name) else f"${name}"
    return f"{named} is not certain from the script"


def _holds_flags(name: str) -> bool:
    return _FLAGS.search(name) is not None
