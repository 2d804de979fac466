"""The signature files that lie beside a list, each read once; what cannot be read is a finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import ReefError
from ...records.names import printable
from ..finding import Finding, FindingKind
from .package import Package

if TYPE_CHECKING:
    from ..sign.carriers import Carrier
    from ..sign.found import FoundSignature


@dataclass(frozen=True)
class Carried:
    """A signature file, or a timestamp: its bytes, of which list it is, and what it holds.

    `signature` is None for a timestamp, and for what cannot be read: then `finding` says why.
    """

    path: str
    slot: int
    list_name: str
    data: bytes = field(repr=False)
    binds_files: bool = False
    is_timestamp: bool = False
    signature: FoundSignature | None = None
    finding: Finding | None = None
    remedy: str | None = None


def carried(package: Package, list_names: Sequence[str]) -> tuple[Carried, ...]:
    """Read every signature file of these lists. Raises nothing: what is wrong is a finding."""
    found: list[Carried] = []
    for name in _candidates(package):
        for list_name in list_names:
            carrier = _carrier_of(name, list_name)
            if carrier is not None:
                found.append(_read(package, carrier, list_name))
                break
    return tuple(found)


def _candidates(package: Package) -> list[str]:
    # Only what ends like one is asked about: a package may hold 20,000 other files at its root.
    endings = (".sig", ".der", ".raw", ".json", ".minisig", ".tsr")
    return [
        name
        for name in package.members
        if name.endswith(endings) and "/" not in name and package.holds(name)
    ]


def _carrier_of(name: str, list_name: str) -> Carrier | None:
    if not name.startswith((list_name, "model")):
        return None
    from ..sign.carriers import carrier_of

    return carrier_of(name, list_name)


def _read(package: Package, carrier: Carrier, list_name: str) -> Carried:
    from ..sign.carriers import Form, read_signature

    path = carrier.name
    binds, stamp = carrier.form is Form.OMS, carrier.form is Form.TIMESTAMP
    try:
        data = package.read(path, carrier.limit)
    except (ReefError, OSError) as error:
        said = error.message if isinstance(error, ReefError) else printable(str(error))
        finding = Finding(FindingKind.UNREADABLE, path, said)
        return Carried(path, carrier.slot, list_name, b"", binds, stamp, None, finding)
    if stamp:
        return Carried(path, carrier.slot, list_name, data, is_timestamp=True)
    try:
        signature = read_signature(carrier, path, data, sums_name=list_name)
    except ReefError as error:
        finding = Finding(FindingKind.INVALID_SIGNATURE, path, error.message)
        remedy = error.remedy
        return Carried(path, carrier.slot, list_name, data, binds, False, None, finding, remedy)
    return Carried(path, carrier.slot, list_name, data, binds, False, signature)
