"""The first place where two JSON documents say something else."""

from __future__ import annotations

from ...records.strict_json import Json


def first_difference(a: Json, b: Json, path: str = "") -> str | None:
    """Name the first key, as in `layers[3].sha256`, whose values differ; None when none does.

    Types count: `1`, `1.0` and `true` differ, and so do `0.0` and `-0.0`. Keys are gone through in
    the order of `a`. The depth must be bounded by whoever parsed the documents.
    """
    if isinstance(a, dict) and isinstance(b, dict):
        for key in [*a, *(key for key in b if key not in a)]:
            inner = f"{path}.{key}" if path else key
            if key not in a or key not in b:
                return inner
            found = first_difference(a[key], b[key], inner)
            if found is not None:
                return found
        return None
    if isinstance(a, list) and isinstance(b, list):
        for index, (left, right) in enumerate(zip(a, b, strict=False)):
            found = first_difference(left, right, f"{path}[{index}]")
            if found is not None:
                return found
        return None if len(a) == len(b) else f"{path}[{min(len(a), len(b))}]"
    return None if type(a) is type(b) and repr(a) == repr(b) else path
