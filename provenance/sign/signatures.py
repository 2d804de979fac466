"""Sign a checksum file: one key, all the forms that some stock tool verifies with that key."""

from __future__ import annotations

from collections.abc import Mapping

from . import minisign, oms, sigstore, sshsig
from .carriers import SUMS, Form, all_names, carrier_name
from .key import ED25519, P256, Signer
from .signing import ecdsa_der, ed25519_raw


def forms_of(signer: Signer, *, with_files: bool = True) -> tuple[Form, ...]:
    """Say what `sign_sums` writes with such a key.

    model_signing 1.1.1 and the message signatures of @sigstore/verify 3.1.1 do not take Ed25519,
    and security keys sign nothing but SSHSIG.
    """
    if signer.only_sshsig:
        return (Form.SSHSIG,)
    if signer.public.algorithm == P256:
        oms_too = (Form.OMS,) if with_files else ()
        return (Form.SSHSIG, Form.DER, Form.SIGSTORE, *oms_too)
    if signer.public.algorithm == ED25519:
        return (Form.SSHSIG, Form.ED25519, Form.MINISIGN)
    return (Form.SSHSIG,)


def sign_sums(
    sums: bytes,
    files: Mapping[str, str] | None,
    signer: Signer,
    slot: int = 1,
    *,
    sums_name: str = SUMS,
) -> dict[str, bytes]:
    """Sign the bytes of a checksum file; give file names with their content.

    `files` are the names and SHA-256 of its lines, which `model.sig` binds; None: the lines stand
    for no folder, and there is no `model.sig`. Nothing but a signer's own randomness makes the
    result differ. Raises what the signer raises.
    """
    found: dict[Form, bytes] = {}
    for form in forms_of(signer, with_files=files is not None):
        if form is Form.SSHSIG:
            found[form] = sshsig.sign(signer, sums, sshsig.SUMS_NAMESPACE)
        elif form is Form.DER:
            found[form] = ecdsa_der(signer, sums)
        elif form is Form.SIGSTORE:
            found[form] = sigstore.encode(signer.public, sums, found[Form.DER])
        elif form is Form.ED25519:
            found[form] = ed25519_raw(signer, sums)
        elif form is Form.MINISIGN:
            found[form] = minisign.sign(signer, sums, sums_name)
        elif files is not None:
            found[form] = oms.encode(signer, files, all_names(sums_name))
    return {carrier_name(form, slot, sums_name): data for form, data in found.items()}
