"""Who has signed a checksum file already, and where a further signature goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...errors import DestinationExists, DoesNotHold, Unusable
from ...records.names import printable
from .carriers import SLOTS, SUMS, Carrier, Form, carrier_name, read_signature
from .found import FoundSignature
from .key import PublicKey
from .public_key import fingerprint

_ANEW = "`reef-archive verify` says what is wrong; --force replaces the first signer's signatures."


@dataclass(frozen=True)
class Present:
    """A signature file that is there."""

    carrier: Carrier
    data: bytes


@dataclass(frozen=True)
class Signed:
    """A checksum file as it is signed; `files` are what its lines bind, None for a lone one.

    `known` are keys to try where a signer has left no SSH signature, which would hold theirs.
    """

    sums: bytes
    files: Mapping[str, str] | None
    present: Sequence[Present]
    sums_name: str = SUMS
    known: Sequence[PublicKey] = ()

    def keys(self) -> dict[int, PublicKey]:
        """Give the key of each slot that has an SSH signature. Raises Unusable when malformed."""
        found: dict[int, PublicKey] = {}
        for each in self.present:
            if each.carrier.form is Form.SSHSIG:
                key = self._read(each).public_key
                if key is not None:
                    found[each.carrier.slot] = key
        return found

    def _read(self, each: Present) -> FoundSignature:
        return read_signature(each.carrier, each.carrier.name, each.data, sums_name=self.sums_name)

    def demand_valid(self, slots: Sequence[int]) -> None:
        """Demand that the signatures in these slots are valid, each by the key of its slot.

        Raises DoesNotHold, Unusable.
        """
        keys = self.keys()
        for each in self.present:
            if each.carrier.slot not in slots or each.carrier.form is Form.TIMESTAMP:
                continue
            slot = each.carrier.slot
            tried = [keys[slot]] if slot in keys else [*keys.values(), *self.known]
            signature = self._read(each)
            if not any(self._holds(signature, key) for key in tried):
                raise DoesNotHold(
                    f"{printable(each.carrier.name)} is not a valid signature of what is here.",
                    remedy=_ANEW,
                )

    def _holds(self, signature: FoundSignature, key: PublicKey) -> bool:
        if signature.fault is not None or not signature.verify(key, self.sums):
            return False
        return None in (signature.files, self.files) or signature.files == self.files

    def slot_for(self, key: PublicKey, *, add: bool, force: bool) -> int:
        """Choose where a key's signatures go: where it has signed already, or a free slot.

        Raises DestinationExists, DoesNotHold, Unusable.
        """
        taken = {each.carrier.slot for each in self.present}
        if not add and (force or 1 not in taken):
            return 1
        keys = self.keys()
        mine = [slot for slot, signer in keys.items() if signer == key]
        if mine:
            self.demand_valid(mine[:1])
            return mine[0]
        if not add:
            who = fingerprint(keys[1]) if 1 in keys else "somebody"
            raise DestinationExists(
                f"{printable(self.sums_name)} is signed by {who} already.",
                remedy="Add your signature with --add, or replace that one with --force.",
            )
        if not taken:
            raise Unusable(
                f"{printable(self.sums_name)} is not signed: there is nothing to add to.",
                remedy="Sign without --add.",
            )
        self.demand_valid(list(SLOTS))
        free = [slot for slot in SLOTS if slot not in taken]
        if not free:
            raise Unusable(f"{len(SLOTS)} have signed already, and more cannot.")
        return free[0]

    def obsolete(self, slot: int, written: Mapping[str, bytes]) -> list[str]:
        """Name the files of a slot that its new signatures leave stale: another key's forms."""
        return [
            each.carrier.name
            for each in self.present
            if each.carrier.slot == slot and each.carrier.name not in written
        ]

    def missing(
        self, slot: int, signatures: Mapping[str, bytes], *, force: bool
    ) -> dict[str, bytes]:
        """Give the files that have to be written: with `force` all that differ.

        Without it, what is there has been found valid by `slot_for`, and stays.
        """
        there = {each.carrier.name: each.data for each in self.present}
        return {
            name: data
            for name, data in signatures.items()
            if name not in there or (force and there[name] != data)
        }


def timestamp_name(slot: int, sums_name: str = SUMS) -> str:
    """Give the name of a slot's timestamp."""
    return carrier_name(Form.TIMESTAMP, slot, sums_name)
