"""The result of `validate`, and the JSON form of each of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ...errors import ExitCode

SCHEMA = "reefkit.validation/1"


class DamageClass(str, Enum):
    """What is wrong with the bytes, by name; any of these makes a checkpoint unfit."""

    LFS_POINTER = "lfs-pointer"
    HTML_PAGE = "html-page"
    FOREIGN_FILE = "foreign-file"  # a pickle, zip, GGUF, text ... where safetensors was meant
    EMPTY_FILE = "empty-file"
    TRUNCATED = "truncated"
    TRAILING_BYTES = "trailing-bytes"
    ZERO_HEADER = "zero-header"
    NUL_PADDING = "nul-padded-header"
    BROKEN_HEADER = "broken-header"
    DUPLICATE_NAME = "duplicate-name"
    TEMPORARY_FILE = "temporary-file"  # what safetensors 0.8 leaves when it is killed
    ZERO_FILE = "zero-file"  # every byte of data is zero
    ZERO_TAIL = "zero-tail"
    ZERO_RUN = "zero-run"
    ZERO_TENSOR = "zero-tensor"
    SPARSE = "sparse-extent"
    NOT_FINITE = "not-finite"
    OUTLIER = "outlier"
    ZERO3_EMPTY = "zero3-empty"
    NO_TENSORS = "no-tensors"
    UNTRAINED = "untrained"
    BROKEN_INDEX = "broken-index"
    SHARD_MISSING = "shard-missing"
    SHARD_STRAY = "shard-stray"
    TENSOR_TWICE = "tensor-twice"
    TENSOR_MISPLACED = "tensor-misplaced"
    COPIED_TENSOR = "copied-tensor"
    DIFFERS = "differs-from-reference"
    TIED_APART = "tied-apart"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Damage:
    """One fault of the bytes: where it is, and how many bytes it takes, where that is known.

    `offset` counts from the start of the file `shard`. `message` is one sentence, fit to print.
    """

    kind: DamageClass
    message: str
    shard: str | None = None
    tensor: str | None = None
    offset: int | None = None
    bytes: int | None = None

    def to_json(self) -> dict[str, object]:
        """Give one entry of `damage`."""
        return {
            "class": self.kind.value,
            "message": self.message,
            "shard": self.shard,
            "tensor": self.tensor,
            "offset": self.offset,
            "bytes": self.bytes,
        }


@dataclass(frozen=True)
class Mismatch:
    """A tensor whose shape or dtype is not the expected one."""

    tensor: str
    aspect: str  # "shape" or "dtype"
    expected: str
    found: str


@dataclass(frozen=True)
class Caution:
    """What a person should know and what does not make the checkpoint unfit."""

    kind: str
    message: str


@dataclass(frozen=True)
class ConfigFault:
    """A field of the adapter's configuration that does not fit; `message` is one sentence."""

    field: str
    message: str


@dataclass(frozen=True)
class Rename:
    """A proposed new name for every tensor of one kind of prefix fault."""

    fault: str  # "doubled-prefix", "missing-prefix", "_orig_mod.", ".default.", ...
    before: str
    after: str
    tensors: int


@dataclass(frozen=True)
class LayerCoverage:
    """How many of the expected tensors one layer has."""

    layer: str
    expected: int
    found: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExpertCoverage:
    """Which experts of one layer have their tensors."""

    layer: str
    experts: int
    present: int
    incomplete: tuple[int, ...] = ()


@dataclass(frozen=True)
class Modules:
    """How many modules should change the model's output, and how many do."""

    expected: int
    effective: int


class Kind(str, Enum):
    """What was validated."""

    ADAPTER = "adapter"
    FULL = "full"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Validation:
    """All that was found; `not_checked` names what was left out and why, never in silence."""

    label: str
    kind: Kind
    base: str | None
    base_source: str | None
    expected: int
    found: int
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    known_extras: tuple[str, ...] = ()
    mismatched: tuple[Mismatch, ...] = ()
    config_faults: tuple[ConfigFault, ...] = ()
    layers: tuple[LayerCoverage, ...] = ()
    experts: tuple[ExpertCoverage, ...] = ()
    modules: Modules = Modules(0, 0)
    renames: tuple[Rename, ...] = ()
    naming: str | None = None
    method: str | None = None
    ranks: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    damage: tuple[Damage, ...] = ()
    warnings: tuple[Caution, ...] = ()
    not_checked: tuple[str, ...] = ()
    evidence: Mapping[str, object] = field(default_factory=dict[str, object])
    loaders: tuple[Mapping[str, object], ...] | None = None
    load_check: Mapping[str, object] | None = None
    files: tuple[Mapping[str, object], ...] = ()

    @property
    def ok(self) -> bool:
        """Tell whether nothing speaks against the checkpoint and something was held against it."""
        loaded = self.load_check is None or self.load_check.get("ok") is True
        faults = (
            self.missing,
            self.unexpected,
            self.mismatched,
            self.config_faults,
            self.renames,
            self.damage,
        )
        known = self.naming is None and self.method in (None, "LORA")
        return self.found > 0 and loaded and known and not any(faults)

    @property
    def exit_code(self) -> ExitCode:
        """Give 0 where all holds, 1 otherwise."""
        return ExitCode.HOLDS if self.ok else ExitCode.DOES_NOT_HOLD

    def to_json(self) -> dict[str, object]:
        """Give the document of `validate --json`."""
        return {
            "schema": SCHEMA,
            "ok": self.ok,
            "label": self.label,
            "kind": self.kind.value,
            "base": {"label": self.base, "source": self.base_source},
            "expected": self.expected,
            "found": self.found,
            "missing": list(self.missing),
            "unexpected": list(self.unexpected),
            "known_extras": list(self.known_extras),
            "mismatched": [vars(m) for m in self.mismatched],
            "config_faults": [vars(f) for f in self.config_faults],
            "layers": [{**vars(layer), "missing": list(layer.missing)} for layer in self.layers],
            "experts": [{**vars(e), "incomplete": list(e.incomplete)} for e in self.experts],
            "modules": vars(self.modules),
            "renames": [vars(r) for r in self.renames],
            "naming": self.naming,
            "method": self.method,
            "ranks": list(self.ranks),
            "dtypes": list(self.dtypes),
            "damage": [d.to_json() for d in self.damage],
            "warnings": [vars(w) for w in self.warnings],
            "not_checked": list(self.not_checked),
            "evidence": dict(self.evidence),
            "loaders": None if self.loaders is None else [dict(one) for one in self.loaders],
            "load_check": None if self.load_check is None else dict(self.load_check),
            "files": [dict(f) for f in self.files],
        }
