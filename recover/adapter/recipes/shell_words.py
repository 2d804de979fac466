"""Split a shell script into commands and words as a POSIX shell does; nothing is executed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum

_VARIABLE = re.compile(r"[A-Za-z_]\w*|[0-9@*#?!$-]", re.ASCII)
_BRACED = re.compile(r"\{([A-Za-z_]\w*)(\[[@*]\])?\}", re.ASCII)
_NAME = re.compile(r"[A-Za-z_]\w*(?![\w.])|[@*]", re.ASCII)
_HEREDOC = re.compile(r"<<(-?)[ \t]*(['\"]?)([A-Za-z_]\w*)\2", re.ASCII)
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\(", re.ASCII)
_UNQUOTED = re.compile(r"[^ \t\n;&|()<>'\"\\$`]+")
_DOUBLE_QUOTED = re.compile(r'[^"\\$`]+')
_ESCAPED_IN_QUOTES = '$`"\\\n'


class PartKind(Enum):
    """What a piece of a word is."""

    TEXT = "text"
    VARIABLE = "variable"
    ARRAY = "array"
    COMPUTED = "computed"


@dataclass(frozen=True)
class Part:
    """A piece of a word: text, a variable's name, or what a shell computes, maybe of one."""

    kind: PartKind
    text: str
    quoted: bool


@dataclass
class Word:
    """A word of a command; `items` are those of an array's assignment `NAME=(…)`.

    A command's first word also has the operator before it, `&&` or `||`, and the here-document.
    """

    line: int
    parts: list[Part] = field(default_factory=list[Part])
    items: list[Word] | None = None
    joint: str = ""
    heredoc: Word | None = None

    @property
    def bare(self) -> str:
        """The text of its leading unquoted part, as keywords and assignments have it."""
        first = self.parts[0] if self.parts else None
        return first.text if first and first.kind is PartKind.TEXT and not first.quoted else ""


def split_commands(text: str) -> list[list[Word]]:
    """Split a script; what closes too late or never ends with the text. Comments are left out."""
    return _Lexer(text).commands()


