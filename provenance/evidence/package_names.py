"""The names of what a package adds to the content that it is made of."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import Unusable
from ...records.custody_lines import FILE as CUSTODY
from ...records.names import printable
from ..sign.carriers import SUMS, carrier_of
from ..sign.companions import MADE

MANIFEST = "manifest.json"


def refuse_taken_names(names: Iterable[str]) -> None:
    """Refuse content that has a name which the package needs; a chain of custody goes on.

    Raises Unusable.
    """
    taken = {name.casefold() for name in (SUMS, MANIFEST, CUSTODY, *MADE)}
    for name in names:
        if name != CUSTODY and (name.casefold() in taken or carrier_of(name) is not None):
            raise Unusable(
                f"{printable(name)} is there already, and the package makes its own.",
                remedy="Pack the unsigned content: move that file away, or give it another name.",
            )
