"""Signatures and keys from outside: whatever the bytes, one sentence or a value, no traceback."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from signed_evidence import CONTENT, signed, signer_of

from reefkit.errors import Unusable
from reefkit.provenance.sign import minisign, sshsig
from reefkit.provenance.sign.carriers import (
    SLOTS,
    SUMS,
    Form,
    all_names,
    carrier_name,
    carrier_of,
    read_signature,
)
from reefkit.provenance.sign.public_key import (
    from_blob,
    from_openssh,
    from_pem,
    parse_signature,
    to_openssh,
    to_pem,
    verifies,
)


@cache
def _package(algorithm: str) -> dict[str, bytes]:
    return signed(signer_of(algorithm))


NAMES = [
    ("p256", "SHA256SUMS.sig"),
    ("p256", "SHA256SUMS.p256.der"),
    ("p256", "SHA256SUMS.sigstore.json"),
    ("p256", "model.sig"),
    ("ed25519", "SHA256SUMS.sig"),
    ("ed25519", "SHA256SUMS.ed25519.raw"),
    ("ed25519", "SHA256SUMS.minisig"),
]


def _mutations(data: bytes) -> st.SearchStrategy[bytes]:
    """Cut, doubled, overwritten: what is nearly right goes deeper than noise."""
    places = st.integers(0, len(data))
    pieces = st.one_of(st.binary(max_size=6), st.sampled_from([b"\0", b"\n", b'"', b"{", b"-----"]))

    def change(start: int, length: int, piece: bytes) -> bytes:
        return data[:start] + piece + data[start + length :]

    changed = st.builds(change, places, st.integers(0, 8), pieces)
    return st.one_of(st.binary(max_size=400), changed)


@pytest.mark.parametrize(("algorithm", "name"), NAMES)
@given(st.data())
@settings(max_examples=120, deadline=None)
def test_carriers(algorithm: str, name: str, data: st.DataObject) -> None:
    files = _package(algorithm)
    carrier = carrier_of(name)
    assert carrier is not None
    given_bytes = data.draw(_mutations(files[name]))
    try:
        found = read_signature(carrier, name, given_bytes)
    except Unusable as refusal:
        assert refusal.message.startswith(("SHA256SUMS.", "model.sig", "The key", "An RSA"))
        assert "\n" not in refusal.message
        return
    for key in (signer_of("p256").public, signer_of("ed25519").public):
        verified = found.verify(key, files[SUMS])
        if verified and found.files is not None:
            assert set(found.files) == set(CONTENT)


def _key_parsers() -> dict[str, tuple[Callable[[bytes], object], bytes]]:
    key, other = signer_of("p256").public, signer_of("ed25519").public
    return {
        "blob": (from_blob, key.blob),
        "openssh": (from_openssh, to_openssh(other, "comment").encode()),
        "pem": (from_pem, to_pem(key).encode()),
        "minisign": (
            lambda data: minisign.read_public_key_file(data, "x"),
            minisign.public_key_file(other),
        ),
        "signature": (lambda data: parse_signature(key, data), signer_of("p256").sign(b"x")),
    }


@pytest.mark.parametrize("form", ["blob", "openssh", "pem", "minisign", "signature"])
@given(st.data())
@settings(max_examples=120, deadline=None)
def test_keys(form: str, data: st.DataObject) -> None:
    parse, whole = _key_parsers()[form]
    parse(whole)
    try:
        parse(data.draw(_mutations(whole)))
    except Unusable as refusal:
        assert "\n" not in refusal.message


@given(st.data())
@settings(max_examples=120, deadline=None)
def test_no_other_signature_blob_verifies_with_ed25519(data: st.DataObject) -> None:
    signer = signer_of("ed25519")
    blob = signer.sign(b"x")
    tried = data.draw(_mutations(blob))
    assert verifies(signer.public, b"x", tried) is (tried == blob)


def test_carriers_are_recognised_by_their_names_alone() -> None:
    for slot in SLOTS:
        for form in Form:
            name = carrier_name(form, slot)
            carrier = carrier_of(name)
            assert carrier is not None
            assert (carrier.form, carrier.slot, carrier.name) == (form, slot, name)
    assert len(set(all_names())) == 1 + len(SLOTS) * len(Form)


@pytest.mark.parametrize(
    "name",
    ["SHA256SUMS", "SHA256SUMS.1.sig", "SHA256SUMS.0.sig", "SHA256SUMS.10.sig", "sha256sums.sig",
     "SHA256SUMS.sig\n", "SHA256SUMS.sig.bak", "x/SHA256SUMS.sig", "model.1.sig", "model.sig ",
     "SHA256SUMS..sig", "SHA256SUMS.\u0662.sig", "amodel.sig", "model.p256.der"],
)  # fmt: skip
def test_what_is_no_carrier(name: str) -> None:
    assert carrier_of(name) is None


@pytest.mark.parametrize(
    "name", ["SHA256SUMS.sig", "SHA256SUMS.sigstore.json", "SHA256SUMS.minisig"]
)
def test_large_signatures_are_refused(name: str) -> None:
    carrier = carrier_of(name)
    assert carrier is not None
    with pytest.raises(Unusable):
        read_signature(carrier, name, b"\n" * (sshsig.LIMIT + 1))


def test_a_timestamp_is_no_signature() -> None:
    carrier = carrier_of("SHA256SUMS.tsr")
    assert carrier is not None
    with pytest.raises(Unusable, match="timestamp"):
        read_signature(carrier, "SHA256SUMS.tsr", b"")
