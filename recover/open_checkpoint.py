"""Open a checkpoint that a person names: a file, a folder, a dump, or files of a process."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path

from ..errors import HeaderError, NothingFound, NotPermitted, Unusable
from ..records.names import decoded, printable
from .checkpoint import Checkpoint, JsonFault, Shard
from .checkpoint_files import FoundFiles, are_ranks, family_of, find_files
from .folder_listing import Listing, list_tree
from .formats.safetensors import read_header
from .json_files import CONFIG_LIMIT, gives, read_object
from .ranges import Range
from .readable import FileReadable, Readable
from .routes import Wanted

_INDEX_SUFFIX = ".safetensors.index.json"
_PROCESS = re.compile(r"[0-9]{1,10}:.+", re.DOTALL)
_ADAPTER = "adapter_model.safetensors"
_ADAPTER_CONFIG = "adapter_config.json"
_MODEL_CONFIG = "config.json"
_SHOWN = 5


@contextlib.contextmanager
def open_checkpoint(
    operand: str, wanted: Wanted = Wanted.AUTO
) -> Generator[Checkpoint, None, None]:
    """Open what is named for reading until the context ends.

    A path is a safetensors file (whole, `.partial` or the temporary file of a killed writer), an
    index, or a folder that holds one checkpoint, itself or below. `PID:GLOB` names files that a
    process holds; several are the shards of one checkpoint. A header that breaks a rule is kept as
    its shard's fault. Raises Unusable, NotPermitted, ProcessGone.
    """
    with contextlib.ExitStack() as stack:
        if _PROCESS.fullmatch(operand) and not os.path.lexists(operand):
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
    # What looks into processes takes as long to import as all the rest.
    from .operands import open_in_process

    try:
        opened = stack.enter_context(open_in_process(operand, wanted))
    except NothingFound as error:  # an operand that names nothing is no finding
        raise Unusable(error.message, remedy=error.remedy) from None
    paths = [decoded(candidate.name) for candidate, _ in opened]
    _demand_one(operand, paths)
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


def _demand_one(operand: str, paths: Iterable[str]) -> None:
    """Refuse files of several checkpoints: of several folders but those of ranks, or families."""
    folders: dict[str, set[str]] = {}
    for path in paths:
        folder, name = os.path.split(path)
        folders.setdefault(folder, set()).add(family_of(name))
    several = sorted(folders) if len(folders) > 1 and not are_ranks(map(Path, folders)) else []
    several += sorted(f"{f}/{name}" for f, names in folders.items() for name in names
                      if len(names) > 1)  # fmt: skip
    if several:
        listed = ", ".join(printable(each) for each in several[:_SHOWN])
        raise Unusable(
            f"{printable(operand)} fits the files of several checkpoints: {listed}"
            f"{', …' if several[_SHOWN:] else ''}.",
            remedy="Make the glob fit one, by its whole path if need be.",
        )


def _single(path: Path) -> FoundFiles:
    strays: list[str] = []
    # What lies beside is a help only: a folder that cannot be listed does not hinder.
    with contextlib.suppress(Unusable, NotPermitted):
        beside: Listing = list_tree(path.parent, deepest=0)[0]
        strays = [found.name for found in (*beside.temporaries.values(), *beside.pickles)]
    name = path.name.removesuffix(".partial")
    return FoundFiles(
        folder=path.parent,
        shards={name: path},
        config_folders=(path.parent,),
        of_adapter=name == _ADAPTER or not os.path.lexists(path.parent / _ADAPTER),
        strays=tuple(sorted(set(strays) - {path.name})),
    )


def _of_files(label: str, found: FoundFiles, stack: contextlib.ExitStack) -> Checkpoint:
    shards: list[Shard] = []
    for name, path in sorted(found.shards.items()):
        file = stack.enter_context(FileReadable(path))
        shards.append(_shard(name, file, file.holes()))
    problems = list(found.problems)
    faults: list[JsonFault] = []
    folders = found.config_folders if found.of_adapter else ()
    adapter_config = _config(folders, _ADAPTER_CONFIG, problems, faults)
    return Checkpoint(
        label=label,
        shards=tuple(shards),
        index=found.index,
        adapter_config=adapter_config,
        model_config=_config(found.config_folders, _MODEL_CONFIG, problems, []),
        folder=found.folder,
        strays=found.strays,
        problems=tuple(problems),
        unread=found.unread,
        index_faults=found.index_faults,
        config_faults=tuple(faults),
    )


def _shard(name: str, readable: Readable, holes: tuple[Range, ...] = ()) -> Shard:
    try:
        return Shard(name, readable, read_header(readable.read, readable.size), None, holes)
    except HeaderError as fault:
        return Shard(name, readable, None, fault, holes)


def _config(
    folders: Iterable[Path], name: str, problems: list[str], faults: list[JsonFault]
) -> Mapping[str, object] | None:
    """Read the first configuration file of a name; those that differ from it are a problem.

    `faults` gets those of files that cannot be read, which are problems as well.
    """
    first: Mapping[str, object] | None = None
    for folder in folders:
        path = folder / name
        if not os.path.lexists(path):
            continue
        try:
            found = read_object(path, CONFIG_LIMIT)
        except (Unusable, NotPermitted) as error:
            problems.append(error.message)
            faults.append(JsonFault(name, error.message, gives(path, "peft_type")))
            continue
        if first is None:
            first = found
        elif found != first:
            problems.append(f"{printable(os.fsencode(path))} differs from that of other ranks.")
    return first
