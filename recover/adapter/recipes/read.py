"""Read what a training recipe states about a LoRA adapter, in the terms of PEFT's LoraConfig.

The text is never executed, and what it refers to (files, the environment) is never looked at, but
for whether the base that it names is a path that exists. What cannot be told from the text alone is
a note, never a guess.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ....errors import Unusable
from ....records.names import printable
from ...formats.safetensors import looks_like, read_header
from ...readable import FileReadable
from ..statement import Recipe, Statement
from .alternatives import either
from .document import (
    MAX_BYTES,
    OWN_CONFIGURATIONS,
    Document,
    Entry,
    Kind,
    Node,
    Pairs,
    builds_on,
    flatten,
    too_large,
)
from .identity import exists_near
from .json_text import parse_json
from .notebook import joined_cells, without_commands
from .python_text import parse_python
from .reading import Reading
from .reef import with_commands
from .registry import known_names, named, recognise
from .shell_text import parse_shell
from .table import Gate, Trainer
from .toml_text import parse_toml
from .yaml_text import parse_stream, parse_yaml

_PEFT_VERSION = re.compile(r"(?m)^-?[ \t]*PEFT:?[ \t]+v?(\d+\.\d+(?:\.\w{1,9}){0,3})[ \t]*$")
_MAX_RUNS = 200
# Keys that name configurations which are read first.
_INCLUDING = frozenset(
    "toml_files _base_ __base__ base_config extends include includes inherits inherit_from".split()
)
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
            return _recipe([document], label, trainer, version)
        raw = file.read(0, MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise too_large(label, f"more than {MAX_BYTES >> 20} MiB")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unusable(
            f"{label} is not text in UTF-8.", remedy="Name the recipe that the run was made with."
        ) from None
    recipe = read_recipe_text(text, label, trainer, version)
    return replace(
        recipe, statements=tuple(_judged(each, path.parent) for each in recipe.statements)
    )


def _judged(statement: Statement, folder: Path) -> Statement:
    """Mark a base that is a path: by its form, or since it exists near the recipe."""
    value = statement.value
    if statement.field != "base_model_name_or_path" or not isinstance(value, str):
        return statement
    path = value.startswith(("/", "./", "../", "~")) or exists_near(value, folder)
    return replace(statement, local=path)


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
    found: list[Document] = []
    for documents in _documents(text, _name(Path(name))):
        if any(recognise(document) for document in documents):
            return _recipe(documents, label, trainer, version)
        found = found or [*documents]
    if trainer is not None and found:
        return _recipe(found, label, trainer, version)
    raise _unknown(label, found[0] if found else None)


def _name(path: Path) -> str:
    return printable(os.fsencode(path.name))


def _recipe(
    documents: Sequence[Document], label: str, trainer: str | None, version: str | None
) -> Recipe:
    """Read a document, or a script's commands, of which any may have made the adapter."""
    trained = _trained(documents, trainer)
    if not trained:
        raise _unknown(label, documents[0] if documents else None)
    if len(trained) > _MAX_RUNS:
        raise too_large(label, f"more than {_MAX_RUNS} commands that train")
    readings: list[Reading] = []
    for document, found in trained:
        sure = trainer is not None or found.owns(document)
        readings.append(Reading(document, found, version, sure=sure))
        readings[-1].read()
    readings = _possible(readings)
    table = readings[0].trainer
    statements, notes = either(
        [reading.statements for reading in readings],
        [f"{reading.document.name}:{reading.document.line}" for reading in readings],
    )
    notes = [*(note for reading in readings for note in reading.notes), *notes]
    return Recipe(
        label=label,
        trainer=table.name,
        version=version or table.version or None,
        statements=tuple(_once(statements)),
        notes=tuple(dict.fromkeys(notes)),
    )


def _possible(readings: list[Reading]) -> list[Reading]:
    """Leave out runs that surely have no LoRA, if others may have made the adapter."""
    on = any(reading.on is Gate.ON for reading in readings)
    kept = [
        reading
        for reading in readings
        if reading.on is Gate.ON
        or (reading.on is Gate.SILENT and (not on or not reading.document.complete))
    ]
    return kept or readings


