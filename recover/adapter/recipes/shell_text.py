"""Read a launch script or a command line: its flags, its overrides, and what is certain of each.

Variables count where the script itself sets them, once, to something certain. What the environment,
a condition, a loop or a substitution decides stays unresolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ....records.names import printable
from ..statement import Json
from .document import (
    MAX_ENTRIES,
    OWN_CONFIGURATIONS,
    Document,
    Entry,
    Kind,
    Unresolved,
    Value,
    normalised,
    too_large,
)
from .identity import looks_like_secret, names_a_secret
from .shell_words import Part, PartKind, Word, split_commands

_MAX_TEXT = 1 << 16
_MAX_EXPANDED = 32 << 20
_WORD_COST = 100
_MAX_SHELLS = 3
_MAX_PARTS = 10_000
_MAX_WORDS = 100_000
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
_OVERRIDE = re.compile(r"[+~]{0,2}([A-Za-z_][\w./@-]*)=", re.ASCII)
_ARGUMENT = re.compile(r"-[-A-Za-z]|[+~]{0,2}[A-Za-z_][\w./@-]*=", re.ASCII)
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_OPENING = frozenset({"if", "for", "while", "until", "case", "select"})
_CLOSING = frozenset({"fi", "done", "esac"})
_KEYWORDS = frozenset({"then", "else", "elif", "do", "{", "}", "!", "time", "in"})
_SETTERS = frozenset({"export", "declare", "local", "readonly", "typeset", "env"})
_TEXT_TOOLS = frozenset(
    {
        "echo",
        "printf",
        "cat",
        "grep",
        "sed",
        "awk",
        "unset",
        "pip",
        "read",
        "cd",
        "mkdir",
        "ls",
        "rm",
        "cp",
        "mv",
        "git",
        "source",
    }
)
_CONFIG_FLAGS = frozenset({"--config", "--config_path", "--config_name", "@"})
_FOREIGN_CONFIGS = frozenset(
    {"--config_file", "--deepspeed", "--deepspeed_config", "--fsdp_config"}
)
_CONFIG_FILE = re.compile(r".+\.(?:ya?ml|toml)")


@dataclass(frozen=True)
class _Resolved:
    """A word after expansion; without text it is uncertain, and `reason` says why."""

    text: str | None
    reason: str
    line: int


@dataclass
class _Script:
    """What the script has set so far; a variable without value is uncertain."""

    variables: dict[str, str | None] = field(default_factory=dict[str, "str | None"])
    arrays: dict[str, list[_Resolved]] = field(default_factory=dict[str, list[_Resolved]])
    name: str = ""
    depth: int = 0
    expanded: int = 0
    conditional: bool = False


def parse_shell(text: str, name: str) -> Document:
    """Give flags and `key=value` overrides as entries, in order, a flag's name without dashes.

    A flag without a value is true, one with several has a list. Raises Unusable past a bound.
    """
    script = _Script(name=name)
    entries: list[Entry] = []
    words: list[str] = []
    complete = True
    for command in _commands(text.replace("\r\n", "\n"), 0):
        expanded = list(_executed(command, script))
        words += [word.text for word in expanded if word.text is not None]
        entries += _arguments(expanded)
        complete = complete and not _names_a_config(expanded)
        if len(words) > _MAX_WORDS or len(entries) > MAX_ENTRIES:
            raise too_large(name, f"more than {_MAX_WORDS:,} words")
    notes: list[str] = []
    if script.conditional:
        notes.append(f"{name}: flags that stand under a condition are read as if it held")
    return Document(name, Kind.SHELL, tuple(entries), tuple(words), tuple(notes), complete)


def _commands(text: str, depth: int) -> Iterator[list[Word]]:
    """Split a script, and the scripts that it gives to `bash -c` as text."""
    for command in split_commands(text):
        yield command
        for shell, option, script in zip(command, command[1:], command[2:], strict=False):
            runs = shell.bare.rpartition("/")[2] in _SHELLS and re.fullmatch("-l?c", option.bare)
            if runs and depth < _MAX_SHELLS and len(script.parts) < _MAX_PARTS:
                text = "".join(_source(part) for part in script.parts)
                for inner in _commands(text, depth + 1):
                    for word in inner:
                        word.line += script.line - 1
                    yield inner


def _source(part: Part) -> str:
    """Spell a part as a script would, for the shell that reads it again."""
    return part.text if part.kind is PartKind.TEXT else f"${{{part.text}}}"


def _executed(command: list[Word], script: _Script) -> Iterator[_Resolved]:
    """Take the command's assignments into account, and give its other words expanded."""
    setting = True
    position = 0
    while position < len(command):
        word = command[position]
        position += 1
        bare = word.bare if len(word.parts) == 1 else ""
        if setting and bare in _OPENING:
            script.depth += 1
            if bare in ("for", "select") and position < len(command):
                script.variables[command[position].bare] = None
                return
        elif setting and bare in _CLOSING:
            script.depth = max(0, script.depth - 1)
        elif setting and (bare in _KEYWORDS or bare in _SETTERS):
            continue
        elif setting and _assigned(word, script):
            continue
        elif setting and bare in _TEXT_TOOLS:
            return
        else:
            setting = False
            for resolved in _expanded(word, script):
                if script.depth and (resolved.text or "").startswith("-"):
                    script.conditional = True
                yield resolved


