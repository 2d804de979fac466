"""`reef-recover validate`."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import Unusable
from ..records.collection import no_collection
from ..records.custody_lines import FILE as CUSTODY
from ..recover.routes import Wanted
from .frame import Terminal, declare, human_size, with_options

if TYPE_CHECKING:
    from ..recover.adapter.statement import Recipe
    from ..recover.base.model import Base
    from ..recover.checkpoint import Checkpoint
    from ..recover.validation.result import Validation

_LARGE = 1 << 30
_NO_BASE = (
    "Name it with --base: a config.json, a folder with safetensors, or a Hub id; or judge the "
    "bytes alone with --no-base."
)


def _finite(_context: click.Context, _option: click.Parameter, value: float | None) -> float | None:
    """Refuse nan and inf, which no comparison refutes."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter("it must be a finite number.")
    return value


@declare(
    "validate",
    help_text="""Hold an adapter or a full checkpoint against the base model that it belongs to.

    \b
    PATH is a safetensors file, a folder with shards or ranks, what `dump` wrote, or PID:GLOB.
    Every tensor that must be there is looked for, with its shape, and nothing else may be there.
    Then all bytes are read: NaN, zeros, holes, outliers, copies, and what they say of the training.

    \b
    What an adapter must consist of is taken from, in this order:
      --set and --recipe, adapter_config.json beside PATH or --config, and else from the tensors
      themselves: what one layer has, every layer must have.

    \b
    Exit code 0: all that was looked at holds. 1: it does not. 2: it could not be judged.
    """,
    examples="""
reef-recover validate step_8/ --base Qwen/Qwen3-8B
reef-recover validate adapter_model.safetensors --base config.json --headers-only
reef-recover validate 4242:adapter_model.safetensors --base /models/qwen3-8b
reef-recover validate step_8/ --base config.json --recipe serve.yaml --step 8 --learning-rate 1e-5
reef-recover validate merged/ --base Qwen/Qwen3-8B --reference /backup/merged --json
""",
)
@with_options(
    click.argument("path"),
    click.option("--base", "base_operand", metavar="BASE", help="The base model: config.json, "
                 "folder, cache entry or Hub id."),
    click.option("--no-base", is_flag=True, help="Judge the bytes alone."),
    click.option("--headers-only", is_flag=True, help="Read no content, and say so."),
    click.option("--config", "config_path", metavar="FILE", type=click.Path(path_type=Path),
                 help="An adapter_config.json to use instead of that beside PATH."),
    click.option("--recipe", "recipes", metavar="FILE", multiple=True,
                 help="What the adapter was trained by (repeatable)."),
    click.option("--set", "stated", metavar="KEY=VALUE", multiple=True,
                 help="A field of the configuration, as in r=32 (repeatable)."),
    click.option("--step", type=click.IntRange(0), metavar="N",
                 help="The optimiser steps that are claimed; refuted where the bytes forbid it."),
    click.option("--learning-rate", type=click.FloatRange(0, min_open=True), metavar="X",
                 callback=_finite,
                 help="The largest learning rate claimed, of AdamW unless a recipe differs."),
    click.option("--reference", metavar="PATH", help="A checkpoint to be equal to, bit for bit."),
    click.option("--replicated", metavar="GLOB", help="Names that every rank may hold, equal."),
    click.option("--loaders", is_flag=True, help="Say what PEFT, vLLM, SGLang and transformers "
                 "would make of it."),
    click.option("--load-check", is_flag=True, help="Load it with PEFT; needs reefkit[peft]."),
    click.option("--source", type=click.Choice([w.value for w in Wanted]), default="auto",
                 show_default=True, help="Where PID:GLOB is read from."),
)  # fmt: skip
def command(
    terminal: Terminal,
    path: str,
    base_operand: str | None,
    no_base: bool,
    headers_only: bool,
    config_path: Path | None,
    recipes: tuple[str, ...],
    stated: tuple[str, ...],
    step: int | None,
    learning_rate: float | None,
    reference: str | None,
    replicated: str | None,
    loaders: bool,
    load_check: bool,
    source: str,
) -> int:
    """Print the verdict and what it rests on; the exit code says whether all holds."""
    from ..recover.open_checkpoint import open_checkpoint
    from ..recover.validate import Claims, Request, validate

    base = _base(base_operand, no_base)
    said = tuple(_recipe(recipe) for recipe in recipes)
    given = _stated(stated)
    claims = Claims(step=step, learning_rate=learning_rate)
    if learning_rate is not None and step is None and not _states_step(said, given):
        raise Unusable(
            "A learning rate bounds nothing without the number of steps.",
            remedy="Add --step N, or a --recipe that states it.",
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(no_collection())
        wanted = Wanted(source)
        checkpoint = stack.enter_context(open_checkpoint(path, wanted))
        compared_with = (
            stack.enter_context(open_checkpoint(reference, wanted)) if reference else None
        )
        request = Request(
            base,
            headers_only=headers_only,
            config=_config(config_path),
            recipes=said,
            stated=given,
            claims=claims,
            reference=compared_with,
            replicated=replicated,
            loaders=loaders,
            load_check=load_check,
        )
        size = sum(shard.size for shard in checkpoint.shards)
        if size > _LARGE and not headers_only:
            terminal.say(f"Reading {human_size(size)}; --headers-only reads none of it.")
            if terminal.shows_progress:
                bar = stack.enter_context(
                    click.progressbar(length=size, label="Reading", file=sys.stderr)
                )
                request = replace(request, progress=bar.update)
        result = validate(checkpoint, request)
        warning = _recorded(Path(path), checkpoint, result)
    if warning is not None:
        terminal.warn(warning)
    if terminal.as_json:
        terminal.document(result.to_json())
    else:
        from .validate_report import report

        terminal.product(report(result, quiet=terminal.quiet))
    return int(result.exit_code)


def _recorded(path: Path, checkpoint: Checkpoint, result: Validation) -> str | None:
    """Add a link to the chain of custody that the files have; say why that failed."""
    if checkpoint.folder is None:
        return None
    from ..recover.custody.of_checkpoint import validated
    from ..recover.custody.place import chain_folder

    own = os.path.lexists(path / CUSTODY)
    return validated(path if own else chain_folder(checkpoint.folder), checkpoint, result)


def _base(operand: str | None, no_base: bool) -> Base | None:
    if operand is not None and no_base:
        raise Unusable("--base and --no-base exclude one another.", remedy="Give one of them.")
    if operand is None:
        if no_base:
            return None
        raise Unusable("No base was named to hold the checkpoint against.", remedy=_NO_BASE)
    from ..recover.base.open import open_base

    return open_base(operand)


def _states_step(recipes: tuple[Recipe, ...], stated: Recipe | None) -> bool:
    return any(recipe.of("step") for recipe in (*recipes, *((stated,) if stated else ())))


def _config(path: Path | None) -> dict[str, object] | None:
    if path is None:
        return None
    from ..recover.json_files import CONFIG_LIMIT, read_object

    return dict(read_object(path, CONFIG_LIMIT))


def _recipe(path: str) -> Recipe:
    from ..recover.adapter.recipes.read import read_recipe

    return read_recipe(Path(path))


def _stated(stated: tuple[str, ...]) -> Recipe | None:
    if not stated:
        return None
    from ..recover.adapter.config.settings import read_settings

    return read_settings(stated)
