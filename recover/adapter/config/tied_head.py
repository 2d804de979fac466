"""Tell whether the head's LoRA is the embedding's, turned: `ensure_weight_tying` of PEFT.

Imports numpy: import it where it is used.
"""

from __future__ import annotations

import numpy as np

from ...checkpoint import Checkpoint
from ..keys import Part, tensor_name
from ..structure import LoraModule
from .floats import Store


def has_tied_head(checkpoint: Checkpoint, embedding: LoraModule, head: LoraModule) -> bool | None:
    """Compare A of the embedding with B of the head, and B with A; None where one has no LoRA.

    With `ensure_weight_tying` peft 0.21 makes both of one pair of matrices.
    """
    if not embedding.whole or not head.whole or not embedding.embedding or head.embedding:
        return None
    store = Store(checkpoint)
    pairs = ((Part.EMBEDDING_A, Part.B), (Part.EMBEDDING_B, Part.A))
    return all(
        np.array_equal(
            store.floats(tensor_name(embedding.name, ours)),
            store.floats(tensor_name(head.name, theirs)).T,
        )
        for ours, theirs in pairs
    )
