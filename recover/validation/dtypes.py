"""Hold dtypes against the base's, and against those of the same tensor in other layers.

One byte of a header makes F16 of BF16, or an integer of a float; all names, shapes and sizes stay.
A person or a trainer casts whole kinds (norms, routers, embeddings), never one layer's tensor.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping

from ..adapter.keys import Part
from ..adapter.kinds import kind_of_module
from ..adapter.structure import Adapter
from ..base.model import Base
from ..formats.safetensors import Tensor
from .compare_names import FLOATS
from .result import Caution, Mismatch

SCALES = (".absmax", "_scale", "_scale_inv", ".quant_map", "_scale_2")
_PAIR = (Part.A, Part.B)
_ANY_FLOAT = "a float"
_HALVES = ("BF16", "F16")


def model_dtypes(
    found: Mapping[str, Tensor],
    base: Base,
    extras: frozenset[str],
    packed: frozenset[str],
    cautions: list[Caution],
) -> list[Mismatch]:
    """Judge the dtypes of a full checkpoint: a cast of whole kinds is worth a word, no more.

    Where config.json does not say the base's dtype, what most layers have stands for it. Integers
    stand for floats only where a scale lies beside them or the base is quantised.
    """
    judged = {
        name: tensor.dtype
        for name, tensor in found.items()
        if name in base.tensors and name not in extras and name not in packed
    }
    plain = [name for name in judged if not any(f"{name}{end}" in found for end in SCALES)]
    known = {name: dtype for name in judged if (dtype := base.tensors[name].dtype) is not None}
    mismatched = [
        Mismatch(name, "dtype", known.get(name, _ANY_FLOAT), judged[name])
        for name in plain
        if _is_no_float(judged[name], known.get(name), base)
    ]
    mismatched += _swapped({name: judged[name] for name in plain}, known)
    bad = {one.tensor for one in mismatched}
    others = [name for name in known if judged[name] != known[name] and name not in bad]
    mismatched += _partial_casts(others, judged, known, plain, cautions)
    guessed = {n: judged[n] for n in plain if n not in known and n not in bad}
    floats = {name: dtype for name, dtype in guessed.items() if dtype in FLOATS}
    return [*mismatched, *_minorities(floats, kind_of_module)]


def adapter_dtypes(adapter: Adapter) -> list[Mismatch]:
    """Find tensors with another dtype than in other layers, or than the other half of their LoRA.

    PEFT 0.21.2 gives both matrices of a LoRA one dtype, whatever that of the layer is.
    """
    kinds: dict[str, Hashable] = {
        name: (kind_of_module(key.module), key.part, key.leaf, key.depth)
        for name, key in adapter.keys.items()
    }
    dtypes = {name: adapter.tensors[name].dtype for name in kinds}
    if len(set(dtypes.values())) < 2:
        return []
    floats = {name: dtype for name, dtype in dtypes.items() if dtype in FLOATS}
    halves = {name: dtype for name, dtype in floats.items() if adapter.keys[name].part in _PAIR}
    pairs = _minorities(halves, lambda name: (adapter.keys[name].module, adapter.keys[name].depth))
    found = {one.tensor: one for one in (*pairs, *_minorities(floats, kinds.__getitem__))}
    return list(found.values())


def _is_no_float(after: str, before: str | None, base: Base) -> bool:
    """Tell a dtype that stands for a weight and cannot hold one."""
    if after in FLOATS or after == before:
        return False
    if before is None:
        return not (base.config or {}).get("quantization_config")
    return True


def _swapped(plain: Mapping[str, str], known: Mapping[str, str]) -> Iterator[Mismatch]:
    """Find BF16 for F16, or the reverse, in a tensor that no layer repeats.

    Its size stays as it is, and nobody casts the head alone from one to the other.
    """
    halves = Counter(dtype for dtype in plain.values() if dtype in _HALVES)
    if len(halves) < 2:
        return
    usual = halves.most_common(1)[0][0]
    sizes = Counter(kind_of_module(name) for name in plain)
    for name, dtype in plain.items():
        alone = sizes[kind_of_module(name)] == 1
        if alone and dtype in _HALVES and dtype != usual and known.get(name, usual) == usual:
            yield Mismatch(name, "dtype", usual, dtype)


def _partial_casts(
    others: list[str],
    judged: Mapping[str, str],
    known: Mapping[str, str],
    plain: list[str],
    cautions: list[Caution],
) -> list[Mismatch]:
    """Accept another dtype than the base's where the whole kind has it, or a scale tells why."""
    if not others:
        return []
    sizes = Counter((kind_of_module(name), before) for name, before in known.items())
    unscaled = set(plain)
    changed: dict[tuple[str, str], dict[str, list[str]]] = {}
    for name in others:
        group = changed.setdefault((known[name], judged[name]), {})
        group.setdefault(kind_of_module(name), []).append(name)
    mismatched: list[Mismatch] = []
    for (before, after), kinds in changed.items():
        whole = 0
        for kind, names in kinds.items():
            cast = len(names) == sizes[kind, before] and after in FLOATS
            if cast or unscaled.isdisjoint(names):
                whole += len(names)
            else:
                mismatched += (Mismatch(name, "dtype", before, after) for name in names)
        if whole:
            text = f"{whole:,} tensors are {after} and those of the base {before}: a cast."
            cautions.append(Caution("cast", text))
    return mismatched


def _minorities(dtypes: Mapping[str, str], kind_of: Callable[[str], Hashable]) -> list[Mismatch]:
    """Find the tensors that have not the dtype of most of their kind; the file breaks a tie."""
    kinds: dict[Hashable, dict[str, str]] = defaultdict(dict)
    for name, dtype in dtypes.items():
        kinds[kind_of(name)][name] = dtype
    everywhere = Counter(dtypes.values())
    mismatched: list[Mismatch] = []
    for members in kinds.values():
        counted = Counter(members.values())
        if len(counted) > 1:
            usual = max(counted, key=lambda dtype: (counted[dtype], everywhere[dtype]))
            mismatched += (
                Mismatch(name, "dtype", usual, dtype)
                for name, dtype in members.items()
                if dtype != usual
            )
    return mismatched
