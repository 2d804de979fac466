"""Which pre-commit hooks would edit evidence: the configuration's `exclude` and `files` decide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from ...errors import Unusable
from ...records.names import printable
from .hazard import Hazard
from .places import Place

FILE = ".pre-commit-config.yaml"
_LIMIT = 1 << 20
# Hooks that write to the files they are given, and what they do to them.
_EDITORS = {
    "end-of-file-fixer": "edits the final newline",
    "trailing-whitespace": "strips trailing spaces",
    "mixed-line-ending": "rewrites line endings",
    "fix-byte-order-marker": "removes the byte order mark",
    "pretty-format-json": "re-serialises JSON",
    "pretty-format-yaml": "re-serialises YAML",
    "pretty-format-toml": "re-serialises TOML",
    "sort-simple-yaml": "sorts YAML",
    "file-contents-sorter": "sorts lines",
    "requirements-txt-fixer": "sorts requirements",
    "double-quote-string-fixer": "rewrites strings",
    "fix-encoding-pragma": "edits the first line",
    "remove-tabs": "replaces tabs",
    "remove-crlf": "rewrites line endings",
    "black": "reformats Python",
    "black-jupyter": "reformats notebooks",
    "isort": "sorts imports",
    "ruff": "may fix Python",
    "ruff-check": "may fix Python",
    "ruff-format": "reformats Python",
    "yapf": "reformats Python",
    "autopep8": "reformats Python",
    "pyupgrade": "rewrites Python",
    "nbstripout": "strips notebooks",
    "prettier": "reformats JSON, YAML and Markdown",
    "mdformat": "reformats Markdown",
    "markdownlint-fix": "edits Markdown",
    "yamlfmt": "reformats YAML",
    "clang-format": "reformats C++",
    "shfmt": "reformats shell scripts",
    "codespell": "may correct words",
    "typos": "may correct words",
    "insert-license": "adds a header",
}
# What a hook of that name only ever looks at, by its own manifest (`types` in pre-commit-hooks).
_ENDINGS = {
    "black": (".py", ".pyi"),
    "black-jupyter": (".ipynb", ".py", ".pyi"),
    "isort": (".py", ".pyi"),
    "ruff": (".ipynb", ".py", ".pyi"),
    "ruff-check": (".ipynb", ".py", ".pyi"),
    "ruff-format": (".ipynb", ".py", ".pyi"),
    "yapf": (".py",),
    "autopep8": (".py",),
    "pyupgrade": (".py", ".pyi"),
    "nbstripout": (".ipynb",),
    "double-quote-string-fixer": (".py",),
    "fix-encoding-pragma": (".py",),
    "pretty-format-json": (".json",),
    "pretty-format-yaml": (".yaml", ".yml"),
    "pretty-format-toml": (".toml",),
    "mdformat": (".md",),
    "markdownlint-fix": (".md",),
    "yamlfmt": (".yaml", ".yml"),
    "clang-format": (".c", ".cc", ".cpp", ".cu", ".cuh", ".h", ".hpp"),
    "shfmt": (".sh",),
}


def pre_commit_hazards(root: Path, places: Sequence[Place]) -> Iterator[Hazard]:
    """Say which hooks would edit which place. Raises Unusable for a configuration that is none."""
    path = root / FILE
    if not path.is_file():
        return
    configuration = _read(path)
    pattern = {place: f"^{re.escape(place.folder)}/" for place in places}
    for hook in _hooks(configuration):
        for place in places:
            taken = [n for n in place.files if _takes(configuration, n) and _takes(hook, n)]
            name = str(hook.get("id"))
            endings = _ENDINGS.get(name)
            if endings is not None and "files" not in hook:
                taken = [n for n in taken if n.endswith(endings)]
            if taken:
                yield Hazard(
                    place.folder,
                    FILE,
                    len(taken),
                    f"the hook `{printable(name)}` {_EDITORS[name]}",
                    f"exclude: {_excluding(configuration, pattern[place])}",
                    writable=False,
                )


def _read(path: Path) -> Mapping[str, object]:
    import yaml

    data = path.read_bytes()
    if len(data) > _LIMIT:
        raise Unusable(f"{FILE} has more than {_LIMIT:,} bytes.", remedy="Check that file.")
    try:
        found: object = yaml.safe_load(data)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise Unusable(
            f"{FILE} is not valid YAML.", remedy="`pre-commit validate-config` says where."
        ) from None
    if not isinstance(found, dict):
        raise Unusable(f"{FILE} holds no mapping.", remedy="Run `pre-commit validate-config`.")
    return cast("Mapping[str, object]", found)


def _hooks(configuration: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    for repository in _mappings(configuration.get("repos")):
        for hook in _mappings(repository.get("hooks")):
            if hook.get("id") in _EDITORS:
                yield hook


def _mappings(value: object) -> Iterator[Mapping[str, object]]:
    for each in cast("list[object]", value) if isinstance(value, list) else ():
        if isinstance(each, dict):
            yield cast("Mapping[str, object]", each)


def _takes(where: Mapping[str, object], name: str) -> bool:
    """Tell whether `files` and `exclude` let a file through, as pre-commit's `re.search` does."""
    files, exclude = where.get("files"), where.get("exclude")
    if isinstance(files, str) and files and not _search(files, name):
        return False
    return not (isinstance(exclude, str) and exclude and _search(exclude, name))


def _search(pattern: str, name: str) -> bool:
    import regex

    try:
        return regex.search(pattern, name, timeout=1) is not None
    except (regex.error, TimeoutError):
        raise Unusable(
            f"{FILE} has a pattern that cannot be applied: {printable(pattern[:80])}.",
            remedy="`pre-commit validate-config` says where.",
        ) from None


def _excluding(configuration: Mapping[str, object], pattern: str) -> str:
    present = configuration.get("exclude")
    return f"(?:{present})|{pattern}" if isinstance(present, str) and present else pattern