def _trained(documents: Sequence[Document], trainer: str | None) -> list[tuple[Document, Trainer]]:
    """Choose the documents that are of a trainer, those that surely are before others."""
    pairs = (
        (document, named(trainer, document) if trainer else recognise(document))
        for document in documents
        if document.entries or document.words or len(documents) == 1
    )
    known = [(document, found) for document, found in pairs if found is not None]
    if len(known) < 2:
        return known
    for fits in (Trainer.owns, Trainer.knows, _has_a_key):
        chosen = [(document, found) for document, found in known if fits(found, document)]
        called = [(document, found) for document, found in chosen if document.called]
        if chosen:
            return called or chosen
    return known[:1]


def _has_a_key(trainer: Trainer, document: Document) -> bool:
    return any(document.has(key.key) for section in trainer.sections for key in section.keys)


def _once(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Leave out what several commands say in the same place or by the same default."""
    seen: set[str] = set()
    for statement in statements:
        if repr(statement) not in seen:
            seen.add(repr(statement))
            yield statement


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


def _documents(text: str, name: str) -> Iterator[Sequence[Document]]:
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
        for documents in found:
            if any(document.entries or document.words for document in documents):
                yield documents


def _json(text: str, name: str) -> Iterator[Sequence[Document]]:
    yield [_flat(Kind.JSON, name, text, parse_json(text, name))]


def _toml(text: str, name: str) -> Iterator[Sequence[Document]]:
    yield [_flat(Kind.TOML, name, text, parse_toml(text, name))]


def _yaml(text: str, name: str) -> Iterator[Sequence[Document]]:
    root, more = parse_stream(text, name)
    if root is None:
        return
    document = with_commands(_flat(Kind.YAML, name, text, root))
    if more:
        gap = f"{name} holds further YAML documents, which are not read: no defaults are used"
        document = replace(document, gaps=(*document.gaps, gap))
    yield [document]


def _python(text: str, name: str) -> Iterator[Sequence[Document]]:
    code, commands = without_commands(text)
    yield [parse_python(code, name), *(parse_shell(commands, name) if commands else ())]


def _notebook(text: str, name: str) -> Iterator[Sequence[Document]]:
    cells, lines = joined_cells(parse_json(text, name))
    for documents in _python(cells, name):
        yield [_placed(document, lines) for document in documents]


def _placed(document: Document, lines: Sequence[int]) -> Document:
    """Give entries the lines of the file, in place of those of the cells' joined text."""
    entries = tuple(
        replace(entry, line=lines[min(entry.line, len(lines)) - 1]) for entry in document.entries
    )
    return replace(document, entries=entries)


def _shell(text: str, name: str) -> Iterator[Sequence[Document]]:
    yield parse_shell(text, name)


def _card(text: str, name: str) -> Iterator[Sequence[Document]]:
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
    yield [Document(name, Kind.CARD, entries)]


def _flat(kind: Kind, name: str, text: str, root: Node) -> Document:
    document = Document(name, kind, flatten(root, name), lines=tuple(text.split("\n")))
    gaps = tuple(builds_on(name, each) for each in dict.fromkeys(_bases(document)))
    return replace(document, gaps=gaps)


def _bases(document: Document) -> Iterator[str]:
    """Name what a configuration builds on, but for what its trainer brings."""
    for entry in document.entries:
        key = entry.key.rpartition(".")[2]
        whole = entry.key == key and isinstance(entry.value, str)
        if key in _INCLUDING or (key == "defaults" and (whole or isinstance(entry.value, list))):
            bases = entry.value if isinstance(entry.value, list) else [entry.value]
            for base in bases:
                if base and not (isinstance(base, str) and base in OWN_CONFIGURATIONS):
                    yield printable(base)[:200] if isinstance(base, str) else entry.shown


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


_FORMATS: dict[str, Callable[[str, str], Iterator[Sequence[Document]]]] = {
    ".yaml": _yaml,
    ".yml": _yaml,
    ".json": _json,
    ".toml": _toml,
    ".py": _python,
    ".ipynb": _notebook,
    ".sh": _shell,
    ".bash": _shell,
    ".zsh": _shell,
    ".slurm": _shell,
    ".sbatch": _shell,
    ".md": _card,
}
