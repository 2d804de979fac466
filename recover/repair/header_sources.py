"""Everything that can say what a lost header was, joined into one function of the file's size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from ..base.model import Base
from ..json_files import INDEX_LIMIT, read_object
from .head import Candidates
from .header_candidate import HeaderCandidate, together
from .known_headers import from_manifest
from .shard_headers import shard_headers, whole_headers

_INDICES = "*.safetensors.index.json"


@dataclass(frozen=True)
class HeaderSources:
    """What was named on the command line; `name` is the damaged file's own.

    `weight_map` is that of the index which names the file as one of its shards.
    """

    name: str | None = None
    siblings: tuple[HeaderCandidate, ...] = ()
    manifests: tuple[Path, ...] = ()
    base: Base | None = None
    stated: Mapping[str, object] = field(default_factory=dict[str, object])
    weight_map: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def candidates(self) -> Candidates | None:
        """Give the function of a size, or None where nothing was named."""
        named = self.siblings or self.manifests or self.base
        return self._candidates if named else None

    def _candidates(self, size: int) -> Iterator[HeaderCandidate]:
        kept = (from_manifest(manifest, self.name, size) for manifest in self.manifests)
        yield from together(chain.from_iterable(kept))
        yield from self.siblings
        if self.base is None:
            return
        # Only here: most repairs name a sibling, and the rules of adapters take long to load.
        from .adapter_headers import adapter_headers

        if self.name in self.weight_map.values() and self.name is not None:
            yield from shard_headers(self.base, self.weight_map, self.name, size)
            return
        if not self.stated:
            yield from whole_headers(self.base, size)
        yield from adapter_headers(self.base, self.stated, size)


def weight_map_for(path: Path, index: Path | None) -> dict[str, str]:
    """Read the index that was named, or the one beside the file; empty where there is none.

    Raises Unusable for an index that is none.
    """
    beside: Sequence[Path] = [index] if index is not None else sorted(path.parent.glob(_INDICES))
    for place in beside:
        entries = read_object(place, INDEX_LIMIT).get("weight_map")
        if isinstance(entries, dict):
            found = {name: shard for name, shard in entries.items() if isinstance(shard, str)}
            if path.name in found.values():
                return found
    if index is not None:
        raise Unusable(
            f"{printable(index.name)} does not name {printable(path.name)} as a shard.",
            remedy="Give the shard the name that it has in the index, or name another index.",
        )
    return {}
