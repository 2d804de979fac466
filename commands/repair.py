"""`reef-recover repair`."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import ExitCode, Unusable
from ..records.names import printable
from .frame import Terminal, counted, declare, with_options

if TYPE_CHECKING:
    from ..recover.adapter.statement import Recipe
    from ..recover.ranges import Range
    from ..recover.repair.copies import Copy
    from ..recover.repair.header_sources import HeaderSources
    from ..recover.repair.places import Place
    from ..recover.repair.result import Change, Damaged, Repair
    from ..recover.repair.stage import Plan, Request

_SHOWN = 12
_RANGE = re.compile(r"([0-9]{1,19}):([0-9]{1,19})")
_OF_A_BASE = (".safetensors", ".json")
_READ_BESIDE = re.compile(r"(?:adapter_config|recovery|.*\.index)\.json")
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")


@dataclass(frozen=True)
class _Options:
    path: str
    others: tuple[str, ...]
    like: tuple[str, ...]
    manifests: tuple[str, ...]
    base: str | None
    recipes: tuple[str, ...]
    settings: tuple[str, ...]
    index: str | None
    damaged: tuple[str, ...]
    only_ranges: bool
    check: bool
    expect_sha256: str | None
    out: str | None
    force: bool


@declare(
    "repair",
    help_text="""Rebuild a damaged checkpoint into a new file, with a record of each change.

    PATH is a safetensors file, a dump folder with one, or PID:GLOB. A lost header is written anew,
    byte for byte as the library writes it: from a sibling checkpoint (--like), a manifest, or the
    base model and what is known of the adapter; what is not known, the size of the file decides.
    Every surviving byte of the head must agree. Further dumps (--with) are joined page by page: a
    page is taken only where every other copy is proven to be wrong there, otherwise it is a
    conflict, and nothing is written. Zeros that no tensor can hold, and what a rescue map lists as
    unread, are named by tensor and element.

    PATH itself is never written to. The result is OUT, with OUT.recovery.json beside it. The exit
    code is 0 where a digest known beforehand proves the result (REBUILT_VERIFIED) or where nothing
    was to be repaired and nothing is in doubt (a record beside it that does not vouch for these
    bytes, other metadata, single NaNs), and 1 for all else: REBUILT_UNVERIFIED, PARTIAL, a
    conflict.""",
    examples="""
