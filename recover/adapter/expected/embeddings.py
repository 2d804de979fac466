"""What PEFT saves of embeddings besides a LoRA: trained tokens, and all of a resized vocabulary."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import cast

from ...base.model import Base, ModuleKind
from ..keys import Part, tensor_name
from ..structure import Adapter
from .expectation import Shape
from .whole import TOKENS, copies


def trained_tokens(base: Base, config: Mapping[str, object]) -> dict[str, frozenset[int]]:
    """Map each embedding some of whose rows are trained to their numbers, as peft 0.21 wraps them.

    Names are compared by their last letters. A tied head that trains the same rows as its
    embedding shares them, and nothing is saved for it.
    """
    indices = config.get("trainable_token_indices")
    if not indices:
        return {}
    if isinstance(indices, list):
        name = base.input_embedding or "embed_tokens"
        indices = {name: cast("list[object]", indices)}
    if not isinstance(indices, dict):
        return {}
    found: dict[str, frozenset[int]] = {}
    for end, tokens in cast("dict[str, object]", indices).items():
        if isinstance(tokens, list):
            numbers = frozenset(n for n in cast("list[object]", tokens) if isinstance(n, int))
            found |= {module: numbers for module in base.modules if module.endswith(end)}
    head, embedding = base.output_embedding, base.input_embedding
    if base.tied and head in found and found[head] == found.get(embedding or ""):
        del found[head]
    return found


def tied_tokens(base: Base, whole: Mapping[str, Shape]) -> dict[str, Shape | None]:
    """Allow the trained tokens of a tied head, which PEFT saves apart in a resized vocabulary."""
    if not (base.tied and base.input_embedding and base.output_embedding):
        return {}
    delta = whole.get(tensor_name(base.input_embedding, Part.TOKEN_DELTA))
    head = tensor_name(base.output_embedding, Part.TOKEN_DELTA)
    return {} if delta is None or head in whole else {head: delta}


def embeddings_saved(
    adapter: Adapter, base: Base, targeted: Collection[str]
) -> tuple[dict[str, Shape], dict[str, Shape | None]]:
    """Give what must be there of the embeddings of a resized vocabulary, and what may.

    One of them saved whole shows that PEFT saved them, and then it saves both, but only those that
    have a LoRA where one has (`get_peft_model_state_dict` of peft 0.21 with
    `save_embedding_layers`, measured). `base` has the rows that the vocabulary was resized to.
    """
    places = {
        name: base.modules[name]
        for name in (base.input_embedding, base.output_embedding)
        if name is not None and name in base.modules
    }
    optional: dict[str, Shape | None] = {}
    required: dict[str, Shape] = {}
    spared: dict[str, Shape] = {}  # saved too where PEFT does not know the other for an embedding
    lora = [name for name in places if name in targeted]
    for name, module in places.items():
        embedding = module.kind is ModuleKind.EMBEDDING
        rows = module.inputs if embedding else module.outputs
        shape = (rows, module.outputs if embedding else module.inputs)
        optional |= copies(name, shape) if name in adapter.whole else {}
        if name in lora:
            stored = tensor_name(name, Part.BASE_WEIGHT)
            optional[stored] = shape
        elif name in adapter.token_deltas:
            stored = tensor_name(name + TOKENS, Part.BASE_WEIGHT)
            optional[stored] = shape
        else:
            stored = tensor_name(name, Part.WHOLE, 0, "weight")
        if name in lora or not lora:
            required[stored] = shape
        else:
            spared[stored] = shape
    known = places.get(base.input_embedding or "")
    resized = known is not None and base.vocab_size is not None and known.inputs != base.vocab_size
    if not resized:
        return {}, optional
    optional |= spared
    if base.tied or required.keys().isdisjoint(adapter.tensors):
        return {}, optional | required
    return required, optional
