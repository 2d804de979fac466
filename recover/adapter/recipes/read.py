"""Read what a training recipe states about a LoRA adapter, in the terms of PEFT's LoraConfig.

The text is never executed, and what it refers to (files, the environment) is never looked at. What
cannot be told from the text alone is a note, never a guess.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ....errors import Unusable
from ....records.names import printable
from ...formats.safetensors import looks_like, read_header
from ...readable import FileReadable
from ..statement import Recipe
from .document import (
    MAX_BYTES,
    OWN_CONFIGURATIONS,
    Document,
    Entry,
    Kind,
    Node,
    Pairs,
    flatten,
    too_large,
)
from .json_text import parse_json
from .python_text import parse_python
from .reef import with_commands
from .registry import known_names, named, recognise
from .shell_text import parse_shell
from .table import Reading, Trainer
from .toml_text import parse_toml
from .yaml_text import parse_yaml

_PEFT_VERSION = re.compile(r"(?m)^-?[ \t]*PEFT:?[ \t]+v?(\d+\.\d+(?:\.\w{1,9}){0,3})[ \t]*$")
_FENCED = re.compile(r"(?ms)^```.*?^```")


def read_recipe(path: Path, *, trainer: str | None = None, version: str | None = None) -> Recipe:
    """Read a recipe's file; `trainer` and `version` name what the text itself does not tell.

    Takes YAML, JSON, TOML, Python, shell scripts and launch lines, model cards, and the metadata of
    a safetensors file. Raises Unusable for what is no recipe, breaks its format's rules, is too
    large, or holds values that its field cannot have, and NotPermitted.
    """
    label = printable(os.fsencode(path))
    with FileReadable(path) as file:
        if path.suffix == ".safetensors" or looks_like(file.read(0, 64), file.size):
            header = read_header(file.read, file.size)
            document = _metadata(header.metadata or {}, _name(path))
            return _recipe(document, label, trainer, version)
        raw = file.read(0, MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise too_large(label, f"more than {MAX_BYTES >> 20} MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unusable(
            f"{label} is not text in UTF-8.", remedy="Name the recipe that the run was made with."
        ) from None
    return read_recipe_text(text, label, trainer, version)


def read_recipe_text(
    text: str, name: str, trainer: str | None = None, version: str | None = None
) -> Recipe:
    """Read a recipe's text; `name` ends as the file's would and is what origins begin with."""
    label = printable(name)
    if len(text) > MAX_BYTES:
        raise too_large(label, f"more than {MAX_BYTES >> 20} MiB")
    if "\0" in text:
        raise Unusable(
            f"{label} is not text.", remedy="Name the recipe that the run was made with."
        )
    fallback: Document | None = None
    for document in _documents(text, _name(Path(name))):
        if recognise(document):
            return _recipe(document, label, trainer, version)
        fallback = fallback or document
    if trainer is not None and fallback is not None:
        return _recipe(fallback, label, trainer, version)
    raise _unknown(label, fallback)


def _name(path: Path) -> str:
    return printable(os.fsencode(path.name))


def _recipe(document: Document, label: str, trainer: str | None, version: str | None) -> Recipe:
    found: Trainer | None = named(trainer, document) if trainer else recognise(document)
    if found is None:
        raise _unknown(label, document)
    sure = trainer is not None or found.owns(document)
    reading = Reading(document, found, version, sure=sure)
    reading.read()
    return Recipe(
        label=label,
        trainer=found.name,
        version=version or found.version or None,
        statements=tuple(reading.statements),
        notes=tuple(reading.notes),
    )


def _unknown(label: str, document: Document | None) -> Unusable:
    if document and (document.has("architectures") or document.has("_name_or_path")):
        return Unusable(
            f"{label} is a model's config.json, which says nothing of an adapter.",
            remedy="Give it as `--base`, and as `--recipe` what the adapter was trained with.",
        )
    return Unusable(
        f"{label} is no recipe that is recognised; known are those of {known_names()}.",
        remedy="State what you know instead: `--set r=RANK --set lora_alpha=ALPHA --set "
        "base_model_name_or_path=OWNER/NAME`.",
    )


def _documents(text: str, name: str) -> Iterator[Document]:
    """Parse by the name's ending, or, where it tells nothing, by each format that may fit."""
    suffix = Path(name).suffix.lower()
    if suffix in _FORMATS:
        yield from _FORMATS[suffix](text, name)
        return
    tries = (_json,) if text.lstrip().startswith("{") else (_toml, _yaml, _python, _shell)
    for parse in tries:
        try:
            found = [*parse(text, name)]
        except Unusable:
            if len(tries) == 1:
                raise
            continue
        yield from (document for document in found if document.entries or document.words)


