"""What a newly signed folder gets beside its sums: how to verify it, and copies of the key.

These are covered by the sums, and so is the signed head of the custody chain.
"""

from __future__ import annotations

import contextlib

from ...errors import DestinationExists, Unusable
from ..content.members import Member
from . import sshsig
from .identity import allowed_signers_line
from .key import PublicKey, Signer
from .public_key import from_pem, to_pem
from .readme import verify_readme
from .signable import SignableFolder
from .signatures import forms_of

CUSTODY = "custody.jsonl"
CUSTODY_HEAD = "custody.head.json"
CUSTODY_HEAD_SIGNATURE = "custody.head.json.sig"
README = "VERIFY.md"
SIGNERS = "allowed_signers"
PUBLIC_KEY = "key.pub.pem"
MADE = (CUSTODY_HEAD, CUSTODY_HEAD_SIGNATURE, README, SIGNERS, PUBLIC_KEY)
_CUSTODY_LIMIT = 64 << 20


def companions(
    found: SignableFolder, signer: Signer, identity: str, *, force: bool
) -> dict[str, bytes]:
    """Make what is not there yet; give names with content. Raises DestinationExists, Unusable."""
    made: dict[str, bytes] = {}
    custody = found.by_name.get(CUSTODY)
    if custody is not None:
        made.update(_custody_head(found, custody, signer, force=force))
    made.update(key_files(signer, identity, custody=custody is not None))
    return {
        name: data
        for name, data in made.items()
        if name in (CUSTODY_HEAD, CUSTODY_HEAD_SIGNATURE) or name not in found.by_name
    }


def key_files(signer: Signer, identity: str, *, custody: bool) -> dict[str, bytes]:
    """Make VERIFY.md and the copies of the key; `custody`: there is a signed head of a chain."""
    key = signer.public
    made = {
        README: verify_readme(key, identity, forms_of(signer), custody=custody).encode(),
        SIGNERS: allowed_signers_line(identity, key).encode(),
    }
    if not key.algorithm.startswith("sk-"):
        made[PUBLIC_KEY] = to_pem(key).encode()
    return made


def _custody_head(
    found: SignableFolder, custody: Member, signer: Signer, *, force: bool
) -> dict[str, bytes]:
    """Sign the head of the chain, unless that has been done. Raises DestinationExists."""
    from ..custody.head import head_document

    head = head_document(found.read(custody, _CUSTODY_LIMIT))
    former = {
        name: found.read(found.by_name[name], sshsig.LIMIT)
        for name in (CUSTODY_HEAD, CUSTODY_HEAD_SIGNATURE)
        if name in found.by_name
    }
    signature = former.get(CUSTODY_HEAD_SIGNATURE)
    if former.get(CUSTODY_HEAD) == head and signature is not None:
        read = sshsig.read(signature, CUSTODY_HEAD_SIGNATURE)
        if (
            read.public_key == signer.public
            and read.namespace == sshsig.CUSTODY_NAMESPACE
            and read.verify(head)
        ):
            return {}
    made = {
        CUSTODY_HEAD: head,
        CUSTODY_HEAD_SIGNATURE: sshsig.sign(signer, head, sshsig.CUSTODY_NAMESPACE),
    }
    changed = {name: data for name, data in made.items() if former.get(name) != data}
    for name in changed:
        if name in former and not force:
            raise DestinationExists(
                f"{name} is there already, of another state of the chain or by another key.",
                remedy="Replace it with --force.",
            )
    return changed


def key_copies(found: SignableFolder) -> list[PublicKey]:
    """Read the copy of the key that is there, which proves nothing but may fit a signature."""
    member = found.by_name.get(PUBLIC_KEY)
    if member is None:
        return []
    with contextlib.suppress(Unusable):
        return [from_pem(found.read(member, sshsig.LIMIT), PUBLIC_KEY)]
    return []
