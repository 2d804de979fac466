"""Open a checkpoint that a person names: a file, a folder, a dump, or files of a process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

from ..errors import HeaderError, NotPermitted, Unusable
from ..records.names import decoded, printable
from .checkpoint import Checkpoint, Shard
from .checkpoint_files import FoundFiles, find_files
from .folder_listing import Listing, list_tree
from .formats.safetensors import read_header
from .json_files import CONFIG_LIMIT, read_object
from .operands import names_a_process, open_in_process
from .ranges import Range
from .readable import FileReadable, Readable
from .routes import Wanted

_INDEX_SUFFIX = ".safetensors.index.json"
_ADAPTER_CONFIG = "adapter_config.json"
_MODEL_CONFIG = "config.json"


@contextlib.contextmanager
def open_checkpoint(
    operand: str, wanted: Wanted = Wanted.AUTO
) -> Generator[Checkpoint, None, None]:
    """Open what is named for reading until the context ends.

    A path is a safetensors file (whole, `.partial` or the temporary file of a killed writer), an
    index, or a folder that holds one checkpoint, itself or below. `PID:GLOB` names files that a
    process holds; several are the shards of one checkpoint. A header that breaks a rule is kept as
    its shard's fault. Raises Unusable, NothingFound, NotPermitted, ProcessGone.
    """
    with contextlib.ExitStack() as stack:
        if names_a_process(operand):
            yield _of_process(operand, wanted, stack)
            return
        path = Path(operand)
        label = printable(os.fsencode(path))
        if path.is_dir():
            yield _of_files(label, find_files(path), stack)
        elif path.name.endswith(_INDEX_SUFFIX) and path.is_file():
            yield _of_files(label, find_files(path.parent, path.name), stack)
        else:
            yield _of_files(label, _single(path), stack)


def _of_process(operand: str, wanted: Wanted, stack: contextlib.ExitStack) -> Checkpoint:
    opened = stack.enter_context(open_in_process(operand, wanted))
    paths = [decoded(candidate.name) for candidate, _ in opened]
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    names = [os.path.relpath(path, folder or ".") for path in paths]
    repeated = sorted({name for name in names if names.count(name) > 1})
    return Checkpoint(
        label=printable(operand),
        shards=tuple(
            _shard(name, readable) for name, (_, readable) in zip(names, opened, strict=True)
        ),
        problems=tuple(
            f"{printable(name)} is held more than once, as different files." for name in repeated
        ),
    )


def _single(path: Path) -> FoundFiles:
    strays: list[str] = []
    # What lies beside is a help only: a folder that cannot be listed does not hinder.
    with contextlib.suppress(Unusable, NotPermitted):
        beside: Listing = list_tree(path.parent, deepest=0)[0]
        strays = [found.name for found in (*beside.temporaries.values(), *beside.pickles)]
    return FoundFiles(
        folder=path.parent,
        shards={path.name.removesuffix(".partial"): path},
        config_folders=(path.parent,),
        strays=tuple(sorted(set(strays) - {path.name})),
    )


def _of_files(label: str, found: FoundFiles, stack: contextlib.ExitStack) -> Checkpoint:
    shards: list[Shard] = []
    for name, path in sorted(found.shards.items()):
        file = stack.enter_context(FileReadable(path))
        shards.append(_shard(name, file, file.holes()))
    problems = list(found.problems)
    return Checkpoint(
        label=label,
        shards=tuple(shards),
        index=found.index,
        adapter_config=_config(found.config_folders, _ADAPTER_CONFIG, problems),
        model_config=_config(found.config_folders, _MODEL_CONFIG, problems),
        folder=found.folder,
        strays=found.strays,
        problems=tuple(problems),
    )


def _shard(name: str, readable: Readable, holes: tuple[Range, ...] = ()) -> Shard:
    try:
        return Shard(name, readable, read_header(readable.read, readable.size), None, holes)
    except HeaderError as fault:
        return Shard(name, readable, None, fault, holes)


def _config(folders: Iterable[Path], name: str, problems: list[str]) -> Mapping[str, object] | None:
    """Read the first configuration file of a name; those that differ from it are a problem."""
    first: Mapping[str, object] | None = None
    for folder in folders:
        path = folder / name
        if not os.path.lexists(path):
            continue
        try:
            found = read_object(path, CONFIG_LIMIT)
        except (Unusable, NotPermitted) as error:
            problems.append(error.message)
            continue
        if first is None:
            first = found
        elif found != first:
            problems.append(f"{printable(os.fsencode(path))} differs from that of other ranks.")
    return first
