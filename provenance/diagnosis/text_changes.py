"""Changes that git, editors and clean-up hooks make to text, undone until the digest is right.

The reverse of a change is tried, and only what gives the listed digest is said. Spaces that were
stripped cannot be put back, so that change is found only where the listed file is the stripped one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from .subject import Subject

MAX_TEXT = 64 << 20
_MAX_WIDENED = 16 << 20
_MAX_STRIPPED = 8 << 20
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")
_TRAILING = re.compile(rb"(?<![ \t\x0b\x0c])[ \t\x0b\x0c]+(?=\r?\n|\r?\Z)")
_MOST_NEWLINES = 3
_ENDINGS = {b"\n": "LF", b"\r\n": "CR LF", b"\r": "CR"}
_GIT = "add `-text` for it to .gitattributes and check it out again"
_POWERSHELL = "PowerShell's `>` writes so"
_EDITOR = "an editor or a hook such as end-of-file-fixer changed it; exclude it there"


class _Version(NamedTuple):
    """One thing that the file may have been, without newlines at its end, and how it differs."""

    body: memoryview
    ending: bytes
    newlines: int
    said: tuple[str, ...]
    advice: str


def text_change(subject: Subject) -> str | None:
    """Explain line endings, final newlines, byte order marks, encodings and trailing spaces."""
    if subject.member.size > MAX_TEXT:
        return None
    data = subject.read(0, MAX_TEXT + 1)
    for version in _versions(data):
        if subject.out_of_time:
            return None
        newlines = _newlines_as_listed(version, subject)
        if newlines is not None:
            return _sentence(version, newlines)
    return None


def _newlines_as_listed(version: _Version, subject: Subject) -> int | None:
    """Give the number of newlines at the end with which it is the listed file."""
    size = subject.listed_size
    counts: list[int] = [
        count
        for count in sorted({*range(_MOST_NEWLINES + 1), version.newlines})
        if size is None or size == len(version.body) + count * len(version.ending)
    ]
    if not counts:
        return None
    state = subject.hash(version.body)
    for count in counts:
        trial = state.copy()
        trial.update(version.ending * count)
        if trial.hexdigest() == subject.line.digest:
            return count
    return None


def _versions(data: bytes) -> Iterator[_Version]:
    for text, said, advice in _encodings(data):
        wide = text.startswith(_WIDE)
        plain = len(text) <= _MAX_STRIPPED and b"\0" not in text
        for converted, ending, told in _line_endings(text) if not wide else _as_it_is(text):
            how = (*said, *told)
            wanted = _GIT if told and advice != _POWERSHELL else advice
            yield _version(converted, ending, how, wanted)
            if plain and (stripped := _TRAILING.sub(b"", converted)) != converted:
                spaces = "it has spaces at the ends of lines that the listed file has not"
                yield _version(stripped, ending, (*how, spaces), wanted or _EDITOR)


def _encodings(data: bytes) -> Iterator[tuple[bytes, tuple[str, ...], str]]:
    yield data, (), ""
    if data.startswith(_BOM):
        yield data[len(_BOM) :], ("it has a byte order mark that the listed file has not",), _EDITOR
    else:
        yield _BOM + data, ("it lacks the byte order mark of the listed file",), _EDITOR
    wide = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(data[:2])
    if wide is not None:
        narrow = _recoded(data[2:], wide, "utf-8")
        if narrow is not None:
            said = ("it is UTF-16, and the listed file is UTF-8",)
            yield narrow, said, _POWERSHELL
            yield _BOM + narrow, said, _POWERSHELL
        return
    if len(data) > _MAX_WIDENED:
        return
    for codec, mark in (("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")):
        wider = _recoded(data.removeprefix(_BOM), "utf-8", codec)
        if wider is not None:
            yield mark + wider, ("it is UTF-8, and the listed file is UTF-16",), _EDITOR


def _as_it_is(data: bytes) -> Iterator[tuple[bytes, bytes, tuple[str, ...]]]:
    yield data, b"\n", ()


def _recoded(data: bytes, source: str, target: str) -> bytes | None:
    try:
        return data.decode(source).encode(target)
    except UnicodeError:
        return None


def _line_endings(data: bytes) -> Iterator[tuple[bytes, bytes, tuple[str, ...]]]:
    """Give the text as it is and with every other line ending."""
    crlf, returns, feeds = data.count(b"\r\n"), data.count(b"\r"), data.count(b"\n")
    own = b"\r\n" if crlf and crlf == feeds else b"\r" if returns and not feeds else b"\n"
    yield data, own, ()
    if not returns and not feeds:
        return
    mixed = (0 < crlf < feeds) or (0 < crlf < returns) or (returns > crlf and feeds > crlf)
    here = "mixed" if mixed else _ENDINGS[own]
    one = data.replace(b"\r\n", b"\n")
    if crlf:
        yield one, b"\n", (_differ(here, "LF"),)
    if feeds > crlf:
        yield one.replace(b"\n", b"\r\n"), b"\r\n", (_differ(here, "CR LF"),)
    if returns > crlf:
        all_feeds = one.replace(b"\r", b"\n")
        yield all_feeds, b"\n", (_differ(here, "LF"),)
        yield all_feeds.replace(b"\n", b"\r\n"), b"\r\n", (_differ(here, "CR LF"),)
    elif feeds:
        yield one.replace(b"\n", b"\r"), b"\r", (_differ(here, "CR"),)


def _differ(here: str, listed: str) -> str:
    return f"its line endings are {here} where the listed file has {listed}"


def _version(text: bytes, ending: bytes, said: tuple[str, ...], advice: str) -> _Version:
    tail = text[len(text.rstrip(b"\r\n")) :].replace(ending, b"\0")
    newlines = len(tail) - len(tail.rstrip(b"\0"))
    body = memoryview(text)[: len(text) - newlines * len(ending)]
    return _Version(body, ending, newlines, said, advice)


def _sentence(version: _Version, newlines: int) -> str:
    said = list(version.said)
    more = version.newlines - newlines
    if more == 1:
        said.append("it has a newline at its end that the listed file has not")
    elif more > 1:
        said.append(f"it has {more:,} newlines more at its end than the listed file")
    elif more == -1:
        said.append("it lacks the newline at the end of the listed file")
    elif more < -1:
        said.append(f"it lacks {-more:,} newlines at the end of the listed file")
    if not said:
        return "It is what is listed by now: it was changed during the verification."
    told = ", and ".join(said)
    return f"Nothing else differs, but {told}: {version.advice or _EDITOR}."
