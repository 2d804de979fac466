"""Write a checksum list that every tool reads."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...errors import Unusable
from ..content.shown import shown
from .names import portability_fault

_SHA256 = re.compile(r"[0-9a-f]{64}")


def write_sums(digests: Mapping[str, str]) -> bytes:
    """Give the list of SHA-256 digests by name: lower case, two spaces, LF, sorted by bytes.

    Raises Unusable for a name that some tool would misread, and when there is no name at all.
    """
    if not digests:
        raise Unusable("There is nothing to list.", remedy="Name a folder that holds files.")
    for name in digests:
        fault = portability_fault(name)
        if fault is not None:
            raise Unusable(
                f"`{shown(name)}` cannot be listed for every tool: it {fault}.",
                remedy="Rename the file.",
            )
    if not all(map(_SHA256.fullmatch, digests.values())):
        raise ValueError("a digest is not SHA-256 in lower-case hexadecimal digits")
    # Code points sort as their UTF-8 does.
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)).encode()
