"""Take the Python out of notebooks, and apart from the commands that only a notebook runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .document import Node, Pairs

_COMMAND = re.compile(r"([ \t]*)[!%](.*)", re.DOTALL)
_ASSIGNED = re.compile(r"([ \t]*[A-Za-z_]\w*[ \t]*=[ \t]*)[!%].*", re.DOTALL | re.ASCII)


def without_commands(text: str) -> tuple[str, str]:
    """Blank the lines that begin with `!` or `%`; give the code, and the commands of `!` lines.

    Both keep the text's lines. The rest of a `%%` cell of another language ends at `# %%`, which
    exported notebooks have, or at an empty mark of the joined cells.
    """
    code: list[str] = []
    commands: list[str] = []
    continued = foreign = False
    for line in text.split("\n"):
        bare = line.lstrip()
        if bare.startswith(("# %%", "# In[")):
            foreign = False
        found = None if continued or foreign else _COMMAND.fullmatch(line)
        assigned = None if continued or foreign else _ASSIGNED.fullmatch(line)
        if bare.startswith("%%"):
            foreign = not bare.startswith(("%%time", "%%capture"))
        if continued or foreign:
            code.append("")
            commands.append(line if continued or not bare.startswith("%%") else "")
            continued = continued and line.endswith("\\")
        elif found:
            code.append(f"{found[1]}pass")
            commands.append(found[2] if bare.startswith("!") else "")
            continued = line.endswith("\\")
        else:
            code.append(f"{assigned[1]}..." if assigned else line)
            commands.append("")
    return "\n".join(code), "\n".join(commands) if any(commands) else ""


def joined_cells(root: Node) -> tuple[str, list[int]]:
    """Join a notebook's code cells; give the text, and for each of its lines that of the file."""
    lines: list[str] = []
    places: list[int] = []
    for cell in _members(root, "cells"):
        kind = next((node.value for node in _all(cell, "cell_type")), None)
        if kind != "code":
            continue
        lines.append("# %%")
        places.append(cell.line)
        for source in _all(cell, "source"):
            pieces = source.value if isinstance(source.value, tuple) else (source,)
            text = "".join(piece.value for piece in pieces if isinstance(piece.value, str))
            split = text.split("\n")
            lines += split
            places += [pieces[min(n, len(pieces) - 1)].line for n in range(len(split))]
    return "\n".join(lines), places or [1]


def _all(node: Node, key: str) -> Iterator[Node]:
    if isinstance(node.value, Pairs):
        yield from (value for name, value in node.value.pairs if name == key)


def _members(node: Node, key: str) -> Iterator[Node]:
    for value in _all(node, key):
        if isinstance(value.value, tuple):
            yield from value.value