reef-recover repair adapter_model.safetensors --like ../step_7/adapter_model.safetensors
reef-recover repair damaged.safetensors --base Qwen/Qwen3-8B --recipe serve.yaml
reef-recover repair damaged.safetensors --base base/config.json --set r=32 --set dtype=BF16
reef-recover repair model-00002-of-00004.safetensors --base Qwen/Qwen3-8B    # index beside it
reef-recover repair first-dump --with second-dump --out whole.safetensors
reef-recover repair damaged.safetensors --manifest manifest.json --expect-sha256 9f86d0…
reef-recover repair damaged.safetensors --like old.safetensors --damaged 4096:8192 --ranges
""",
)
@with_options(
    click.argument("path"),
    click.option(
        "--with", "others", multiple=True, metavar="PATH", help="A further dump of the same file."
    ),
    click.option(
        "--like", multiple=True, metavar="PATH", help="A checkpoint of the same run and layout."
    ),
    click.option(
        "--manifest", "manifests", multiple=True, metavar="FILE", help="One that kept the header."
    ),
    click.option("--base", metavar="BASE", help="config.json, a folder, or a Hub id."),
    click.option(
        "--recipe", "recipes", multiple=True, metavar="FILE", help="What the adapter was made by."
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="State r, target_modules, dtype, …; wins over recipes.",
    ),
    click.option(
        "--index",
        metavar="FILE",
        help="The index that names this shard.  [default: the one beside it]",
    ),
    click.option(
        "--damaged",
        "--map-range",
        "damaged",
        multiple=True,
        metavar="START:END",
        help="Bytes of PATH that are not to be trusted.",
    ),
    click.option(
        "--ranges",
        "only_ranges",
        is_flag=True,
        help="Only name the tensors and elements that are damaged; write nothing.",
    ),
    click.option("--check", is_flag=True, help="Say what would be changed; write nothing."),
    click.option("--expect-sha256", metavar="HEX", help="The digest that the file must have."),
    click.option("--out", "-o", metavar="PATH", help="The new file.  [default: PATH.repaired]"),
    click.option("--force", is_flag=True, help="Overwrite what is at the destination."),
)
def command(
    terminal: Terminal,
    path: str,
    others: tuple[str, ...],
    like: tuple[str, ...],
    manifests: tuple[str, ...],
    base: str | None,
    recipes: tuple[str, ...],
    settings: tuple[str, ...],
    index: str | None,
    damaged: tuple[str, ...],
    only_ranges: bool,
    check: bool,
    expect_sha256: str | None,
    out: str | None,
    force: bool,
) -> int:
    """Work the repair out, write it, and say what it rests on."""
    from ..recover.repair import stage

    asked = _Options(
        path=path,
        others=others,
        like=like,
        manifests=manifests,
        base=base,
        recipes=recipes,
        settings=settings,
        index=index,
        damaged=damaged,
        only_ranges=only_ranges,
        check=check,
        expect_sha256=expect_sha256,
        out=out,
        force=force,
    )
    if asked.expect_sha256 is not None and not _SHA256.fullmatch(asked.expect_sha256):
        raise Unusable("--expect-sha256 takes 64 hexadecimal digits.")
    with _opened(asked) as request:
        if asked.only_ranges or asked.check:
            result = stage.check_digest(stage.plan(request))
        else:
            target = _out(asked, request.copies[0])
            inputs = tuple(_inputs(asked, request.copies))
            with stage.open_destination(target, request.copies, inputs, force=asked.force) as place:
                worked_out = stage.plan(request)
                if worked_out.writes:
                    result = stage.write(worked_out, place)
                    _record(terminal, asked, request, worked_out, result)
                else:
                    result = stage.check_digest(worked_out)
    terminal.document(result.to_json())
    _say(terminal, result, asked)
    if asked.check and result.changes:
        return ExitCode.DOES_NOT_HOLD
    return result.exit_code


def _record(
    terminal: Terminal, asked: _Options, request: Request, worked_out: Plan, result: Repair
) -> None:
    """Add a link to the chain of custody, or say why there is none."""
    from ..recover.custody.of_repair import repaired
    from ..recover.custody.place import chain_folder

    assert result.path is not None and worked_out.composed is not None
    named = (*asked.manifests, *asked.recipes, asked.base, asked.index)
    warning = repaired(
        chain_folder(Path(result.path).parent),
        request.copies,
        worked_out.composed,
        result,
        [Path(name) for name in named if name],
    )
    if warning is not None:
        terminal.warn(warning)


@contextlib.contextmanager
def _opened(asked: _Options) -> Generator[Request, None, None]:
    """Open every copy, and gather what is known of the header."""
    from ..recover.operands import names_a_process, open_operand
    from ..recover.repair.copies import copy_of
    from ..recover.repair.stage import Request
    from ..recover.routes import Wanted

    stated = tuple(map(_range, asked.damaged))
    with contextlib.ExitStack() as stack:
        copies: list[Copy] = []
        for number, operand in enumerate((asked.path, *asked.others)):
            readable = stack.enter_context(open_operand(operand, Wanted.AUTO))
            path = None if names_a_process(operand) else _file(Path(operand))
            copies.append(copy_of(readable, path, () if number else stated))
        first = copies[0].path
        sources = _sources(asked, first)
        mode = 0o600 if first is None else stat.S_IMODE(os.stat(first).st_mode) & 0o777
        yield Request(
            copies=tuple(copies),
            candidates=sources.candidates,
            tied=sources.base.tied if sources.base else {},
            expected_sha256=asked.expect_sha256 and asked.expect_sha256.lower(),
            mode=mode,
        )


def _file(path: Path) -> Path:
    from ..recover.operands import only_file

    return only_file(path) if path.is_dir() else path


def _sources(asked: _Options, first: Path | None) -> HeaderSources:
    """Gather what can say what the header was."""
    from ..recover.repair.header_sources import HeaderSources, weight_map_for
    from ..recover.repair.known_headers import open_sibling
    from ..recover.repair.stated import stated

    base = None
    recipes: list[Recipe] = []
    if asked.base is not None:
        from ..recover.base.open import open_base

        base = open_base(asked.base)
        recipes = list(_recipes(asked, first))
    elif asked.settings or asked.recipes:
        raise Unusable(
            "--set and --recipe say nothing about shapes without the base model.",
            remedy="Name it with --base: a config.json, a folder with safetensors, or a Hub id.",
        )
    index = None if asked.index is None else Path(asked.index)
    return HeaderSources(
        name=None if first is None else first.name,
        siblings=tuple(open_sibling(Path(each)) for each in asked.like),
        manifests=tuple(Path(each) for each in asked.manifests),
        base=base,
        stated=stated(asked.settings, recipes),
        weight_map=weight_map_for(first, index) if first is not None and base else {},
    )


def _inputs(asked: _Options, copies: Sequence[Copy]) -> Iterator[Path]:
    """Name every file that is read besides the copies: none is ever written to."""
    named = (*asked.like, *asked.manifests, *asked.recipes, asked.base, asked.index)
    yield from (Path(name) for name in named if name)
    if asked.base is not None and os.path.isdir(asked.base):
        yield from (path for path in Path(asked.base).iterdir() if path.suffix in _OF_A_BASE)
    for path in (copy.path for copy in copies if copy.path is not None):
        for name in {path.name, path.name.removesuffix(".partial")}:
            yield path.with_name(f"{name}.recovery.json")
            yield path.with_name(f"{name}.rescue.map")
        beside = path.parent
        yield from (beside / name for name in os.listdir(beside) if _READ_BESIDE.fullmatch(name))


def _recipes(asked: _Options, first: Path | None) -> Iterator[Recipe]:
    """Read the recipes named; where nothing is stated, the adapter_config.json beside the file."""
    from ..recover.adapter.recipes.read import read_recipe

    paths = [Path(each) for each in asked.recipes]
    if not paths and not asked.settings and first is not None:
        paths = [place for place in [first.with_name("adapter_config.json")] if place.is_file()]
    for path in paths:
        yield read_recipe(path)


def _range(text: str) -> Range:
    from ..recover.ranges import Range

    found = _RANGE.fullmatch(text)
    if found is None or int(found[1]) >= int(found[2]):
        raise Unusable(
            f"--damaged {printable(text[:60])} is no range.",
            remedy="Write --damaged START:END, in bytes of the file, the end not included.",
        )
    return Range(int(found[1]), int(found[2]))


def _out(asked: _Options, copy: Copy) -> Path:
    if asked.out is not None:
        return Path(asked.out)
    if copy.path is not None:
        return copy.path.with_name(f"{copy.path.name}.repaired")
    name = asked.path.partition(":")[2].rpartition("/")[2].strip("*?") or "checkpoint"
    return Path(f"{name}.repaired")


def _say(terminal: Terminal, result: Repair, asked: _Options) -> None:
    """Print the verdict or the ranges as the product, and the rest as news."""
    header = result.header
    if header is not None:
        rebuilt = "rebuilt from" if header.rebuilt else "as in"
        terminal.say(f"Header: {counted(header.tensors, 'tensor')}, {rebuilt} {header.origin}.")
    for note in (*result.notes, *result.doubts):
        terminal.warn(note)
    if not asked.only_ranges:
        for line in _lines(result):
            terminal.product(line)
        return
    for damaged in result.damaged:
        terminal.product(_damaged(damaged))
    for line in _undecided(result):
        terminal.product(line)
    if not result.damaged and result.is_settled:
        terminal.product("No damaged range is known.")


def _lines(result: Repair) -> Iterator[str]:
    verdict = result.verdict.value if result.verdict else "NOTHING_TO_REPAIR"
    yield f"{verdict}  {printable(result.path)}" if result.path else verdict
    yield from _undecided(result)
    if result.changes and not result.path:
        yield "  Nothing was written."
    if result.is_settled:
        yield from _some([f"  {_change(change)}" for change in result.changes])
    lost = [damaged for damaged in result.damaged if not damaged.restored]
    if lost:
        count = sum(damaged.place.bytes for damaged in lost)
        said = "could not be restored" if result.is_settled else "are not restored"
        yield f"  {count:,} bytes are damaged and {said}:"
        yield from _some([f"    {_damaged(damaged)}" for damaged in lost])
        if result.zero_tensors:
            yield f"  Of {counted(len(result.zero_tensors), 'tensor')} nothing is left but zeros."
        total = result.header.tensors if result.header else 0
        yield f"  {result.whole_tensors:,} of {total:,} tensors are whole."
        if len(result.sources) == 1:
            yield "  A second dump, given with --with, can restore them."
    if result.verdict is None and result.exit_code and result.matches_expected is None:
        yield "  Nothing in it is proven wrong, but that it is the file is in doubt."
    if result.matches_expected is not None:
        yield "  The sha256 is " + ("as" if result.matches_expected else "NOT as") + " expected."


def _undecided(result: Repair) -> Iterator[str]:
    """Say what is in the way of any result."""
    if result.candidates:
        yield f"  {len(result.candidates)} headers fit, and nothing decides between them:"
        yield from _some([f"    {candidate}" for candidate in result.candidates])
        yield "  State more with --set, or name a sibling with --like."
    if result.conflicts:
        yield "  The copies differ here, and neither is proven wrong:"
        yield from _some([f"    {_place(place)}" for place in result.conflicts])
        labels = " and ".join(source.label for source in result.sources[1:])
        first = result.conflicts[0]
        yield (
            f"  If {result.sources[0].label} is wrong there, state it: "
            f"--damaged {first.offset}:{first.offset + first.bytes}. If {labels} is, leave it out, "
            "or name it first and state it so."
        )


def _some(lines: list[str]) -> Iterator[str]:
    yield from lines[:_SHOWN]
    if len(lines) > _SHOWN:
        yield f"    … and {len(lines) - _SHOWN:,} more; --json lists them."


def _change(change: Change) -> str:
    where = f"{change.range.start:,} to {change.range.stop:,}"
    return f"{change.what}, {where}: from {change.source} ({change.how_known})"


def _damaged(damaged: Damaged) -> str:
    return f"{_place(damaged.place)}: {damaged.reason}"


def _place(place: Place) -> str:
    where = f"bytes {place.offset:,} to {place.offset + place.bytes:,}"
    if place.tensor is None or place.first_element is None or place.elements is None:
        return f"header, {where}"
    last = place.first_element + place.elements
    return f"{printable(place.tensor)}, elements {place.first_element:,} to {last:,}, {where}"
