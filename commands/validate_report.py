"""What `validate` says to a person: the verdict first, then what it rests on, grouped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ..records.names import printable
from ..recover.adapter.keys import PREFIX
from ..recover.adapter.kinds import kind_of_module, layer_of
from ..recover.validation.coverage import OUTSIDE
from ..recover.validation.result import (
    Damage,
    DamageClass,
    ExpertCoverage,
    Kind,
    LayerCoverage,
    Mismatch,
    Validation,
)
from .frame import counted, shortened

_SHOWN = 10
_OF_EACH = 3
_NAME = 120
_LINE = 1000


def report(result: Validation, *, quiet: bool = False) -> str:
    """Give the lines in the order in which they matter."""
    lines = [_verdict(result)]
    if not quiet:
        lines += _faults(result)
        lines += _tables(result)
        lines += _listed("caution", [f"{w.message}" for w in result.warnings])
        lines += _listed("not checked", result.not_checked)
        lines += _loaders(result)
    return "\n".join(shortened(line, _LINE) for line in lines)


def _verdict(result: Validation) -> str:
    word = "OK" if result.ok else "NOT OK"
    what = {Kind.ADAPTER: "adapter", Kind.FULL: "full checkpoint"}.get(result.kind, "file")
    parts = [counted(result.found, "tensor")]
    if result.base is not None and result.expected:
        parts[0] = f"{result.found:,} of {counted(result.expected, 'expected tensor')} found"
        if result.found and not (result.missing or result.unexpected):
            parts[0] = f"all {counted(result.expected, 'expected tensor')} found"
        elif result.missing or result.unexpected:
            parts = [f"{result.expected:,} tensors expected, {result.found:,} found"]
        modules = result.modules
        name = "modules effective" if result.kind is Kind.ADAPTER else "weights whole"
        if modules.expected:
            parts.append(f"{modules.effective:,} of {modules.expected:,} {name}")
    if result.ranks:
        parts.append(f"rank {', '.join(map(str, result.ranks[:6]))}")
    if result.dtypes:
        parts.append(", ".join(result.dtypes[:6]))
    against = f" against {result.base}" if result.base else ""
    return f"{word}: {what} {result.label}{against}: {'; '.join(parts)}"


def _faults(result: Validation) -> Iterator[str]:
    yield from _damages(result)
    yield from _listed("claim", [f.message for f in result.config_faults if f.field == "claims"])
    others = [f.message for f in result.config_faults if f.field != "claims"]
    yield from _listed("configuration", others)
    renames = sorted(result.renames, key=lambda rename: -rename.tensors)
    for rename in renames[:_SHOWN]:
        before = _short(rename.before) or "(nothing)"
        after = _short(rename.after) or "(nothing)"
        yield (
            f"  rename: {counted(rename.tensors, 'name')} with {printable(rename.fault)}: "
            f"`{before}` should be `{after}`"
        )
    if len(renames) > _SHOWN:
        yield f"  … and {len(renames) - _SHOWN:,} more of rename (all with --json)"
    if result.found:
        yield from _missing(result)
    explained = {fault.field for fault in result.config_faults}
    yield from _grouped("unexpected", result.unexpected, _OF_EACH if explained else _SHOWN)
    yield from _mismatched(result.mismatched, _OF_EACH if "r" in explained else _SHOWN)


def _damages(result: Validation) -> Iterator[str]:
    """Show the first few of every class, so that none hides another."""
    classes: dict[DamageClass, list[Damage]] = {}
    for one in result.damage:
        classes.setdefault(one.kind, []).append(one)
    several = len(result.files) > 1
    for kind, members in classes.items():
        shown = _SHOWN if len(classes) == 1 else _OF_EACH
        for one in members[:shown]:
            yield f"  damage: {_damage(one, several)}"
        if len(members) > shown:
            yield f"  … and {len(members) - shown:,} more of {kind.value} (all with --json)"


def _damage(one: Damage, several: bool) -> str:
    place: list[str] = []
    if several and one.shard is not None and printable(one.shard) not in one.message:
        place.append(printable(one.shard))
    if one.offset is not None:
        place.append(f"offset {one.offset:,}")
        if one.bytes is not None:
            place.append(counted(one.bytes, "byte"))
    return f"{one.kind.value}: {one.message}" + (f" [{', '.join(place)}]" if place else "")


def _missing(result: Validation) -> Iterator[str]:
    lacking = [layer for layer in result.layers if layer.missing]
    named = {name for layer in lacking for name in layer.missing}
    yield from _grouped("missing", [name for name in result.missing if name not in named])
    # Neighbours that lack the same make one line.
    groups = [list(group) for _, group in groupby(lacking, key=_lack)]
    for group in groups[:_SHOWN]:
        first = group[0]
        yield (
            f"  {_span(group)}: {len(first.missing):,} of {first.expected:,} missing"
            + (" each" if len(group) > 1 else "")
            + (f" ({_names(first)})" if first.found or first.layer == OUTSIDE else "")
        )
    if len(groups) > _SHOWN:
        rest = sum(len(group) for group in groups[_SHOWN:])
        yield f"  … and {counted(rest, 'more layer')} with missing tensors"


def _lack(layer: LayerCoverage) -> tuple[object, ...]:
    stem = layer.layer.rpartition(".")[0]
    return (stem, layer.expected, _within(layer))


def _within(layer: LayerCoverage) -> tuple[str, ...]:
    return tuple(name.partition(f"{layer.layer}.")[2] or name for name in layer.missing)


def _span(group: Sequence[LayerCoverage]) -> str:
    ends = [layer.layer.rpartition(".")[2] for layer in (group[0], group[-1])]
    if not ends[0].isdigit():
        return printable(group[0].layer)
    return f"layer {ends[0]}" if len(group) == 1 else f"layers {ends[0]} to {ends[1]}"


def _names(layer: LayerCoverage) -> str:
    names = _within(layer)
    shown = ", ".join(printable(name)[:_NAME] for name in names[:3])
    return shown + (", …" if len(names) > 3 else "")


def _grouped(what: str, names: Sequence[str], most: int = _SHOWN) -> Iterator[str]:
    """Show names by kind, so that 36 layers make one line; too many kinds by layer."""
    kinds: dict[str, list[str]] = {}
    for name in names:
        kinds.setdefault(kind_of_module(name), []).append(name)
    if len(kinds) > _SHOWN and len(kinds) == len(names):
        kinds = {}
        for name in names:
            layer = layer_of(name.removeprefix(PREFIX))
            kinds.setdefault(name if layer is None else f"{layer}.*", []).append(name)
    rows = list(kinds.items())
    for kind, members in rows[:most]:
        if len(members) == 1:
            yield f"  {what}: {_short(members[0])}"
        else:
            yield f"  {what}: {_short(kind)} ({len(members):,} times)"
    if len(rows) > most:
        rest = sum(len(members) for _, members in rows[most:])
        yield f"  … and {counted(rest, 'more name')} {what}"


def _mismatched(found: Sequence[Mismatch], most: int) -> Iterator[str]:
    kinds: dict[tuple[str, str, str, str], list[str]] = {}
    for one in found:
        key = (kind_of_module(one.tensor), one.aspect, one.expected, one.found)
        kinds.setdefault(key, []).append(one.tensor)
    rows = list(kinds.items())
    for (kind, aspect, expected, actual), names in rows[:most]:
        name = _short(names[0]) if len(names) == 1 else f"{_short(kind)} ({len(names):,} times)"
        yield f"  {aspect}: {name} is {printable(actual)}, expected {printable(expected)}"
    if len(rows) > most:
        rest = sum(len(names) for _, names in rows[most:])
        yield f"  … and {counted(rest, 'more tensor')} with another shape or dtype"


def _tables(result: Validation) -> Iterator[str]:
    full = [layer for layer in result.layers if not layer.missing and layer.layer[-1:].isdigit()]
    if full:
        yield f"  layers: {len(full):,} complete"
    if result.experts:
        yield "  experts by layer:"
        rows = [_expert_row(one) for one in result.experts]
        # Neighbours that read alike make one line.
        shown = 0
        for text, group in groupby(rows, key=lambda row: row[1]):
            members = [row[0] for row in group]
            if shown == _SHOWN:
                yield "    …"
                break
            shown += 1
            span = members[0] if len(members) == 1 else f"{members[0]} to {members[-1]}"
            yield f"    {printable(span)}: {text}"
    if result.known_extras:
        yield f"  known extras: {counted(len(result.known_extras), 'tensor')}, such as " + _short(
            result.known_extras[0]
        )
    if result.naming:
        yield f"  naming: {printable(result.naming)}"
    if result.method and result.method != "LORA":
        yield f"  method: {printable(result.method)}"


def _expert_row(one: ExpertCoverage) -> tuple[str, str]:
    text = f"{one.present:,} of {one.experts:,}"
    if one.incomplete and one.present:
        listed = ", ".join(map(str, one.incomplete[:_SHOWN]))
        text += f"; without {listed}" + (", …" if one.incomplete[_SHOWN:] else "")
    return one.layer.rpartition(".")[2], text


def _listed(what: str, lines: Sequence[str]) -> Iterator[str]:
    for line in lines[:_SHOWN]:
        yield f"  {what}: {line}"
    if len(lines) > _SHOWN:
        yield f"  … and {len(lines) - _SHOWN:,} more of {what} (all with --json)"


def _loaders(result: Validation) -> Iterator[str]:
    if result.load_check is not None:
        yield f"  load check: {_pairs(result.load_check.items())}"
    for one in result.loaders or ():
        said = {key: str(value) for key, value in one.items() if value}  # fit to print already
        yield (
            f"  {said['loader']} ({said['version']}) {said['outcome']}: {said['message']}"
            + (f" {said['effect'][:1].upper()}{said['effect'][1:]}." if "effect" in said else "")
        )


def _pairs(items: Iterable[tuple[str, object]]) -> str:
    return "; ".join(
        f"{printable(key)} {shortened(printable(str(value)), 200)}"
        for key, value in items
        if value not in (None, "", (), [])
    )


def _short(name: str) -> str:
    return printable(shortened(name, _NAME))
