"""What a verification knows beside the one file that does not match."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ...records.strict_json import Json


@dataclass(frozen=True)
class Known:
    """Digests listed and found, in the same algorithm, and the evidence's `reefkit.manifest/1`.

    `names_by_digest` gives the names that the list has for a digest, `digests_on_disk` what was
    computed for each member.
    """

    names_by_digest: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict[str, "tuple[str, ...]"]
    )
    digests_on_disk: Mapping[str, str] = field(default_factory=dict[str, str])
    manifest: Mapping[str, Json] | None = None

    @cached_property
    def holders(self) -> Mapping[str, tuple[str, ...]]:
        """Give the members that have a digest."""
        found: dict[str, tuple[str, ...]] = {}
        for name, digest in self.digests_on_disk.items():
            found[digest] = (*found.get(digest, ())[:7], name)
        return found

    @cached_property
    def entries(self) -> Mapping[str, Mapping[str, Json]]:
        """Give the manifest's files by path; what is not as the schema says is left out."""
        files = self.manifest.get("files") if self.manifest is not None else None
        found: dict[str, Mapping[str, Json]] = {}
        for entry in files if isinstance(files, list) else ():
            if isinstance(entry, dict) and isinstance(path := entry.get("path"), str):
                found[path] = entry
        return found
