"""A checkpoint as it is found: one file or many shards, with what lies beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import HeaderError
from .formats.safetensors import Header
from .ranges import Range
from .readable import Readable


@dataclass(frozen=True)
class Shard:
    """One safetensors file of a checkpoint: its header, or the rule that the header breaks.

    `name` is relative to the checkpoint's folder, or the file's own name; not safe to print.
    `holes` are ranges of the file that its filesystem never stored, and which read as zeros.
    """

    name: str
    readable: Readable = field(repr=False)
    header: Header | None
    fault: HeaderError | None = None
    holes: tuple[Range, ...] = ()

    @property
    def size(self) -> int:
        """The number of bytes there are."""
        return self.readable.size


@dataclass(frozen=True)
class Index:
    """A `model.safetensors.index.json`: which tensor is in which shard."""

    name: str
    weight_map: Mapping[str, str]
    total_size: int | None


@dataclass(frozen=True)
class JsonFault:
    """A JSON file that is there and cannot be used: why, in a sentence.

    `loaded` tells whether loaders, which read less strictly, find in it what they look for.
    """

    name: str
    message: str
    loaded: bool


@dataclass(frozen=True)
class Checkpoint:
    """Everything that was found at one place.

    `config` is the adapter_config.json (or config.json of a full checkpoint) beside the weights,
    `folder` where it lies; both None for a file of a process. `strays` are names of temporary and
    foreign files beside the shards, which may hold what these lack. `unread` says of files that are
    there why they are not read, `index_faults` the same of indices that the shards are loaded by,
    and `config_faults` of an adapter_config.json; `problems` are all of these and what else is odd.
    """

    label: str
    shards: tuple[Shard, ...]
    index: Index | None = None
    adapter_config: Mapping[str, object] | None = None
    model_config: Mapping[str, object] | None = None
    folder: Path | None = None
    strays: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict[str, str])
    index_faults: tuple[JsonFault, ...] = ()
    config_faults: tuple[JsonFault, ...] = ()
