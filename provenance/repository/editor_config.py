"""Whether .editorconfig makes editors change evidence when they save it."""

from __future__ import annotations

import configparser
from collections.abc import Iterator, Sequence
from pathlib import Path

from .hazard import Hazard
from .places import Place

FILE = ".editorconfig"
_CHANGES = ("insert_final_newline", "trim_trailing_whitespace", "end_of_line", "charset")


def editor_hazards(root: Path, places: Sequence[Place]) -> Iterator[Hazard]:
    """Say where every file's section tells editors to change files and the evidence's does not."""
    general = _settings(root / FILE)
    if general is None:
        return
    active = [key for key in _CHANGES if general.get("*", {}).get(key, "unset") not in _OFF]
    for place in places:
        section = f"{place.folder}/**"
        undone = general.get(section, {})
        left = [key for key in active if undone.get(key) not in _OFF]
        if left:
            yield Hazard(
                place.folder,
                FILE,
                len(place.files),
                f"editors that follow `{', '.join(left)}` change a file when they save it",
                f"[{section}] " + ", ".join(f"{key} = unset" for key in left),
                writable=False,
            )


_OFF = {"unset", "false"}


def _settings(path: Path) -> dict[str, dict[str, str]] | None:
    if not path.is_file():
        return None
    parser = configparser.ConfigParser(interpolation=None, strict=False, default_section="\0")
    try:
        parser.read_string("[\1]\n" + path.read_text("utf-8", "replace"))
    except configparser.Error:
        return None
    return {name: {k.lower(): v.lower() for k, v in parser[name].items()} for name in parser}
