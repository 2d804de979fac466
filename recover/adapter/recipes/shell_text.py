"""Read a launch script or a command line: each command's flags, and what is certain of them.

Variables count where the script itself sets them, once, to something certain. What the environment,
a condition, a loop, another file or a substitution decides stays unresolved.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .document import MAX_ENTRIES, Document, too_large
from .launch import Launch
from .shell_state import Expanded, Script
from .shell_words import Part, PartKind, Word, split_commands

_MAX_SHELLS = 3
_MAX_PARTS = 10_000
_MAX_COMMANDS = 5_000
_MAX_WORDS = 100_000
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_CHANGE = re.compile(r"([A-Za-z_]\w*)(?:\+\+|--|[-*/%&|^<>+]+=)", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
# Programs that hand a word on to a shell.
_HANDED_ON = frozenset({"ssh", "eval", "su", "tmux", "screen", "pdsh", "script", "flock", "sbatch"})
_HANDED_BY_NAME = re.compile(r"--(?:wrap|command)=")
_LOOPS = frozenset({"for", "while", "until", "case", "select"})
_KEYWORDS = frozenset({"then", "do", "!", "time", "in"})
_SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_READERS = frozenset({"read", "mapfile", "readarray", "getopts", "unset", "let"})
_TEXT_TOOLS = frozenset(
    "echo printf cat grep sed awk pip cd mkdir ls rm cp mv git set shift trap exit return sleep "
    "wait module ulimit".split()
)
# After these, what `&&` leads to runs as well as if a line's end stood there.
_SUCCEED = _SETTERS | frozenset(
    "cd mkdir echo set source . module pip conda pwd true ulimit".split()
)
# Files that set up a shell, and none of a run's own variables.
_SETUP = re.compile(
    r"(?:^|/)(?:activate|\.?bashrc|\.?bash_profile|\.?profile|\.?zshrc|env\.sh|conda\.sh|env"
    r"|modules?\.sh|lmod\.sh|bash|setvars\.sh|set_env\.sh)$"
)


@dataclass
class _Outline:
    """What a first look tells: names that change, where, and which functions are called."""

    loops: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    functions: dict[int, tuple[str, set[str]]] = field(
        default_factory=dict[int, tuple[str, set[str]]]
    )
    ends: set[int] = field(default_factory=set[int])
    changed: set[str] = field(default_factory=set[str])
    called: Counter[str] = field(default_factory=Counter[str])


def parse_shell(text: str, name: str) -> tuple[Document, ...]:
    """Give each command as a document: its flags and `key=value` overrides, in order.

    A flag without a value is true, one with several has a list. Raises Unusable past a bound.
    """
    script = Script(name)
    documents: list[Document] = []
    words = entries = 0
    for launch in _launches(text.replace("\r\n", "\n"), script, 0):
        words += len(launch.words)
        document = launch.document(script)
        entries += len(document.entries)
        if words > _MAX_WORDS or entries > MAX_ENTRIES:
            raise too_large(name, f"more than {_MAX_WORDS:,} words")
        if len(documents) >= _MAX_COMMANDS:
            raise too_large(name, f"more than {_MAX_COMMANDS:,} commands")
        documents.append(document)
    return tuple(documents)


def _launches(text: str, script: Script, line: int, depth: int = 0) -> Iterator[Launch]:
    commands = split_commands(text)
    if len(commands) > MAX_ENTRIES:
        raise too_large(script.name, f"more than {MAX_ENTRIES:,} commands")
    for word in (word for command in commands for word in command):
        word.line += line
    outline = _outline(commands)
    inside: list[tuple[str, set[str]]] = []
    before: list[Word] = []
    for number, command in enumerate(commands):
        if number in outline.functions:
            function = outline.functions[number]
            inside.append(function)
            script.enter_function(outline.changed)
        if number in outline.ends and inside:
            script.leave_function(inside.pop()[1])
        doubtful = bool(command[0].joint) and not _succeeds(before, command[0].joint)
        run = _Run(script, command, outline.loops.get(number, set()), sure=not doubtful)
        executed = tuple(run.words())
        before = command
        position = _handed_on(command) if depth < _MAX_SHELLS else None
        fed = command[0].heredoc if depth < _MAX_SHELLS and _reads_a_script(command) else None
        if fed and executed and len(fed.parts) < _MAX_PARTS:
            source = "".join(map(_source, fed.parts))
            yield from _launches(source, script, fed.line - 1, depth + 1)
            continue
        if position is not None and executed:
            script_word = command[position]
            if len(script_word.parts) < _MAX_PARTS:
                handed = command[1:] if command[0].bare == "eval" else [script_word]
                source = " ".join("".join(map(_source, word.parts)) for word in handed)
                source = _HANDED_BY_NAME.sub("", source)
                yield from _launches(source, script, script_word.line - 1, depth + 1)
                if any(part.kind is not PartKind.TEXT for part in script_word.parts):
                    if command[0].bare == "eval":
                        script.forget_all()
                continue
        if executed:
            called = all(outline.called[name] > 0 for name, _ in inside)
            wrapped = executed[0].text in {name for name, _ in outline.functions.values()}
            yield Launch(executed, script.conditional or doubtful, called, wrapped)


def _succeeds(before: Sequence[Word], joint: str) -> bool:
    words = [word.bare for word in before if word.bare not in _KEYWORDS]
    first = words[0] if words else ""
    return joint == "&&" and (first in _SUCCEED or bool(_ASSIGNMENT.match(first)))


def _handed_on(command: Sequence[Word]) -> int | None:
    """Find the word that the command gives to a shell as a script: `bash -c`, `ssh`, `eval`."""
    handing = False
    for position, word in enumerate(command):
        program = word.bare.rpartition("/")[2]
        handing = handing or program in _HANDED_ON
        option = command[position - 1].bare if position else ""
        earlier = {
            each.bare.rpartition("/")[2] for each in command[max(0, position - 3) : position]
        }
        if _HANDED_BY_NAME.match(word.bare) and len(word.parts) > 1:
            return position
        if re.fullmatch("-[a-z]*c|--command|--wrap", option) and (earlier & _SHELLS or handing):
            return position
        spaced = any(re.search(r"\s", part.text) for part in word.parts)
        if handing and (spaced or (command[0].bare == "eval" and position == 1)):
            return position
    return None


def _reads_a_script(command: Sequence[Word]) -> bool:
    """Tell whether a shell takes the command's here-document as its script."""
    programs = {word.bare.rpartition("/")[2] for word in command}
    return bool(programs & (_SHELLS | {"ssh"}))


