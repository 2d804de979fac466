"""A page of an error, or another document, that was saved in place of the file."""

from __future__ import annotations

from ..appearance import Appearance, appearance
from .subject import Subject

_LARGEST = {Appearance.HTML: 1 << 20, Appearance.XML: 1 << 20, Appearance.JSON: 4096}
_EXPECTED = {
    Appearance.HTML: (".html", ".htm", ".xhtml", ".md", ".svg", ".xml"),
    Appearance.XML: (".xml", ".svg", ".xhtml", ".html", ".htm", ".md", ".plist"),
    Appearance.JSON: (".json", ".jsonl", ".ipynb", ".sarif", ".map", ".index", ".lock", ".cff"),
}


def error_page(subject: Subject) -> str | None:
    """Explain a small document of a kind that the name does not promise."""
    found = appearance(subject.head)
    endings = _EXPECTED.get(found) if found is not None else None
    name = subject.line.name.lower()
    if found is None or endings is None or name.endswith(endings):
        return None
    size = subject.member.size
    if size > _LARGEST[found] or size == subject.listed_size:
        return None
    return (
        f"It is {found.value}, perhaps an error that a server answered with: look into it, "
        "and get the file again."
    )
