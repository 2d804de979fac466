"""The link of `repair`: per tensor what was carried, copied, rebuilt or lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...records.custody import Action, Artifact, Link, now
from ...records.names import decoded
from ..formats.safetensors import Tensor
from ..ranges import Range, intersect
from ..repair.composed import Composed
from ..repair.copies import Copy
from ..repair.places import TensorMap
from ..repair.result import Repair
from .place import described, files, name_in, recorded

_ORDER = (Action.CARRIED, Action.COPIED, Action.REBUILT, Action.DROPPED)  # the worst is said


def repaired(
    folder: Path,
    copies: Sequence[Copy],
    composed: Composed,
    result: Repair,
    others: Sequence[Path] = (),
) -> str | None:
    """Append a link about a file that was written; give a sentence where that fails.

    `others` are files that were read besides the copies. The copies are read again for their
    digests.
    """
    assert result.path is not None and result.sha256 is not None
    path, digest = Path(result.path), result.sha256

    def link() -> Link:
        inputs = [described(copy.readable, copy.path, folder) for copy in copies]
        header = result.header
        output = Artifact(
            name_in(path, folder) or path.name,
            digest,
            result.size,
            action=Action.CARRIED,
            tensors=tensor_actions(composed, result.lost, inputs),
            facts={
                "header": {
                    "action": Action.REBUILT if header and header.rebuilt else Action.CARRIED,
                    "from": header.origin if header else None,
                },
            },
        )
        return Link(
            "repair",
            inputs=[*inputs, *files(others, folder)],
            outputs=[output],
            verdict=result.verdict.value if result.verdict else None,
            time=now(),
        )

    return recorded(folder, link)


def tensor_actions(
    composed: Composed, lost: Sequence[Range], inputs: Sequence[Artifact]
) -> Mapping[str, object]:
    """Say of every tensor that is not wholly the first copy's what became of it.

    `ranges` count in the new file; `from` names the copy that they came from by sha256.
    """
    tensors = TensorMap(composed.header)
    found: dict[str, list[dict[str, object]]] = {}
    sizes: dict[str, Tensor] = {}
    for piece in composed.pieces:
        for tensor, part in tensors.tensors_in(piece.range):
            sizes[tensor.name] = tensor
            found.setdefault(tensor.name, []).append(
                {
                    **part.to_json(),
                    "action": Action.COPIED if piece.copy else Action.REBUILT,
                    "from": inputs[piece.copy].sha256,
                    "from_offset": piece.offset + part.start - piece.range.start,
                }
            )
    for gap in lost:
        for tensor, part in tensors.tensors_in(gap):
            sizes[tensor.name] = tensor
            entry: dict[str, object] = {**part.to_json(), "action": Action.DROPPED}
            found.setdefault(tensor.name, []).append(entry)
    return {
        decoded(name): {"action": _worst(parts, composed, lost, sizes[name]), "ranges": parts}
        for name, parts in found.items()
    }


def _worst(
    parts: Sequence[Mapping[str, object]], composed: Composed, lost: Sequence[Range], tensor: Tensor
) -> str:
    gone = sum(piece.size for piece in intersect(lost, composed.header.span(tensor)))
    if gone == tensor.nbytes:
        return Action.DROPPED
    said = {part["action"] for part in parts} - {Action.DROPPED}
    return next((action for action in reversed(_ORDER) if action in said), Action.CARRIED)
