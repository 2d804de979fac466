"""Judge runs of zeros: lawful where a tensor starts or stays at zero, damage anywhere else.

A matrix that starts at random values never holds 4 KiB of zeros. lora_B (and the A of an
embedding) starts at zero, and one whole tensor may stay there, as for an expert that was never
used; a part of one that is zero is damage. Of a whole checkpoint, rows of embeddings and biases
may be zero, and pruned rows; what begins or ends inside a row, or takes in the border between two
matrices, is damage.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..adapter.keys import Part, parse_key
from ..formats.safetensors import Header, Tensor
from ..ranges import Range, merge
from ..validation.zeros import LONG, long_runs, zero_runs
from .copies import Copy
from .places import TensorMap

BLOCK = 1 << 20
_NOT_FLOATS = ("BOOL", "I", "U")
_ZERO_AT_FIRST = (Part.B, Part.EMBEDDING_A, Part.B_BIAS)
_NEVER_ZERO = (Part.A, Part.EMBEDDING_B, Part.MAGNITUDE)
_ROWS_MAY_BE_ZERO = re.compile(r"embed|wte|wpe|lm_head|shared\.|output\.weight|bias")
_STEP = 1024
_ZEROS = bytes(_STEP)
_BY_CHANCE = 64  # so many bytes of zeros at the end of a tensor are no accident of its values


def zero_damage(copy: Copy, tensors: TensorMap) -> tuple[Range, ...]:
    """Give the runs of 4 KiB and more of zeros in a copy that the file cannot have held.

    Reads the whole copy once, in blocks.
    """
    runs = _runs(copy, tensors.header)
    behind = _behind_lost_head(copy, tensors, _parts_all_zero(runs, tensors))
    return merge([*_damaging(runs, tensors), *behind])


def _behind_lost_head(copy: Copy, tensors: TensorMap, lawful: frozenset[Part]) -> tuple[Range, ...]:
    """Give the zeros with which the data begins where the head before it ends in zeros."""
    start = tensors.header.data_start
    if copy.size <= start or copy.read(start - 1, 1) != b"\0":
        return ()
    block = copy.read(start, min(BLOCK, copy.size - start, tensors.header.file_size - start))
    run = Range(start, start + len(block) - len(block.lstrip(b"\0")))
    kinds = {_part(tensor)[0] for tensor, _ in tensors.tensors_in(run)}
    return () if run.size < _BY_CHANCE or kinds <= lawful else (run,)


def _runs(copy: Copy, header: Header) -> tuple[Range, ...]:
    end = min(copy.size, header.file_size)

    def pieces() -> Iterator[Range]:
        for offset in range(header.data_start, end, BLOCK):
            block = copy.read(offset, min(BLOCK, end - offset))
            found = zero_runs(block) if _has_zero_step(block) else _at_the_ends(block)
            yield from (Range(offset + r.start, offset + r.stop) for r in found)

    return long_runs(pieces())


def _has_zero_step(block: bytes) -> bool:
    """Tell at one look a KiB whether a long run can lie inside; it covers whole KiB anywhere."""
    firsts = block[::_STEP]
    at = firsts.find(0)
    while at >= 0:
        if block.startswith(_ZEROS, at * _STEP):
            return True
        at = firsts.find(0, at + 1)
    return False


def _at_the_ends(block: bytes) -> Iterator[Range]:
    """Give the zeros at the ends of a block, which may go on in the next; most have none."""
    if block[0] == 0:
        yield Range(0, len(block) - len(block.lstrip(b"\0")))
    if block[-1] == 0:
        yield Range(len(block.rstrip(b"\0")), len(block))


def _damaging(runs: tuple[Range, ...], tensors: TensorMap) -> Iterator[Range]:
    """Keep the runs that are damage."""
    lawful = _parts_all_zero(runs, tensors)
    for run in runs:
        parts = tuple(_beyond_chance(tensors.tensors_in(run)))
        alone = any(_is_damage(t, part, tensors.header, lawful) for t, part in parts)
        if alone or _crosses_matrices(tuple(t for t, _ in parts), lawful):
            yield run


def _beyond_chance(parts: Iterable[tuple[Tensor, Range]]) -> Iterator[tuple[Tensor, Range]]:
    return ((t, part) for t, part in parts if part.size >= min(_BY_CHANCE, t.nbytes))


def _is_damage(tensor: Tensor, part: Range, header: Header, lawful: frozenset[Part]) -> bool:
    """Tell whether this tensor by itself cannot lawfully hold these zeros."""
    if tensor.dtype.startswith(_NOT_FLOATS) or part.size < min(LONG, tensor.nbytes):
        return False
    kind, module = _part(tensor)
    if kind in lawful:
        return False
    whole = part.size == tensor.nbytes
    if kind in _NEVER_ZERO:
        return True
    if kind in _ZERO_AT_FIRST:
        return not whole and _ROWS_MAY_BE_ZERO.search(module) is None
    return _is_matrix(tensor) and not whole and not _on_rows(tensor, part, header)


def _crosses_matrices(touched: tuple[Tensor, ...], lawful: frozenset[Part]) -> bool:
    """Tell whether zeros go on from one tensor to the next, and one of them is a matrix."""
    kinds = {_part(tensor)[0] for tensor in touched}
    return len(touched) > 1 and not kinds <= lawful and any(map(_is_matrix, touched))


def _part(tensor: Tensor) -> tuple[Part, str]:
    key = parse_key(tensor.name)
    return (key.part, key.module) if key is not None else (Part.WHOLE, tensor.name)


def _is_matrix(tensor: Tensor) -> bool:
    """Tell a weight whose rows are all used; of integers nothing is known."""
    return (
        not tensor.dtype.startswith(_NOT_FLOATS)
        and len(tensor.shape) > 1
        and _ROWS_MAY_BE_ZERO.search(tensor.name) is None
    )


def _on_rows(tensor: Tensor, part: Range, header: Header) -> bool:
    """Tell whether zeros begin and end where rows do."""
    row = tensor.nbytes // tensor.shape[0]
    begin = header.span(tensor).start
    return row > 0 and (part.start - begin) % row == 0 and (part.stop - begin) % row == 0


def _parts_all_zero(runs: tuple[Range, ...], tensors: TensorMap) -> frozenset[Part]:
    """Name the parts that are zero throughout the adapter: lora_B at step 0, lora_A of MiCA.

    Never both halves of the updates: then nothing is left, and that is damage.
    """
    whole = {
        tensor.name
        for run in runs
        for tensor, part in tensors.tensors_in(run)
        if part.size == tensor.nbytes
    }
    present: dict[Part, list[bool]] = {}
    for tensor in tensors.header.tensors:
        kind = _part(tensor)[0]
        if kind is not Part.WHOLE and tensor.nbytes >= LONG:
            present.setdefault(kind, []).append(tensor.name in whole)
    zero = {kind for kind, states in present.items() if all(states)}
    return frozenset() if {Part.A, Part.B} <= zero else frozenset(zero)