def _json(text: str, name: str) -> Iterator[Document]:
    yield _flat(Kind.JSON, name, text, parse_json(text, name))


def _toml(text: str, name: str) -> Iterator[Document]:
    yield _flat(Kind.TOML, name, text, parse_toml(text, name))


def _yaml(text: str, name: str) -> Iterator[Document]:
    root = parse_yaml(text, name)
    if root is not None:
        document = _flat(Kind.YAML, name, text, root)
        yield with_commands(replace(document, complete=_stands_alone(document)))


def _python(text: str, name: str) -> Iterator[Document]:
    yield parse_python(text, name)


def _shell(text: str, name: str) -> Iterator[Document]:
    yield parse_shell(text, name)


def _card(text: str, name: str) -> Iterator[Document]:
    """Read the front matter and the version that PEFT notes; code in a card is not trusted."""
    lines = text.replace("\r\n", "\n").split("\n")
    front = "\n"
    if lines[0].strip() == "---" and "---" in [line.rstrip() for line in lines[1:]]:
        end = [line.rstrip() for line in lines].index("---", 1)
        front = "\n".join(["", *lines[1:end]])
    root = parse_yaml(front, name)
    entries = flatten(root, name) if root else ()
    prose = _FENCED.sub(lambda found: "\n" * found[0].count("\n"), "\n".join(lines))
    noted = _PEFT_VERSION.search(prose)
    if noted:
        line = prose.count("\n", 0, noted.start()) + 1
        pairs = parse_json(f'{{"peft_version": "{noted[1]}"}}', name)
        entries += tuple(replace(entry, line=line) for entry in flatten(pairs, name))
    yield Document(name, Kind.CARD, entries)


def _flat(kind: Kind, name: str, text: str, root: Node) -> Document:
    return Document(name, kind, flatten(root, name), lines=tuple(text.split("\n")))


def _stands_alone(document: Document) -> bool:
    """Tell whether a Hydra configuration builds on none but the trainer's own."""
    for entry in document.raw("defaults"):
        bases = entry.value if isinstance(entry.value, list) else [entry.value]
        if not all(base in OWN_CONFIGURATIONS for base in bases if isinstance(base, str)):
            return False
    return True


def _metadata(metadata: Mapping[str, str], name: str) -> Document:
    members = tuple((key, Node(1, 1, value)) for key, value in metadata.items())
    entries: list[Entry] = []
    for entry in flatten(Node(1, 1, Pairs(members)), name):
        entries.append(replace(entry, shown=f"__metadata__.{entry.shown}"))
        if entry.key == "lora_adapter_metadata" and isinstance(entry.value, str):
            for inner in flatten(parse_json(entry.value, name), name):
                key, shown = f"{entry.key}.{inner.key}", f"{entry.shown}.{inner.shown}"
                entries.append(replace(inner, key=key, shown=f"__metadata__.{shown}", line=1))
    return Document(name, Kind.TENSORS, tuple(entries))


_FORMATS: dict[str, Callable[[str, str], Iterator[Document]]] = {
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _json,
    ".toml": _toml,
    ".py": _python,
    ".sh": _shell,
    ".bash": _shell,
    ".zsh": _shell,
    ".slurm": _shell,
    ".sbatch": _shell,
    ".md": _card,
}
