"""Validate what was recovered and rebuild its configuration: what `dump --base --recipe` adds."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ..errors import ExitCode, ReefError
from ..records.names import decoded
from .adapter.config.settings import read_settings
from .adapter.config.write import demand_free, destination
from .adapter.statement import Recipe
from .base.model import Base
from .base.open import open_base
from .checkpoint import Checkpoint
from .open_checkpoint import open_checkpoint
from .rebuild_config import Rebuilt, beside, rebuild, recipe_at, written
from .validate import Request, validate
from .validation.result import Kind, Validation

_SHARD = re.compile(r"-\d+-of-\d+\.safetensors\Z")


@dataclass(frozen=True)
class Knowledge:
    """What a person knows of the lost run: operands as `validate` and `rebuild-config` take."""

    base: str | None = None
    recipes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    force: bool = False


@dataclass(frozen=True)
class Proof:
    """What is proven of one recovered checkpoint; an error stands where a step could not judge."""

    path: str
    validation: Validation | None
    rebuilt: Rebuilt | None
    errors: tuple[ReefError, ...] = field(default=())

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


def checkpoints_of(files: Iterable[str]) -> tuple[str, ...]:
    """Give what to prove: single files as they are, the shards of one checkpoint as their folder.

    Files that are no safetensors are left out; the unfinished ones keep their `.partial`.
    """
    found: dict[str, None] = {}
    for file in files:
        name = file.removesuffix(".partial")
        if name.endswith(".safetensors"):
            found[os.path.dirname(file) if _SHARD.search(name) else file] = None
    return tuple(found)


def prove(paths: Iterable[str], known: Knowledge) -> tuple[Proof, ...]:
    """Validate what was recovered, and write the configuration of each adapter beside it.

    Raises no ReefError: the bytes are saved, and the result says what could not be judged.
    """
    try:
        run = _Run(
            base=open_base(known.base) if known.base is not None else None,
            recipes=[recipe_at(recipe) for recipe in known.recipes],
            settings=known.settings,
            force=known.force,
        )
    except ReefError as error:
        return tuple(Proof(path, None, None, (error,)) for path in paths)
    return tuple(run.prove(path) for path in paths)


@dataclass(frozen=True)
class _Run:
    """What is known of the lost run, opened."""

    base: Base | None
    recipes: Sequence[Recipe]
    settings: tuple[str, ...]
    force: bool

    def prove(self, path: str) -> Proof:
        """Do what can be done of one checkpoint, and keep each error that stops a step."""
        errors: list[ReefError] = []
        validation: Validation | None = None
        rebuilt: Rebuilt | None = None
        try:
            with open_checkpoint(path) as checkpoint:
                try:
                    validation = self._validated(checkpoint)
                except ReefError as error:
                    errors.append(error)
                if validation is None or validation.kind is not Kind.FULL:
                    rebuilt = self._rebuilt(checkpoint)
        except ReefError as error:
            errors.append(error)
        return Proof(path, validation, rebuilt, tuple(errors))

    def _validated(self, checkpoint: Checkpoint) -> Validation:
        stated = read_settings(self.settings) if self.settings else None
        request = Request(base=self.base, recipes=self.recipes, stated=stated)
        return validate(checkpoint, request)

    def _rebuilt(self, checkpoint: Checkpoint) -> Rebuilt:
        """Rebuild and write; what an earlier run wrote, told by its evidence, is written anew."""
        place = destination(None, beside(checkpoint))
        if not self.force and not (place.folder / place.evidence).is_file():
            demand_free(place)
        settings = read_settings(self.settings)
        return written(rebuild(checkpoint, self.base, self.recipes, settings), place)