def _source(part: Part) -> str:
    """Spell a part as a script would, for the shell that reads it again."""
    if part.kind is PartKind.TEXT:
        return part.text
    return "$(:)" if part.kind is PartKind.COMPUTED else f"${{{part.text}}}"


def _outline(commands: Sequence[Sequence[Word]]) -> _Outline:
    """Look once at the whole script: what a loop or a function changes counts at its start."""
    outline = _Outline()
    loops: list[int] = []
    braces: list[int | None] = []
    opened: int | None = None
    seen: Counter[str] = Counter()
    pending: tuple[str, int] | None = None
    for number, command in enumerate(commands):
        names = [word.bare for word in command]
        plain = (n for n in names if n and n not in _KEYWORDS and not _ASSIGNMENT.match(n))
        first = next(plain, "")
        if first in _LOOPS:
            loops.append(number)
            outline.loops.setdefault(loops[0], set())
        elif first in ("done", "esac") and loops:
            loops.pop()
        if names[0] == "function" and len(names) > 1:
            pending = (names[1], number)
        if names[-1] == "{" or names[0] == "{":
            function = pending if pending and number - pending[1] <= 1 else None
            if function and opened is None and not braces:
                outline.functions[number] = (function[0], set())
                opened = number
                braces.append(number)
            else:
                braces.append(None)
        elif names[0] == "}" and braces:
            if braces.pop() is not None:
                outline.ends.add(number)
                opened = None
        else:
            outline.called[first.rpartition("/")[2]] += 1
        alone = len(command) == 1 and bool(_NAME.fullmatch(names[0]))
        if alone:
            pending = (names[0], number)
            outline.called[names[0]] -= bool(
                number + 1 < len(commands) and commands[number + 1][0].bare == "{"
            )
        changed = [*_changes(command)]
        seen.update(changed)
        if loops:
            outline.loops[loops[0]].update(changed)
        if opened is not None:
            outline.functions[opened][1].update(changed)
    outline.changed = {name for name, count in seen.items() if count > 1}
    return outline


