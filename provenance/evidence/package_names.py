"""The names of what a package adds to the content that it is made of."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import Unusable
from ...records.names import printable
from ..sign.carriers import carrier_of

SUMS = "SHA256SUMS"
MANIFEST = "manifest.json"
CUSTODY = "custody.jsonl"
CUSTODY_HEAD = "custody.head.json"
CUSTODY_HEAD_SIGNATURE = "custody.head.json.sig"
README = "VERIFY.md"
SIGNERS = "allowed_signers"
PUBLIC_KEY = "key.pub.pem"

# A chain that is there already goes on; everything else is made anew and must not be there.
_MADE = {SUMS, MANIFEST, CUSTODY_HEAD, CUSTODY_HEAD_SIGNATURE, README, SIGNERS, PUBLIC_KEY}


def refuse_taken_names(names: Iterable[str]) -> None:
    """Refuse content that has a name which the package needs. Raises Unusable."""
    taken = {name.casefold(): name for name in (*_MADE, CUSTODY)}
    for name in names:
        meant = taken.get(name.casefold())
        if name != CUSTODY and (meant is not None or carrier_of(name) is not None):
            raise Unusable(
                f"{printable(name)} is there already, and the package makes its own.",
                remedy="Pack the unsigned content: move that file away, or give it another name.",
            )
