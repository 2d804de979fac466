"""A verification as workflow commands of GitHub Actions: annotations at the files.

What is printed is read as commands by the runner: names and messages are escaped, so that none
can end its line, its command or its property.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...records.names import printable
from ..finding import Finding, Gravity
from .meaning import meaning_of
from .place import path_of
from .result import Verdict, Verification
from .text import headline

_LEVELS = {
    Gravity.NOTE: "notice",
    Gravity.UNTRUSTED: "warning",
    Gravity.INCOMPLETE: "error",
    Gravity.FAILED: "error",
}


def to_github(result: Verification) -> str:
    """Write the commands, the gravest first: the runner shows only ten of a kind."""
    return "\n".join([*_lines(result), ""])


def _lines(result: Verification) -> Iterator[str]:
    for finding in sorted(result.findings, key=lambda finding: -finding.gravity):
        yield _command(result, finding)
    level = "notice" if result.verdict is Verdict.VERIFIED else "error"
    yield f"::{level} title={_property(f'Evidence {result.verdict.value}')}::" + _data(
        headline(result)
    )


def _command(result: Verification, finding: Finding) -> str:
    level = _LEVELS[finding.gravity] if result.counts(finding) else "notice"
    where = printable(path_of(result, finding.path))
    title = meaning_of(finding.kind).title
    said = "" if finding.path is None else f"{printable(finding.path)}: "
    return (
        f"::{level} file={_property(where)},title={_property(title)}::"
        f"{_data(said + finding.diagnosis)}"
    )


def _data(text: str) -> str:
    for character, escape in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(character, escape)
    return text


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
