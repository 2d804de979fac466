"""Public keys and signatures of every type: security keys, RSA, and what is refused."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from hypothesis import example, given, settings
from hypothesis import strategies as st
from signed_evidence import IDENTITY, Stock, demand_tool, put, ran, signer_of

from reefkit.errors import Unusable
from reefkit.provenance.sign import sshsig
from reefkit.provenance.sign.carriers import SUMS, carrier_of, read_signature
from reefkit.provenance.sign.der import decode_der, der_from_ssh, encode_der, ssh_from_der
from reefkit.provenance.sign.identity import allowed_signers_line, check_identity
from reefkit.provenance.sign.key import PublicKey
from reefkit.provenance.sign.public_key import (
    SK_ED25519,
    SK_P256,
    fingerprint,
    from_blob,
    from_crypto,
    from_openssh,
    from_pem,
    read_openssh,
    to_openssh,
    to_pem,
    verifies,
)
from reefkit.provenance.sign.wire import mpint, string

_APPLICATION = b"ssh:"


@dataclass(frozen=True)
class SecurityKey:
    """A FIDO key in software: signs as PROTOCOL.u2f says that an authenticator does."""

    algorithm: str
    flags: int = 1
    only_sshsig: bool = True
    _seed: int = 7

    @property
    def public(self) -> PublicKey:
        parts = string(self.algorithm.encode())
        inner = from_crypto(self._private().public_key())
        parts += inner.blob[4 + len(inner.algorithm) :] + string(_APPLICATION)
        return PublicKey(self.algorithm, parts)

    def _private(self) -> ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey:
        if self.algorithm == SK_P256:
            return ec.derive_private_key(self._seed, ec.SECP256R1())
        return ed25519.Ed25519PrivateKey.from_private_bytes(bytes([self._seed] * 32))

    def sign(self, data: bytes) -> bytes:
        tail = bytes([self.flags]) + (41).to_bytes(4, "big")
        message = sha256(_APPLICATION).digest() + tail + sha256(data).digest()
        key = self._private()
        if isinstance(key, ec.EllipticCurvePrivateKey):
            signature = ssh_from_der(key.sign(message, ec.ECDSA(hashes.SHA256())))
        else:
            signature = key.sign(message)
        return string(self.algorithm.encode()) + string(signature) + tail


@pytest.mark.parametrize("algorithm", [SK_P256, SK_ED25519])
def test_signatures_of_security_keys_are_verified_as_ssh_keygen_does(
    tmp_path: Path, algorithm: str
) -> None:
    demand_tool("ssh-keygen")
    key = SecurityKey(algorithm)
    signature = sshsig.sign(key, b"data", "file")
    (tmp_path / "signers").write_text(f"{IDENTITY} {to_openssh(key.public)}\n")
    (tmp_path / "sig").write_bytes(signature)
    command = ("ssh-keygen", "-Y", "verify", "-f", tmp_path / "signers", "-I", IDENTITY)
    assert ran(*command, "-n", "file", "-s", tmp_path / "sig", stdin=b"data")
    assert sshsig.read(signature, "sig").verify(b"data")
    assert not sshsig.read(signature, "sig").verify(b"date")
    other = PublicKey(algorithm, key.public.blob[:-4] + b"web:")
    assert not verifies(other, b"data", key.sign(b"data"))
    for at in range(-5, 0):  # flags and counter are signed, too
        blob = bytearray(key.sign(b"data"))
        blob[at] ^= 2
        assert not verifies(key.public, b"data", bytes(blob))


@pytest.mark.parametrize("algorithm", [SK_P256, SK_ED25519])
def test_a_security_key_must_be_touched(algorithm: str) -> None:
    key = SecurityKey(algorithm, flags=0)
    blob = key.sign(b"data")
    assert not verifies(key.public, b"data", blob)
    assert verifies(key.public, b"data", blob, allow_touchless=True)
    fields = (key.public.blob, b"reefkit-sums", b"", b"sha512",
              key.sign(sshsig.signed_data(b"sums", "reefkit-sums")))  # fmt: skip
    armored = sshsig.armor(b"SSHSIG\0\0\0\1" + b"".join(map(string, fields)))
    carrier = carrier_of("SHA256SUMS.sig")
    assert carrier is not None
    found = read_signature(carrier, "SHA256SUMS.sig", armored)
    assert found.touchless
    assert not found.verify(key.public, b"sums")
    assert found.verify(key.public, b"sums", allow_touchless=True)


def test_a_security_key_has_no_pem() -> None:
    with pytest.raises(Unusable, match="no PEM"):
        to_pem(SecurityKey(SK_P256).public)


@pytest.fixture(scope="module")
def rsa_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def test_rsa_verifies_with_sha2_only(rsa_key: rsa.RSAPrivateKey) -> None:
    key = from_crypto(rsa_key.public_key())
    for name, digest in (("rsa-sha2-256", hashes.SHA256()), ("rsa-sha2-512", hashes.SHA512())):
        signature = rsa_key.sign(b"data", padding.PKCS1v15(), digest)
        assert verifies(key, b"data", string(name.encode()) + string(signature))
        assert not verifies(key, b"date", string(name.encode()) + string(signature))
    sha1 = rsa_key.sign(b"data", padding.PKCS1v15(), hashes.SHA1())
    assert not verifies(key, b"data", string(b"ssh-rsa") + string(sha1))
    assert not verifies(key, b"data", string(b"rsa-sha2-256") + string(sha1))


@pytest.mark.parametrize("bits", [1024, 2047, 16385])
def test_rsa_keys_of_other_sizes_are_refused(bits: int) -> None:
    blob = string(b"ssh-rsa") + mpint(65537) + mpint((1 << (bits - 1)) | 1)
    with pytest.raises(Unusable, match=f"{bits:,} bits"):
        from_blob(blob)


def test_certificates_are_refused(tmp_path: Path) -> None:
    demand_tool("ssh-keygen")
    for name in ("ca", "key"):
        assert ran("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name)
    assert ran("ssh-keygen", "-q", "-s", tmp_path / "ca", "-I", "x", tmp_path / "key.pub")
    with pytest.raises(Unusable, match="certificate"):
        from_openssh((tmp_path / "key-cert.pub").read_bytes())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-dss AAAAB3NzaC1kc3M=",
        "ssh-ed25519 !!!!",
        "ssh-rsa AAAA\nssh-rsa AAAA",
        'restrict ssh-ed25519 AAAA "',
        "ecdsa-sha2-nistp256 " + "A" * 20_000,
    ],
)
def test_lines_that_are_no_key_are_refused(text: str) -> None:
    with pytest.raises(Unusable):
        from_openssh(text)


def test_a_key_must_be_of_the_type_that_its_line_says() -> None:
    blob = base64.b64encode(signer_of("ed25519").public.blob).decode()
    with pytest.raises(Unusable, match="says it is"):
        from_openssh(f"ecdsa-sha2-nistp256 {blob}")


def test_points_off_the_curve_are_refused() -> None:
    blob = bytearray(signer_of("p256").public.blob)
    blob[-1] ^= 1
    with pytest.raises(Unusable, match="not a point"):
        from_blob(bytes(blob))


def test_compressed_points_are_refused() -> None:
    blob = signer_of("p256").public.blob
    point = bytes([2 + blob[-1] % 2]) + blob[-64:-32]
    with pytest.raises(Unusable, match="does not use"):
        from_blob(blob[:-69] + string(point))


@pytest.mark.parametrize("algorithm", ["p256", "ed25519"])
def test_every_form_of_a_key_is_the_same_key(tmp_path: Path, algorithm: str) -> None:
    demand_tool("ssh-keygen")
    key = signer_of(algorithm).public
    line = to_openssh(key, "a comment of words")
    assert read_openssh(line) == (key, "a comment of words")
    assert from_pem(to_pem(key)) == key
    (tmp_path / "key.pub").write_text(line)
    shown = subprocess.run(
        ["ssh-keygen", "-l", "-f", tmp_path / "key.pub"], capture_output=True, check=True
    ).stdout
    assert shown.split()[1].decode() == fingerprint(key)


@pytest.mark.parametrize("name", ["evidence@lab", "ci", "héloïse@lab", "a/b:c+d=e"])
def test_identities_that_ssh_keygen_understands(tmp_path: Path, name: str) -> None:
    assert check_identity(name) == name
    demand_tool("ssh-keygen")
    signer = signer_of("ed25519")
    (tmp_path / "signers").write_text(allowed_signers_line(name, signer.public))
    (tmp_path / "sig").write_bytes(sshsig.sign(signer, b"x", "reefkit-sums"))
    command = ("ssh-keygen", "-Y", "verify", "-f", tmp_path / "signers", "-I", name)
    assert ran(*command, "-n", "reefkit-sums", "-s", tmp_path / "sig", stdin=b"x")
    assert not ran(*command, "-n", "file", "-s", tmp_path / "sig", stdin=b"x")


@pytest.mark.parametrize(
    "name",
    ["", "a b", "a,b", 'a"b', "*@lab", "a?", "!a", "#a", "a\nb", "a\tb", "-a", "a\x00", "a\u202eb",
     "a\u00a0b", "a\\b", "x" * 256, "a\udcff", "$(id)", "a;b", "`a`", "a|b", "%a%", "~a"],
)  # fmt: skip
def test_identities_that_would_mean_something_else_are_refused(name: str) -> None:
    with pytest.raises(Unusable, match="identity"):
        check_identity(name)


NUMBERS = st.integers(1, (1 << 521) - 1)


@given(NUMBERS, NUMBERS)
@example(1, 1)
@example((1 << 521) - 1, (1 << 521) - 1)
@example(1 << 255, 1 << 127)
@settings(max_examples=100)
def test_der_and_ssh_hold_the_same_numbers(r: int, s: int) -> None:
    der = encode_der(r, s)
    assert decode_der(der, "x") == (r, s)
    assert der_from_ssh(ssh_from_der(der), "x") == der


@given(st.binary(max_size=160), st.integers(0, 80), st.integers(0, 255))
@settings(max_examples=200)
def test_one_pair_of_numbers_has_one_der(data: bytes, at: int, value: int) -> None:
    der = encode_der(1 << 255, 1 << 200)
    for tried in (data, der[:at] + bytes([value]) + der[at + 1 :], der[:at], der + data):
        try:
            numbers = decode_der(tried, "x")
        except Unusable:
            continue
        assert encode_der(*numbers) == tried


def test_a_stock_tool_and_we_agree_on_the_namespace(tmp_path: Path) -> None:
    signer = signer_of("ed25519")
    stock = Stock(tmp_path / "trust", signer.public)
    files = {SUMS: b"x", "SHA256SUMS.sig": sshsig.sign(signer, b"x", "reefkit-custody")}
    assert not stock.ssh_keygen(put(tmp_path / "evidence", files))
    assert sshsig.read(files["SHA256SUMS.sig"], "x").namespace == "reefkit-custody"
