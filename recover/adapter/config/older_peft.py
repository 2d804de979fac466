"""Write a configuration for an older PEFT, which must find every module's rank and alpha in it.

Rules of matching are those of the wheels 0.3.0 to 0.21.0 (`lora/model.py`, `utils/other.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from ....errors import DoesNotHold, Unusable
from ....records.strict_json import Json
from ..patterns import by_pattern
from .schema import FIELDS, OLDEST, PEFT_VERSION

_NEWEST = (0, 21)
# Until then a key had to match what follows a dot, so that `^` never did, and until 0.13 the first
# key of either pattern that matched was looked up in both.
_MATCHES_FROM_THE_START = (0, 15)
# Until then `0.q_proj` took `10.q_proj`, too.
_MATCHES_SEGMENTS = (0, 5)
_VERSION = re.compile(r"(\d{1,3})\.(\d{1,3})(?:\.\d{1,4})?")


def for_version(
    config: Mapping[str, Json], version: str, ranks: Mapping[str, int], targets: Sequence[str]
) -> dict[str, Json]:
    """Leave out what an older PEFT does not know, which refuses or ignores such keys.

    `ranks` has every module, `targets` those that `target_modules` is for. Raises Unusable for
    what is no version of PEFT, DoesNotHold where the adapter needs a key that the version lacks.
    """
    found = _VERSION.fullmatch(version)
    wanted = (int(found[1]), int(found[2])) if found else (0, 0)
    if not OLDEST <= wanted <= _NEWEST:
        raise Unusable(
            f"--for-peft must be a version from {OLDEST[0]}.{OLDEST[1]} to {PEFT_VERSION}.",
            remedy="Give it as in `pip show peft`: --for-peft 0.11.1.",
        )
    newer = [name for name in config if FIELDS[name].since > wanted]
    needed = [
        name for name in newer if config[name] != FIELDS[name].neutral and name != "peft_version"
    ]
    if needed:
        since = max(FIELDS[name].since for name in needed)
        raise DoesNotHold(
            f"PEFT {version} does not know {', '.join(needed)}, which this adapter needs.",
            remedy=f"PEFT {since[0]}.{since[1]} is the first that knows all of these.",
        )
    known = {name: value for name, value in config.items() if name not in newer}
    if wanted < _MATCHES_FROM_THE_START:
        known |= _full_names(known, ranks)
    if wanted < _MATCHES_SEGMENTS and isinstance(known["target_modules"], list):
        known["target_modules"] = list[Json](targets)
    return known


def _full_names(config: Mapping[str, Json], ranks: Mapping[str, int]) -> dict[str, Json]:
    """Spell patterns by whole names in both, which every version looks up as they are."""
    alphas = cast("Mapping[str, float]", config.get("alpha_pattern") or {})
    if not alphas and not config.get("rank_pattern"):
        return {}
    look_up = by_pattern(alphas)
    usual = config["r"], config["lora_alpha"]
    each = {name: (rank, look_up(name) or usual[1]) for name, rank in ranks.items()}
    others = {name: pair for name, pair in each.items() if pair != usual}
    return {
        "rank_pattern": {name: rank for name, (rank, _) in others.items()},
        "alpha_pattern": {name: alpha for name, (_, alpha) in others.items()},
    }
