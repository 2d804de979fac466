"""`reef-recover compare`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from ..errors import ExitCode
from ..records.names import printable
from ..recover.comparison.result import Cast, Comparison, FirstDifference, Result, TensorDifference
from ..recover.routes import Wanted
from .frame import Terminal, declare, with_options

_TENSORS_SHOWN = 10
_ACCEPTED = {
    "bytes": (Result.BYTE_IDENTICAL,),
    "values": (Result.BYTE_IDENTICAL, Result.RE_SERIALISED, Result.VALUE_IDENTICAL),
}


@declare(
    "compare",
    help_text="""Compare two checkpoints: bytes, then values as integers.

    A and B are files, dump folders, or PID:GLOB for a file that a process maps. The result is
    one of: byte-identical; re-serialised (the same tensors in another order or header);
    value-identical (only -0.0 and NaN payloads differ); cast (one is the other, rounded to
    another dtype); different, with the first tensor and element, counts and the largest distance
    in ulps. Integers are compared, never floats.

    The exit code is 0 for byte-identical; with --level values also for value-identical and
    re-serialised. All else is 1.""",
    examples="""
reef-recover compare recovered-4242 second-dump
reef-recover compare a.safetensors b.safetensors --level values
reef-recover compare backup.safetensors '4242:*step_8*'    # the file that it mapped
reef-recover compare backup.safetensors '4242:*step_8*' --source memory    # what it serves
reef-recover compare '4242:*step_8*' '4243:*step_8*' --source memory
""",
)
@with_options(
    click.argument("a"),
    click.argument("b"),
    click.option(
        "--level",
        type=click.Choice(list(_ACCEPTED)),
        default="bytes",
        show_default=True,
        help="What must be the same for exit code 0.",
    ),
    click.option(
        "--source",
        type=click.Choice([w.value for w in Wanted]),
        default=Wanted.AUTO.value,
        show_default=True,
        help="For PID:GLOB: read the file, or what the process sees of it.",
    ),
)
def command(terminal: Terminal, a: str, b: str, level: str, source: str) -> int:
    """Compare, and say where the first difference is."""
    from ..recover.compare import compare, compare_folders
    from ..recover.operands import names_a_process, open_operand

    doubts: list[str] = []
    if all(not names_a_process(side) and Path(side).is_dir() for side in (a, b)):
        comparison = compare_folders(Path(a), Path(b))
    else:
        with open_operand(a, Wanted(source)) as left, open_operand(b, Wanted(source)) as right:
            comparison = compare(left, right)
            doubts = [side.doubt for side in (left, right) if side.doubt]
    terminal.document(comparison.to_json())
    for line in _lines(comparison):
        terminal.product(line)
    for doubt in doubts:
        terminal.warn(f"Not proven: {doubt}")
    accepted = comparison.result in _ACCEPTED[level] and not doubts
    return ExitCode.HOLDS if accepted else ExitCode.DOES_NOT_HOLD


def _lines(comparison: Comparison) -> Iterator[str]:
    yield comparison.result.value
    if comparison.re_serialised:
        yield "  The header, the order of the tensors or bytes behind them are not the same."
    if comparison.note:
        yield f"  {comparison.note}"
    for file, one in comparison.files or ():
        yield f"  {one.result.value}  {printable(file)}"
    for cast in dict.fromkeys(comparison.casts):
        yield f"  {_cast(cast)}"
    first = comparison.first_difference
    if first is not None:
        yield f"  First difference: {_first(first)}"
    for tensor in comparison.different_tensors[:_TENSORS_SHOWN]:
        yield f"  {_tensor(tensor)}"
    more = len(comparison.different_tensors) - _TENSORS_SHOWN
    if more > 0:
        yield f"  … and {more} more tensors."
    for side, names in (("A", comparison.only_in_a), ("B", comparison.only_in_b)):
        if names:
            shown = ", ".join(printable(name) for name in names[:_TENSORS_SHOWN])
            yield f"  Only in {side} ({len(names)}): {shown}" + ("…" if len(names) > 10 else "")


def _first(first: FirstDifference) -> str:
    parts = [printable(first.file)] if first.file is not None else []
    if first.tensor is not None:
        parts.append(f"tensor {printable(first.tensor)}")
    if first.element is not None:
        parts.append(f"element {first.element:,}")
    if first.offset is not None:
        parts.append(f"byte {first.offset:,} of A")
    return ", ".join(parts) or "a file that only one side has"


def _tensor(tensor: TensorDifference) -> str:
    where = f"{printable(tensor.file)}: " if tensor.file is not None else ""
    counts = f"{tensor.different_elements:,} of {tensor.elements:,} {tensor.dtype} elements differ"
    if tensor.max_ulp is not None:
        counts += f", by {tensor.max_ulp:,} ulp at most"
    reason = f" ({tensor.reason})" if tensor.reason else ""
    return f"{where}{printable(tensor.tensor)}: {counts}{reason}"


def _cast(cast: Cast) -> str:
    holder = {"a": "A holds", "b": "B holds", "either": "either may be"}[cast.source]
    dtypes = f"{cast.from_dtype} to {cast.to_dtype}"
    return f"Cast {dtypes}, rounded to nearest even; {holder} the original."
