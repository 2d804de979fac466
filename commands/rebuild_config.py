"""`reef-recover rebuild-config`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING

import click

from ..errors import ExitCode
from ..records.names import printable
from ..recover.adapter.config.schema import FIELDS
from ..recover.adapter.statement import Recipe, Source
from ..recover.rebuild_config import Rebuilt, Request, rebuild_config
from .frame import Terminal, declare, shortened, table, with_options

if TYPE_CHECKING:
    from click._termui_impl import ProgressBar

_VALUE_WIDTH = 40
_NOTE_WIDTH = 300
_MOST_NOTES = 20

# No tensor shows them, and a wrong one loads without a word.
_SHOWN_ALWAYS = frozenset({"base_model_name_or_path", "lora_alpha", "use_rslora"})


@declare(
    "rebuild-config",
    help_text="""Rebuild the lost adapter_config.json of a LoRA adapter.

    PATH is the adapter: a safetensors file, a folder, a dump, or PID:GLOB. Shapes and names prove
    the rank, the targets, DoRA, biases and saved modules. Alpha, rslora and the base's identity
    are in no tensor: they must come from a recipe (--recipe: the run's YAML, TOML, JSON, script or
    launch line, a sibling adapter_config.json, an adapter's README.md), from --set, or from a
    proof. Without a source nothing is written, and the exit code is 1.

    Every field's source goes into adapter_config.evidence.json: proven, stated, default (of the
    recipe's trainer and version) or unknown. Tensors win over recipes; what contradicts them is an
    error, but for differences with a known lawful cause, which are explained.

    With --base targets are named by the shortest endings that fit the proven modules and nothing
    else in the base, and what was written is checked against it. Without --base every module is
    named in full, so that no name can fit another module; whether tensors are missing cannot be
    told then, and adapters of fused experts are refused.""",
    examples="""
reef-recover rebuild-config recovered-4242 --recipe serve.yaml --base Qwen/Qwen3-8B
reef-recover rebuild-config step_8 --base Qwen/Qwen3-8B --set lora_alpha=32 --set use_rslora=false
reef-recover rebuild-config step_8 --recipe step_7/adapter_config.json --base ~/models/Qwen3-8B
reef-recover rebuild-config step_8 --memory '4242:*lora*' --base Qwen/Qwen3-8B --recipe run.yaml
reef-recover rebuild-config step_8 --merged merged-model --base ~/models/Qwen3-8B --for-peft 0.11
reef-recover rebuild-config '4242:*step_8*' --recipe train.sh --base config.json --out step_8
""",
)
@with_options(
    click.argument("path"),
    click.option(
        "--recipe", "recipes", multiple=True, metavar="FILE", help="What the run was made with."
    ),
    click.option(
        "--base", metavar="BASE", help="The base: config.json, a folder, a cache entry or a Hub id."
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="State a field of LoraConfig; wins over recipes, never over tensors.",
    ),
    click.option(
        "--out", "-o", metavar="DIR|FILE", help="Where to write.  [default: beside the adapter]"
    ),
    click.option(
        "--merged", metavar="PATH", help="The merged model: with --base it proves the scale."
    ),
    click.option(
        "--memory",
        metavar="PID:GLOB",
        help="A server's copy whose lora_B is scaled, or a file of it: proves the scale.",
    ),
    click.option(
        "--for-peft", metavar="VERSION", help="Leave out what this older PEFT does not know."
    ),
    click.option("--force", is_flag=True, help="Overwrite what is there."),
)
def command(
    terminal: Terminal,
    path: str,
    recipes: tuple[str, ...],
    base: str | None,
    settings: tuple[str, ...],
    out: str | None,
    merged: str | None,
    memory: str | None,
    for_peft: str | None,
    force: bool,
) -> int:
    """Rebuild, write, and say where every field comes from."""
    request = Request(path, recipes, base, settings, out, merged, memory, for_peft, force)
    with _progress(terminal) as progress:
        rebuilt = rebuild_config(request, progress)
    terminal.document(rebuilt.to_json())
    for line in _report(rebuilt):
        terminal.product(line)
    say = terminal.say if rebuilt.complete else terminal.warn
    for line in _remarks(rebuilt):
        say(line)
    return ExitCode.HOLDS if rebuilt.complete else ExitCode.DOES_NOT_HOLD


def rebuilt_lines(rebuilt: Rebuilt) -> Iterator[str]:
    """Give the fields with their sources, and what stood in the way of writing them."""
    yield from _report(rebuilt)
    yield from _remarks(rebuilt)


def _report(rebuilt: Rebuilt) -> Iterator[str]:
    fields = rebuilt.decision.ledger.fields
    rows = [
        (name, shortened(json.dumps(known.written), _VALUE_WIDTH), known.source.value, known.origin)
        for name, known in sorted(fields.items())
        if known.assumed
        or known.written != FIELDS[name].neutral
        or known.source is Source.STATED
        or name in _SHOWN_ALWAYS
    ]
    yield table(("FIELD", "VALUE", "SOURCE", "FROM"), rows)
    for cause in rebuilt.decision.ledger.explained:
        yield f"Explained: {cause.message}"
    for file in rebuilt.written:
        yield f"Wrote {printable(os.fsencode(file))}"


def _remarks(rebuilt: Rebuilt) -> Iterator[str]:
    ledger = rebuilt.decision.ledger
    if not ledger.complete:
        yield "Nothing was written."
    for conflict in ledger.conflicts:
        yield f"Contradiction in {conflict.field}: {conflict.message}"
    for need in ledger.needs:
        yield f"No source for {need.field}: {need.reason}."
    for caution in ledger.cautions:
        yield f"Note: {caution}"
    yield from _notes(rebuilt.decision.recipes)
    if rebuilt.unrecorded is not None:
        yield rebuilt.unrecorded
    flags = list(dict.fromkeys(need.flag for need in ledger.needs))
    if flags:
        yield f"State what is missing: {' '.join(flags)}; or give the run's recipe with --recipe."


def _notes(recipes: Sequence[Recipe]) -> Iterator[str]:
    """Give what could not be read of recipes for sure; they come from outside and are cut."""
    notes = list(dict.fromkeys(note for recipe in recipes for note in recipe.notes))
    for note in notes[:_MOST_NOTES]:
        # Notes are escaped where they were made; what is left to escape is none of their text.
        fit = note if note.isprintable() else printable(note)
        yield f"Note on the recipe: {shortened(fit, _NOTE_WIDTH)}"
    if len(notes) > _MOST_NOTES:
        yield f"Note: {len(notes) - _MOST_NOTES:,} more notes on recipes are in the evidence."


@contextlib.contextmanager
def _progress(terminal: Terminal) -> Generator[Callable[[int, int], None] | None, None, None]:
    """Show how many modules of a merged model are measured, once that begins."""
    if not terminal.shows_progress:
        yield None
        return
    with contextlib.ExitStack() as stack:
        bars: list[ProgressBar[int]] = []

        def advance(done: int, total: int) -> None:
            if not bars:
                bar = click.progressbar(length=total, label="Measuring modules", file=sys.stderr)
                bars.append(stack.enter_context(bar))
            bars[0].update(done - bars[0].pos)

        yield advance
