"""Open a base model that a person names: a config.json, a folder, a cache entry or a Hub id."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ...errors import HeaderError, NotPermitted, Unusable
from ...records.names import printable
from ...records.strict_json import Json
from ..checkpoint import Index
from ..checkpoint_files import FoundFiles, NoCheckpoint, find_files, incomplete_sets
from ..formats.safetensors import Header, coverage, read_header
from ..json_files import CONFIG_LIMIT, read_object
from ..readable import FileReadable
from .from_config import base_from_config
from .from_headers import Gathering, base_from_headers
from .hf_cache import HUB_ID, Snapshot, cached, entry_at, is_offline
from .hub import RemoteFiles, fetch
from .hub_requests import Unreachable
from .model import Base

_SUFFIX = ".safetensors"
_INDEX_SUFFIX = ".safetensors.index.json"
_CONFIG = "config.json"
_MARKS = (".lora_A.", ".lora_B.")


def open_base(operand: str, *, offline: bool | None = None) -> Base:
    """Learn what a base model consists of; no weights are read, and no torch is needed.

    A path is a config.json, a safetensors file, an index, or a folder with any of them, also one
    of the Hub's cache. Anything else of the form `org/name[@revision]` is a Hub id: from the Hub
    unless offline, else from the cache. Headers win over config.json for tensors. `offline` None
    means what the environment says. Raises Unusable, NotPermitted.
    """
    path = Path(operand)
    label = printable(os.fsencode(path))
    if path.is_dir():
        entry = entry_at(path)
        return _of_snapshot(entry, "from the cache") if entry else _of_folder(path, label)
    if path.name.endswith(_INDEX_SUFFIX) and path.is_file():
        found = find_files(path.parent, path.name)
        return _of_files(found, _config_at(path.parent), label)
    if path.name.endswith(".json") and path.is_file():
        return _of_config(read_object(path, CONFIG_LIMIT), label)
    if os.path.lexists(path):
        problems = incomplete_sets([path.name])
        found = FoundFiles(path.parent, {path.name: path}, problems=tuple(problems))
        return _of_files(found, _config_at(path.parent), label)
    named = HUB_ID.fullmatch(operand)
    if named is None:
        raise Unusable(
            f"{label} does not exist, and is no Hub id.",
            remedy="Name a config.json, a folder with safetensors, or a Hub id: org/name.",
        )
    return _of_hub(named[1], named[2], is_offline() if offline is None else offline)


def _of_hub(identity: str, revision: str | None, offline: bool) -> Base:
    """Ask the Hub, and where it cannot be reached the cache."""
    if not offline:
        try:
            return _of_remote(fetch(identity, revision))
        except (Unreachable, NotPermitted) as error:
            entry = cached(identity, revision)
            if entry is None:
                raise
            reason = "cannot be reached" if isinstance(error, Unreachable) else "refuses"
            return _of_snapshot(entry, f"from the cache: the Hub {reason}")
    entry = cached(identity, revision)
    if entry is None:
        raise Unusable(
            f"{printable(identity)} is neither a path nor in the cache, and the network is off.",
            remedy="Unset HF_HUB_OFFLINE, or name a folder or a config.json of the base.",
        )
    return _of_snapshot(entry, "from the cache")


def _of_snapshot(entry: Snapshot, how: str) -> Base:
    label = f"{printable(entry.identity)}@{entry.commit[:12]} ({how})"
    base = _of_folder(entry.folder, label)
    return replace(base, identity=entry.identity, revision=entry.commit, identity_hint=None)


def _of_folder(folder: Path, label: str) -> Base:
    config = _config_at(folder)
    if config is None and (folder / "adapter_config.json").is_file():
        raise _adapter(label)
    try:
        found = find_files(folder)
    except NoCheckpoint as error:
        if config is None:
            raise
        return _with_note(_of_config(config, label), error.message)
    if found.folder == folder or config is None:
        return _of_files(found, config or _config_at(found.folder), label)
    below = printable(os.fsencode(found.folder.relative_to(folder)))
    return _with_note(_of_config(config, label), f"The weights in {below} were not looked at.")


def _with_note(base: Base, note: str) -> Base:
    return replace(base, notes=(*base.notes, note))


def _adapter(label: str) -> Unusable:
    return Unusable(
        f"{label} is an adapter, not a base model.",
        remedy="Name the model that it was trained on.",
    )


def _config_at(folder: Path) -> dict[str, Json] | None:
    path = folder / _CONFIG
    return read_object(path, CONFIG_LIMIT) if path.is_file() else None


def _of_config(config: Mapping[str, object], label: str) -> Base:
    if "peft_type" in config:
        raise _adapter(label)
    return replace(base_from_config(config, label), identity_hint=_hint(config))


def _of_files(found: FoundFiles, config: Mapping[str, object] | None, label: str) -> Base:
    gathering = Gathering()
    notes = list(found.problems)
    for name, path in sorted(found.shards.items()):
        with FileReadable(path) as file:
            try:
                header = read_header(file.read, file.size)
            except HeaderError as fault:
                notes.append(f"The header of {printable(name)} cannot be used: {fault.message}")
                continue
            _take(gathering, notes, name, header, file.size)
    absent = (
        sorted(set(found.index.weight_map.values()) - found.shards.keys()) if (found.index) else []
    )
    return _assembled(gathering, found.index, absent, notes, config, label)


def _of_remote(files: RemoteFiles) -> Base:
    label = f"{printable(files.identity)}@{files.commit[:12]} (from the Hub)"
    gathering = Gathering()
    notes = list(files.problems)
    for shard in files.shards:
        if shard.header is None:
            fault = shard.fault.message if shard.fault else ""
            notes.append(f"The header of {printable(shard.name)} cannot be used: {fault}")
        else:
            _take(gathering, notes, shard.name, shard.header, shard.size)
    if not files.shards and not files.absent:
        if files.config is None:
            raise Unusable(
                f"{label} has neither a config.json nor safetensors.",
                remedy="Name another base.",
            )
        base = _of_config(files.config, label)
    else:
        base = _assembled(gathering, files.index, files.absent, notes, files.config, label)
    return replace(base, identity=files.identity, revision=files.commit, identity_hint=None)


def _take(
    gathering: Gathering, notes: list[str], name: str, header: Header, size: int | None
) -> None:
    gathering.add((tensor.name, tensor.dtype, tensor.shape) for tensor in header.tensors)
    if size is not None and size < header.file_size:
        cut = coverage(header, size)
        notes.append(
            f"{printable(name)} of the base is {cut.short_by:,} bytes short: "
            f"{len(cut.cut) + len(cut.absent):,} tensors are not whole."
        )


def _assembled(
    gathering: Gathering,
    index: Index | None,
    absent: Iterable[str],
    notes: list[str],
    config: Mapping[str, object] | None,
    label: str,
) -> Base:
    notes += [f"The shard {printable(name)} of the base is not there." for name in absent]
    disk = gathering.on_disk(index.weight_map if index else (), notes)
    if not disk.tensors and not disk.unread:
        raise Unusable(
            f"{label} has no header that can be read: {notes[0]}"
            if notes
            else f"{label} holds no tensors.",
            remedy="Name a config.json of the base, or get its files again.",
        )
    if any(mark in name for name in disk.tensors for mark in _MARKS):
        raise _adapter(label)
    rules, said = _rules(config, label)
    base = base_from_headers(disk, label=label, config=config, rules=rules, notes=said)
    return replace(base, identity_hint=_hint(config))


def _rules(config: Mapping[str, object] | None, label: str) -> tuple[Base | None, tuple[str, ...]]:
    if config is None:
        note = "No config.json lies beside the base: its modules are derived from its headers."
        return None, (note,)
    try:
        return base_from_config(config, label), ()
    except Unusable as error:
        note = f"{error.message} The modules are derived from the base's headers."
        return None, (note,)


def _hint(config: Mapping[str, object] | None) -> str | None:
    """Give where a config.json says that it comes from; most often it is right."""
    name = config.get("_name_or_path") if config else None
    return name if isinstance(name, str) and HUB_ID.fullmatch(name) else None