class _Lexer:
    """A position in a script, its line, and the here-documents that the next line begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._line = 1
        self._heredocs: list[tuple[re.Match[str], list[Word]]] = []

    def commands(self) -> list[list[Word]]:
        commands: list[list[Word]] = [[]]
        drop = False
        joint = ""
        while self._position < len(self._text):
            char = self._text[self._position]
            if char in " \t":
                self._position += 1
            elif self._text.startswith("\\\n", self._position):
                self._skip(2)
            elif char == "\n":
                self._skip(1)
                self._skip_heredocs()
                commands.append([])
            elif char == "#":
                self._to_line_end()
            elif char in ";&|()":
                double = self._text[self._position : self._position + 2] in ("&&", "||")
                joint = char * 2 if double else ""
                self._position += 1 + double
                commands.append([])
            elif char in "<>":
                self._drop_descriptor(commands[-1])
                drop = self._redirection(commands[-1])
            else:
                word = self._word()
                if not drop:
                    word.joint, joint = joint, ""
                    commands[-1].append(word)
                drop = False
        return [command for command in commands if command]

    def _skip(self, count: int) -> None:
        self._line += self._text.count("\n", self._position, self._position + count)
        self._position += count

    def _to_line_end(self) -> None:
        end = self._text.find("\n", self._position)
        self._position = len(self._text) if end < 0 else end

    def _drop_descriptor(self, command: list[Word]) -> None:
        """Take away the digit of `2>`."""
        before = self._text[max(0, self._position - 2) : self._position]
        if command and command[-1].bare.isdigit() and before.strip().isdigit():
            if not before[-1:].isspace() and command[-1].bare == before.strip():
                command.pop()

    def _redirection(self, command: list[Word]) -> bool:
        """Pass an operator; tell whether the next word is its target."""
        heredoc = _HEREDOC.match(self._text, self._position)
        if heredoc and not self._text.startswith("<<<", self._position):
            self._position = heredoc.end()
            self._heredocs.append((heredoc, command))
            return False
        while self._position < len(self._text) and self._text[self._position] in "<>&":
            self._position += 1
        return True

    def _skip_heredocs(self) -> None:
        """Pass the here-documents that the line before began, and give each to its command."""
        for opening, command in self._heredocs:
            line, lines = self._line, list[str]()
            while self._position < len(self._text):
                start = self._position
                self._to_line_end()
                text = self._text[start : self._position]
                text = text.lstrip("\t") if opening[1] else text
                self._skip(1)
                if text == opening[3]:
                    break
                lines.append(text)
            if command:
                body = "".join(f"{text}\n" for text in lines)
                command[0].heredoc = _heredoc(body, line, literal=bool(opening[2]))
        self._heredocs.clear()

    def heredoc(self) -> Word:
        """Take the whole text as a here-document's, in which expansions count and quotes do not."""
        word = Word(self._line)
        while self._position < len(self._text):
            self._quoted(word)
        return word

    def _word(self) -> Word:
        array = _ARRAY.match(self._text, self._position)
        return self._array(array[0]) if array else self._simple_word()

    def _simple_word(self) -> Word:
        word = Word(self._line)
        while self._position < len(self._text):
            char = self._text[self._position]
            if char in " \t\n;&|()<>":
                break
            if char == "'":
                self._single(word)
            elif char == '"':
                self._double(word)
            elif char == "\\":
                if not self._text.startswith("\\\n", self._position):
                    _add(word, self._text[self._position + 1 : self._position + 2], True)
                self._skip(2)
            elif char in "$`":
                self._expansion(word, False)
            else:
                self._run(word, _UNQUOTED, False)
        return word

    def _array(self, opening: str) -> Word:
        word = Word(self._line, [Part(PartKind.TEXT, opening[:-1], False)], [])
        self._position += len(opening)
        while self._position < len(self._text) and word.items is not None:
            char = self._text[self._position]
            if char == ")":
                self._position += 1
                break
            if char in " \t\n":
                self._skip(1)
            elif self._text.startswith("\\\n", self._position):
                self._skip(2)
            elif char == "#":
                self._to_line_end()
            elif char in ";&|(<>":
                self._position += 1
            else:
                word.items.append(self._simple_word())
        return word

    def _single(self, word: Word) -> None:
        end = self._text.find("'", self._position + 1)
        end = len(self._text) if end < 0 else end
        _add(word, self._text[self._position + 1 : end], True)
        self._skip(end + 1 - self._position)

    def _double(self, word: Word) -> None:
        self._position += 1
        _add(word, "", True)
        while self._position < len(self._text):
            if self._text[self._position] == '"':
                self._position += 1
                return
            self._quoted(word)

    def _quoted(self, word: Word) -> None:
        char = self._text[self._position]
        following = self._text[self._position + 1 : self._position + 2]
        if char == "\\" and following and following in _ESCAPED_IN_QUOTES:
            _add(word, following if following != "\n" else "", True)
            self._skip(2)
        elif char in "$`":
            self._expansion(word, True)
        else:
            self._run(word, _DOUBLE_QUOTED, True)

    def _run(self, word: Word, pattern: re.Pattern[str], quoted: bool) -> None:
        """Take the characters that mean themselves, at least one."""
        found = pattern.match(self._text, self._position)
        text = found[0] if found else self._text[self._position]
        _add(word, text, quoted)
        self._skip(len(text))

    def _expansion(self, word: Word, quoted: bool) -> None:
        braced = _BRACED.match(self._text, self._position + 1)
        plain = _VARIABLE.match(self._text, self._position + 1)
        following = self._text[self._position + 1 : self._position + 2]
        if self._text.startswith("`#", self._position) and not quoted:
            self._computed(Word(self._line), "`", quoted)  # a comment between arguments
        elif self._text[self._position] == "`":
            self._computed(word, "`", quoted)
        elif braced:
            kind = PartKind.ARRAY if braced[2] else PartKind.VARIABLE
            word.parts.append(Part(kind, braced[1], quoted))
            self._position = braced.end()
        elif following and following in "({":
            self._computed(word, ")" if following == "(" else "}", quoted)
        elif plain:
            word.parts.append(Part(PartKind.VARIABLE, plain[0], quoted))
            self._position = plain.end()
        else:
            _add(word, "$", quoted)
            self._position += 1

    def _computed(self, word: Word, closing: str, quoted: bool) -> None:
        """Pass a substitution, with those inside it."""
        opening = {")": "(", "}": "{"}.get(closing, "")
        start = self._position + (1 if closing == "`" else 2)
        depth, end = 1, start
        while end < len(self._text) and depth:
            char = self._text[end]
            depth += (char == opening) - (char == closing)
            end += 2 if char == "\\" else 1
        named = _NAME.match(self._text, start) if closing == "}" else None
        word.parts.append(Part(PartKind.COMPUTED, named[0] if named else "", quoted))
        self._skip(min(end, len(self._text)) - self._position)


def _heredoc(body: str, line: int, *, literal: bool) -> Word:
    word = Word(line, [Part(PartKind.TEXT, body, True)]) if literal else _Lexer(body).heredoc()
    word.line = line
    return word


def _add(word: Word, text: str, quoted: bool) -> None:
    word.parts.append(Part(PartKind.TEXT, text, quoted))
