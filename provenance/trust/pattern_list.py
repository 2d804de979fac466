"""Lists of patterns as OpenSSH has them (ssh_config(5), PATTERNS): `*@lab,!guest@*`."""

from __future__ import annotations

LONGEST = 1022  # bytes of one pattern; ssh lets a list with a longer one match nothing


def too_long(patterns: str) -> bool:
    """Tell whether a pattern of the list is longer than ssh takes."""
    return any(len(_bytes(each.removeprefix("!"))) > LONGEST for each in patterns.split(","))


def is_literal(pattern: str) -> bool:
    """Tell whether a pattern stands for nothing but itself."""
    return bool(pattern) and not set(pattern) & set("*?!")


def matches(text: str, patterns: str) -> bool:
    """Tell whether a pattern fits and no negated one does. Case counts; `?` is one byte."""
    subject = _bytes(text)
    positive = False
    for pattern in patterns.split(",") if patterns else ():
        negated = pattern.startswith("!")
        if _fits(subject, _bytes(pattern.removeprefix("!"))):
            if negated:
                return False
            positive = True
    return positive


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _fits(subject: bytes, pattern: bytes) -> bool:
    at = wanted = 0
    star, resume = -1, 0
    while at < len(subject):
        sign = pattern[wanted : wanted + 1]
        if sign == b"*":
            star, resume = wanted, at
            wanted += 1
        elif sign and sign in (b"?", subject[at : at + 1]):
            at += 1
            wanted += 1
        elif star >= 0:  # the last star takes one byte more
            resume += 1
            at, wanted = resume, star + 1
        else:
            return False
    return not pattern[wanted:].strip(b"*")
