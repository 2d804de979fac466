"""The ways in which a list departs from the portable profile and is still understood."""

from __future__ import annotations

from enum import Enum


class Dialect(Enum):
    """One departure; the value completes "a line …"."""

    BYTE_ORDER_MARK = "begins with a byte order mark, at which sha256sum fails"
    CRLF = "ends with CR LF, at which busybox and shasum fail"
    NO_FINAL_NEWLINE = "has no newline at its end"
    COMMENT = "is a comment"
    BLANK = "is blank"
    LEADING_SPACE = "begins with spaces"
    ONE_SPACE = "has one space where two belong, at which busybox and shasum fail"
    TAB = "has a tab where two spaces belong, at which busybox and shasum fail"
    BINARY = "marks the file as binary with `*`"
    UPPER_CASE = "has upper-case digits, at which busybox fails"
    DOT_SLASH = "has `./` before the name"
    TAGGED = "is written as by `--tag`, at which busybox fails"
    OPENSSL = "is written as by `openssl dgst`, at which most tools fail"
    ESCAPED = "escapes characters of the name, at which busybox fails"
    AWKWARD_NAME = "has a name that some tools misread"
    OTHER_ALGORITHM = "gives another digest than SHA-256"
    REPEATED = "repeats an earlier one"
    FURTHER_DIGEST = "gives a further digest of a file; only the preferred one is checked"
    UNSORTED = "is not in the order of the bytes of the names"
