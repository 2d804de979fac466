"""The digests that say whether two gates mean the same: of the configuration, and of the ids."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping

from ...records.strict_json import Json


def config_fingerprint(config: Mapping[str, Json]) -> str:
    """Give the SHA-256 of the configuration's canonical JSON.

    Canonical: UTF-8, keys sorted by code point, no blanks, nothing escaped that need not be,
    floats in the shortest form that gives the same float; `1` and `1.0` differ.
    """
    text = json.dumps(
        config, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def ids_sha256(ids: Iterable[str]) -> str:
    r"""Give the SHA-256 of the sorted ids, each followed by `\n`."""
    return hashlib.sha256("".join(f"{each}\n" for each in sorted(ids)).encode()).hexdigest()
