"""Validate what was recovered and rebuild its configuration: what `dump --base --recipe` adds."""

from __future__ import annotations

import contextlib
import os
import re
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ..errors import ExitCode, ReefError
from ..records.names import decoded, printable
from .adapter.config.settings import read_settings
from .adapter.config.write import Destination, demand_free, destination, is_ours
from .adapter.statement import Recipe
from .base.model import Base
from .base.open import open_base
from .checkpoint import Checkpoint
from .checkpoint_files import incomplete_sets
from .custody.of_checkpoint import validated
from .custody.place import chain_folder
from .open_checkpoint import open_checkpoint
from .rebuild_config import Rebuilt, beside, rebuild, recipe_at, written
from .validate import Request, validate
from .validation.result import Kind, Validation

_SHARD = re.compile(r"(.*)-[0-9]+-of-([0-9]+)\.safetensors", re.DOTALL)
_INDEX = ".safetensors.index.json"


@dataclass(frozen=True)
class Knowledge:
    """What a person knows of the lost run: operands as `validate` and `rebuild-config` take."""

    base: str | None = None
    recipes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    force: bool = False


@dataclass(frozen=True)
class Proof:
    """What is proven of one recovered checkpoint; an error stands where a step could not judge.

    `unrecorded` says why custody has no link about a step.
    """

    path: str
    validation: Validation | None
    rebuilt: Rebuilt | None
    errors: tuple[ReefError, ...] = field(default=())
    unrecorded: tuple[str, ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """Give the worst that any step answers."""
        codes = [error.exit_code for error in self.errors]
        if self.validation is not None:
            codes.append(self.validation.exit_code)
        if self.rebuilt is not None and not self.rebuilt.complete:
            codes.append(ExitCode.DOES_NOT_HOLD)
        return max(codes, default=ExitCode.HOLDS)

    def to_json(self) -> dict[str, object]:
        """Give one entry of `proofs` in the document of `dump --json`."""
        return {
            "path": decoded(self.path),
            "validation": self.validation.to_json() if self.validation else None,
            "config": self.rebuilt.to_json() if self.rebuilt else None,
            "errors": [
                {"code": e.code, "message": e.message, "remedy": e.remedy} for e in self.errors
            ],
        }


class Saved(NamedTuple):
    """The files of one checkpoint that were recovered, and the path that stands for all of them."""

    path: str
    files: tuple[str, ...]


def checkpoints_of(files: Iterable[str]) -> tuple[Saved, ...]:
    """Give what to prove: single files as they are, and the shards of one checkpoint together.

    What else lies in their folder is proven apart, as an adapter beside a whole model. Files that
    are no safetensors are left out; the unfinished ones keep their `.partial`.
    """
    sets: dict[tuple[str, ...], list[str]] = {}
    for file in files:
        name = file.removesuffix(".partial")
        if name.endswith(".safetensors"):
            numbered = _SHARD.fullmatch(os.path.basename(name))
            key = (os.path.dirname(file), *numbered.groups()) if numbered else (file,)
            sets.setdefault(key, []).append(file)
    folders = Counter(os.path.dirname(found[0]) for found in sets.values())
    saved: list[Saved] = []
    for key, found in sets.items():
        path = found[0]
        if len(key) > 1:
            folder, stem, count = key
            alone = folders[folder] == 1
            path = folder if alone else os.path.join(folder, f"{stem}-*-of-{count}.safetensors")
        saved.append(Saved(path, tuple(found)))
    return tuple(saved)


def prove(checkpoints: Iterable[Saved], known: Knowledge) -> tuple[Proof, ...]:
    """Validate what was recovered, and write the configuration of each adapter beside it.

    Raises no ReefError: the bytes are saved, and the result says what could not be judged.
    """
    try:
        run = _Run(
            base=open_base(known.base) if known.base is not None else None,
            recipes=[recipe_at(recipe) for recipe in known.recipes],
            settings=known.settings,
            force=known.force,
            named_recipes=known.recipes,
        )
    except ReefError as error:
        return tuple(Proof(saved.path, None, None, (error,)) for saved in checkpoints)
    return tuple(run.prove(saved) for saved in checkpoints)


@contextlib.contextmanager
def _opened(saved: Saved) -> Generator[Checkpoint, None, None]:
    """Open these files and no others of their folder, by their index where there is one."""
    first = saved.files[0]
    numbered = _SHARD.fullmatch(os.path.basename(first.removesuffix(".partial")))
    index = os.path.join(os.path.dirname(first), f"{numbered[1] if numbered else ''}{_INDEX}")
    with contextlib.ExitStack() as stack:
        if numbered is None or os.path.isfile(index):
            yield stack.enter_context(open_checkpoint(index if numbered else first))
            return
        parts = [stack.enter_context(open_checkpoint(file)) for file in sorted(saved.files)]
        shards = tuple(shard for part in parts for shard in part.shards)
        names = {shard.name for shard in shards}
        yield replace(
            parts[0],
            label=printable(saved.path),
            shards=shards,
            strays=tuple(name for name in parts[0].strays if name not in names),
            problems=(*parts[0].problems, *incomplete_sets(names)),
        )


@dataclass(frozen=True)
class _Run:
    """What is known of the lost run, opened."""

    base: Base | None
    recipes: Sequence[Recipe]
    settings: tuple[str, ...]
    force: bool
    named_recipes: tuple[str, ...]
    taken: set[Destination] = field(default_factory=set[Destination])

    def prove(self, saved: Saved) -> Proof:
        """Do what can be done of one checkpoint, and keep each error that stops a step."""
        errors: list[ReefError] = []
        unrecorded: list[str] = []
        validation: Validation | None = None
        rebuilt: Rebuilt | None = None
        try:
            with _opened(saved) as checkpoint:
                try:
                    validation = self._validated(checkpoint)
                    place = chain_folder(Path(os.path.dirname(saved.files[0])))
                    if warning := validated(place, checkpoint, validation):
                        unrecorded.append(warning)
                except ReefError as error:
                    errors.append(error)
                if _may_be_an_adapter(checkpoint, validation):
                    rebuilt = self._rebuilt(checkpoint)
        except ReefError as error:
            errors.append(error)
        return Proof(saved.path, validation, rebuilt, tuple(errors), tuple(unrecorded))

    def _validated(self, checkpoint: Checkpoint) -> Validation:
        stated = read_settings(self.settings) if self.settings else None
        request = Request(base=self.base, recipes=self.recipes, stated=stated)
        return validate(checkpoint, request)

    def _rebuilt(self, checkpoint: Checkpoint) -> Rebuilt:
        """Rebuild and write; what an earlier run wrote, told by its evidence, is written anew.

        Two adapters of one folder would share a configuration: the second gets none.
        """
        place = destination(None, beside(checkpoint))
        if place in self.taken or (not self.force and not is_ours(place)):
            demand_free(place)
        settings = read_settings(self.settings)
        made = rebuild(checkpoint, self.base, self.recipes, settings)
        rebuilt = written(made, place, checkpoint, self.named_recipes)
        self.taken.add(place)
        return rebuilt


def _may_be_an_adapter(checkpoint: Checkpoint, validation: Validation | None) -> bool:
    """Tell a whole model, which gets no configuration, by its names where it was not validated."""
    if validation is not None:
        return validation.kind is not Kind.FULL
    headers = [shard.header for shard in checkpoint.shards if shard.header is not None]
    return not headers or any("lora" in t.name for header in headers for t in header.tensors)
