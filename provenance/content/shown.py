"""Names in sentences: escaped, and cut where they are too long to be read."""

from __future__ import annotations

from ...records.names import printable

_LONGEST = 200
_KEPT_AT_END = 50


def shown(name: bytes | str) -> str:
    """Give what to print for a name: all of it, or 200 characters with `…` for what is left out.

    The end stays, because names that begin alike often differ there.
    """
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    if len(name) <= _LONGEST:
        return printable(name)
    start = name[: _LONGEST - _KEPT_AT_END - 1]
    return f"{printable(start)}…{printable(name[-_KEPT_AT_END:])}"


def code_points(name: str, other: str) -> str | None:
    """Say which code points differ between two names that look alike: "U+00E9 against U+…".

    Of several places it is the first. None where the difference is in ASCII, which shows.
    """
    at = next(
        (i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b),
        min(len(name), len(other)),
    )
    mine, others = _cluster(name, at), _cluster(other, at)
    if (mine + others).isascii():
        return None
    return f"{_points(mine)} against {_points(others)}"


def _cluster(name: str, at: int) -> str:
    """Give a character and what combines with it: accents, or the vowel and coda of Hangul."""
    import unicodedata

    end = at + 1
    while end < len(name) and (
        unicodedata.combining(name[end]) or "\u1160" <= name[end] <= "\u11ff"
    ):
        end += 1
    return name[at:end]


def _points(text: str) -> str:
    if not text:
        return "nothing"
    more = " …" if len(text) > 8 else ""
    return " ".join(f"U+{ord(char):04X}" for char in text[:8]) + more