def _assigned(word: Word, script: _Script) -> bool:
    """Note an assignment; tell whether the word is one."""
    found = _ASSIGNMENT.match(word.bare)
    if not found:
        return False
    name = found[1]
    if word.items is not None:
        items = [item for each in word.items for item in _expanded(each, script)]
        if not found[2]:
            script.arrays[name] = []
        script.arrays.setdefault(name, []).extend(items)
        script.conditional = script.conditional or bool(script.depth and items)
        return True
    rest = Part(PartKind.TEXT, word.bare[found.end() :], False)
    value = _joined([rest, *word.parts[1:]], script).text
    if found[2]:
        before_text = script.variables.get(name, "")
        value = None if value is None or before_text is None else before_text + value
    elif name in script.variables and script.variables[name] != value:
        value = None
    if script.depth or (value is not None and len(value) > _MAX_TEXT):
        value = None
    script.variables[name] = value
    return True


def _expanded(word: Word, script: _Script) -> Iterator[_Resolved]:
    """Expand a word: an array's elements, an unquoted variable's words, else one."""
    meaningful = [part for part in word.parts if part.text or part.kind is not PartKind.TEXT]
    if len(meaningful) == 1:
        part = meaningful[0]
        if part.kind is PartKind.ARRAY and part.text in script.arrays:
            for item in script.arrays[part.text]:
                _spend(script, len(item.text or ""))
                yield _Resolved(item.text, item.reason, word.line)
            return
        if part.kind is PartKind.VARIABLE and not part.quoted:
            value = script.variables.get(part.text)
            if value is not None:
                _spend(script, len(value))
                yield from (_Resolved(each, "", word.line) for each in value.split())
                return
    resolved = _joined(word.parts, script)
    yield _Resolved(resolved.text, resolved.reason, word.line)


def _joined(parts: list[Part], script: _Script) -> _Resolved:
    texts: list[str] = []
    length = 0
    for part in parts:
        text: str | None = part.text
        reason = "the shell computes it"
        if part.kind is PartKind.VARIABLE:
            secret = names_a_secret(part.text)
            text = None if secret else script.variables.get(part.text)
            named = "a variable" if looks_like_secret(part.text) else f"${part.text}"
            reason = f"{named} {'names a secret' if secret else 'is not certain from the script'}"
        elif part.kind is not PartKind.TEXT:
            text = None
        if text is None:
            return _Resolved(None, _partly(texts, reason), 0)
        length += len(text)
        if length > _MAX_TEXT:
            return _Resolved(None, "it becomes too long", 0)
        texts.append(text)
    _spend(script, length)
    return _Resolved("".join(texts), "", 0)


def _spend(script: _Script, characters: int) -> None:
    """Bound what expansion makes, however often variables double one another."""
    script.expanded += characters + _WORD_COST
    if script.expanded > _MAX_EXPANDED:
        raise too_large(script.name, "variables that expand to too much")


def _partly(texts: list[str], reason: str) -> str:
    """Keep a flag's name in front of a value that is uncertain: `--lora_r=$R`."""
    found = re.match(r"(--?[\w.-]+|[+~]{0,2}[A-Za-z_][\w./@-]*)=", "".join(texts))
    return f"{found[0]}\0{reason}" if found else f"\0{reason}"


def _names_a_config(words: list[_Resolved]) -> bool:
    """Tell whether a command builds on a file of its own, and not on what the trainer brings."""
    before = ""
    own = named = False
    for word in words:
        text = word.text or ""
        flag, _, value = text.partition("=")
        flag = normalised_flag(flag)
        if flag == "--config_name" and value.strip("'\"").split(".")[0] in OWN_CONFIGURATIONS:
            own = True
        elif flag in _CONFIG_FLAGS:
            named = True
        elif before not in _FOREIGN_CONFIGS and not value and _CONFIG_FILE.fullmatch(text):
            named = True
        before = flag
    return named and not own


def normalised_flag(flag: str) -> str:
    """Spell a flag's name with `_`, its leading dashes kept."""
    bare = flag.lstrip("-")
    return flag[: len(flag) - len(bare)] + normalised(bare)


def _arguments(words: list[_Resolved]) -> Iterator[Entry]:
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        text = word.text
        if text is None:
            text, _, reason = word.reason.partition("\0")
            if text:
                yield _entry(text[:-1], Unresolved(reason), word.line)
        elif text.startswith("--") and len(text) > 2:
            flag, equals, value = text.partition("=")
            if equals:
                yield _entry(flag, _single(value), word.line)
            else:
                following = _values(words, position)
                position += len(following)
                yield _entry(flag, _together(following), word.line)
        else:
            found = _OVERRIDE.match(text)
            if found:
                yield _entry(found[1], _single(text[found.end() :]), word.line)


def _values(words: list[_Resolved], start: int) -> list[_Resolved]:
    end = start
    while end < len(words):
        text = words[end].text
        if text is not None and _ARGUMENT.match(text):
            break
        end += 1
    return words[start:end]


def _together(words: list[_Resolved]) -> Value:
    texts = [word.text for word in words if word.text is not None]
    if len(texts) != len(words):
        reasons = [word.reason.partition("\0")[2] for word in words if word.text is None]
        return Unresolved(reasons[0])
    if not texts:
        return True
    if len(texts) == 1:
        return _single(texts[0])
    values: list[Json] = [*texts]
    return values


def _single(text: str) -> Json:
    """Read a value as Hydra and argparse's JSON types do: lists in brackets, null, quotes."""
    text = text.strip()
    if text.startswith("[") and text.endswith("]"):
        items = (item.strip().strip("'\"") for item in text[1:-1].split(","))
        values: list[Json] = [item for item in items if item]
        return values
    if text.lower() in ("null", "none"):
        return None
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    return text


def _entry(name: str, value: Value, line: int) -> Entry:
    return Entry(normalised(name.lstrip("-+~")), printable(name), value, line, line, loose=True)