def _changes(command: Sequence[Word]) -> Iterator[str]:
    reading = False
    for position, word in enumerate(command):
        found = _ASSIGNMENT.match(word.bare) or _CHANGE.match(word.bare)
        if found:
            yield found[1]
        elif word.bare in _READERS or word.bare in ("for", "select"):
            reading = True
        elif position and command[position - 1].bare == "-v" and command[0].bare == "printf":
            yield word.bare
        elif reading and _NAME.fullmatch(word.bare):
            yield word.bare
            reading = command[0].bare in _READERS


class _Run:
    """One command, as the script's state is when it comes to it."""

    def __init__(
        self, script: Script, command: Sequence[Word], changed: set[str], *, sure: bool
    ) -> None:
        self._script = script
        self._command = command
        self._changed = changed
        self._sure = sure

    def words(self) -> Iterator[Expanded]:
        """Take its keywords and assignments into account, and give its other words expanded."""
        position = self._keywords()
        words = self._command[position:]
        bare = words[0].bare if words and len(words[0].parts) == 1 else ""
        if bare in _SETTERS:
            for word in words[1:]:
                self._assigned(word)
            return
        if bare in _READERS or (bare == "printf" and len(words) > 2 and words[1].bare == "-v"):
            self._read(bare, words)
            return
        if bare in ("source", ".") and len(words) > 1:
            path = "".join(part.text for part in words[1].parts)
            if not _SETUP.search(path):
                self._script.forget_all()
            return
        if bare in _TEXT_TOOLS:
            return
        start = 0
        while start < len(words) and _ASSIGNMENT.match(words[start].bare):
            start += 1
        if start == len(words):
            for word in words:
                self._assigned(word)
            return
        change = _CHANGE.match(bare)
        if change:
            self._script.forget(change[1])
            return
        for word in words[start:]:
            yield from self._script.expand(word)

    def _keywords(self) -> int:
        script = self._script
        for position, word in enumerate(self._command):
            bare = word.bare if len(word.parts) == 1 else ""
            if bare in _LOOPS:
                script.unsure += 1
                for name in self._changed:
                    script.forget(name)
                if bare in ("for", "select", "case"):
                    return len(self._command)
            elif bare == "if":
                script.enter_if()
            elif bare in ("elif", "else"):
                script.next_branch(last=bare == "else")
            elif bare == "fi":
                script.leave_if()
            elif bare in ("done", "esac"):
                script.unsure = max(0, script.unsure - 1)
            elif bare not in _KEYWORDS and bare not in ("{", "}", "function"):
                return position
        return len(self._command)

    def _assigned(self, word: Word) -> None:
        found = _ASSIGNMENT.match(word.bare)
        if not found:
            return
        if word.items is not None:
            self._script.set_items(found[1], word.items, add=bool(found[2]), sure=self._sure)
            return
        rest = Part(PartKind.TEXT, word.bare[found.end() :], False)
        parts = [rest, *word.parts[1:]]
        self._script.set(found[1], parts, add=bool(found[2]), sure=self._sure)

    def _read(self, bare: str, words: Sequence[Word]) -> None:
        """Take what a command reads into variables as uncertain, but for a here-document."""
        names = [word.bare for word in words[1:] if _NAME.fullmatch(word.bare)]
        names += [found[1] for word in words[1:] if (found := _CHANGE.match(word.bare))]
        names += [found[1] for word in words[1:] if (found := _ASSIGNMENT.match(word.bare))]
        heredoc = self._command[0].heredoc
        whole = any(word.bare in ("-d", "-rd", "-d''") for word in words)
        if bare == "read" and heredoc and whole and len(names) == 1:
            self._script.set(names[0], heredoc.parts, add=False, sure=self._sure)
            return
        for name in names:
            self._script.forget(name)
