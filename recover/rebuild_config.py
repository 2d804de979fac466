"""Rebuild a lost adapter_config.json from the tensors, recipes, statements and proofs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from ..errors import Unusable
from ..records.names import printable
from ..records.strict_json import Json, parse_object
from ..records.tool import tool_identity
from .adapter.config.acceptable import demand_plain_lora, tensors_of
from .adapter.config.decide import Decision, decide
from .adapter.config.evidence import SCHEMA
from .adapter.config.measured_scale import ScaleProof
from .adapter.config.proof import Proof, TiedHead, prove
from .adapter.config.self_check import Checked, check_written
from .adapter.config.settings import read_settings
from .adapter.config.write import Destination, config_text, demand_free, destination, write_both
from .adapter.recipes.read import read_recipe
from .adapter.statement import Recipe
from .adapter.structure import Adapter, read_adapter
from .base.model import Base
from .base.open import open_base
from .checkpoint import Checkpoint
from .open_checkpoint import open_checkpoint


@dataclass(frozen=True)
class Rebuilt:
    """A decision with what it was made from; `text` is the configuration as it is written.

    `written` are the files, once they are; `unrecorded` says why custody has no link of that.
    """

    label: str
    decision: Decision
    text: str | None
    checked: Checked | None
    base: Base | None = field(repr=False)
    measured: ScaleProof | None = None
    written: tuple[Path, ...] = ()
    unrecorded: str | None = None

    @property
    def complete(self) -> bool:
        """Tell whether there is a configuration."""
        return self.text is not None

    def to_json(self) -> dict[str, Json]:
        """Give the document `reefkit.config-evidence/1`."""
        base = self.base
        checked = self.checked
        return {
            **self.decision.ledger.to_json(),
            "schema": SCHEMA,
            "path": self.label,
            "base": None
            if base is None
            else {
                "label": base.label,
                "source": base.source.value,
                "identity": base.identity,
                "revision": base.revision,
            },
            "recipes": [
                {
                    "label": recipe.label,
                    "trainer": recipe.trainer,
                    "version": recipe.version,
                    "notes": list[Json](recipe.notes),
                }
                for recipe in self.decision.recipes
            ],
            "checked": None
            if checked is None
            else {
                "modules": checked.modules,
                "tensors": checked.tensors,
                "against": checked.against,
            },
            "sha256": None if self.text is None else sha256(self.text.encode()).hexdigest(),
            "written": [printable(os.fsencode(path)) for path in self.written],
            "tool": {name: value for name, value in tool_identity().items()},
        }


# Measures the scale of an adapter in a checkpoint that is open, given what its tensors prove.
Measure = Callable[[Checkpoint, Adapter, Proof], ScaleProof]
# Told after each module how many of how many are measured.
Progress = Callable[[int, int], None]


def rebuild(
    checkpoint: Checkpoint,
    base: Base | None,
    recipes: Sequence[Recipe],
    settings: Recipe,
    *,
    measure: Measure | None = None,
    for_peft: str | None = None,
) -> Rebuilt:
    """Decide a configuration and check it against the tensors; nothing is written.

    Raises DoesNotHold for adapters that are damaged or no plain LoRA, Unusable.
    """
    tensors = tensors_of(checkpoint)
    metadata = checkpoint.shards[0].header.metadata if checkpoint.shards[0].header else None
    demand_plain_lora(list(tensors), metadata, base)
    adapter = read_adapter(tensors.values())
    proof = prove(adapter, base, _tied_head(checkpoint, adapter, base))
    measured = measure(checkpoint, adapter, proof) if measure else None
    decision = decide(adapter, proof, base, recipes, settings, measured=measured, for_peft=for_peft)
    if decision.config is None:
        return Rebuilt(checkpoint.label, decision, None, None, base, measured)
    text = config_text(decision.config)
    reread = parse_object(text.encode(), "the rebuilt configuration")
    checked = check_written(reread, adapter, decision.proof, base)
    return Rebuilt(checkpoint.label, decision, text, checked, base, measured)


def _tied_head(checkpoint: Checkpoint, adapter: Adapter, base: Base | None) -> TiedHead | None:
    """Compare the head's LoRA with the embedding's; without a base only equality tells anything."""
    if base is not None:
        pair = (base.input_embedding, base.output_embedding) if base.tied else (None, None)
    else:
        embeddings = [m.name for m in adapter.modules.values() if m.embedding]
        heads = [m.name for m in adapter.modules.values() if m.name.endswith("lm_head")]
        pair = (embeddings[0], heads[0]) if len(embeddings) == len(heads) == 1 else (None, None)
    embedding, head = (adapter.modules.get((name or "", 0)) for name in pair)
    if embedding is None or head is None:
        return None
    from .adapter.config.tied_head import has_tied_head

    equal = has_tied_head(checkpoint, embedding, head)
    return None if equal is None or not (equal or base) else TiedHead(head.name, equal)


@dataclass(frozen=True)
class Request:
    """What a person asks for on the command line."""

    path: str
    recipes: tuple[str, ...] = ()
    base: str | None = None
    settings: tuple[str, ...] = ()
    out: str | None = None
    merged: str | None = None
    memory: str | None = None
    for_peft: str | None = None
    force: bool = False


def rebuild_config(request: Request, progress: Progress | None = None) -> Rebuilt:
    """Rebuild the configuration of an adapter and write it beside the adapter.

    `progress` is told how many modules of how many are measured, where --merged is given.
    Nothing is written where something stands in the way: a missing source or a contradiction.
    Raises Unusable, DoesNotHold, DestinationExists, NotPermitted, NothingFound, ProcessGone.
    """
    settings = read_settings(request.settings)
    recipes = [recipe_at(path) for path in request.recipes]
    base = open_base(request.base) if request.base is not None else None
    measure = _measure(request, base, progress)
    with open_checkpoint(request.path) as checkpoint:
        place = destination(request.out, beside(checkpoint))
        if not request.force:
            demand_free(place)
        rebuilt = rebuild(
            checkpoint, base, recipes, settings, measure=measure, for_peft=request.for_peft
        )
        return written(rebuilt, place, checkpoint, request.recipes)


def written(
    rebuilt: Rebuilt, place: Destination, checkpoint: Checkpoint, recipes: Sequence[str]
) -> Rebuilt:
    """Write a complete result, say so in it and in custody; an incomplete one stays as it is.

    Raises DoesNotHold, NotPermitted.
    """
    if rebuilt.text is None:
        return rebuilt
    finished = replace(rebuilt, written=place.paths)
    write_both(place, rebuilt.text, finished.to_json())
    from .custody import of_checkpoint
    from .custody.place import chain_folder

    folder = chain_folder(place.folder)
    warning = of_checkpoint.rebuilt(folder, checkpoint, recipes, finished)
    return replace(finished, unrecorded=warning)


def recipe_at(path: str) -> Recipe:
    """Read the recipe that a person named. Raises Unusable, NotPermitted."""
    if not os.path.lexists(path):
        raise Unusable(
            f"The recipe {printable(os.fsencode(path))} does not exist.",
            remedy="Name a file; what you know by heart goes into --set key=value.",
        )
    return read_recipe(Path(path))


def beside(checkpoint: Checkpoint) -> Path | None:
    """Give the folder of an adapter's weights; None where they are a process's."""
    if checkpoint.folder is None:
        return None
    return checkpoint.folder / os.path.dirname(checkpoint.shards[0].name)


def _measure(request: Request, base: Base | None, progress: Progress | None) -> Measure | None:
    """Give the proof of alpha that is asked for; both read weights, and import numpy only then."""
    scaled, merged, weights = request.memory, request.merged, request.base
    if scaled is not None and merged is not None:
        raise Unusable(
            "--memory and --merged are two proofs of the same.", remedy="Give one of them."
        )
    if scaled is not None:

        def by_memory(checkpoint: Checkpoint, adapter: Adapter, proof: Proof) -> ScaleProof:
            from .adapter.config.scaled_memory import prove_by_memory

            return prove_by_memory(checkpoint, adapter, scaled, proof)

        return by_memory
    if merged is None:
        return None
    if base is None or weights is None:
        raise Unusable(
            "--merged needs --base, the same model before the adapter was merged into it.",
            remedy="Name a folder with the base's weights.",
        )

    def by_merge(checkpoint: Checkpoint, adapter: Adapter, proof: Proof) -> ScaleProof:
        from .adapter.config.merged_weights import prove_by_merge

        return prove_by_merge(checkpoint, adapter, proof, base, weights, merged, progress)

    return by_merge
