"""Private keys in files: who may read them, how they are read, and what they sign."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from signed_evidence import demand_tool, ran, signer_of

from reefkit.errors import NotPermitted, ReefError, Unusable
from reefkit.provenance.sign.private_key import generate, load_private_key
from reefkit.provenance.sign.public_key import SK_ED25519, to_openssh
from reefkit.provenance.sign.wire import string

ALGORITHMS = ["p256", "ed25519"]


def _written(folder: Path, algorithm: str, passphrase: bytes | None = None) -> Path:
    path = folder / "key"
    path.write_bytes(signer_of(algorithm).to_file(passphrase))
    path.chmod(0o600)
    return path


def _never() -> bytes:
    raise AssertionError("nobody is to be asked")


def _passphrase() -> bytes:
    return b"correct horse"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_key_is_read_back_without_asking(tmp_path: Path, algorithm: str) -> None:
    signer = load_private_key(_written(tmp_path, algorithm), _never)
    assert signer.public == signer_of(algorithm).public
    assert signer.sign(b"x") == signer_of(algorithm).sign(b"x")
    assert not signer.only_sshsig


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_passphrase_opens_what_it_closed(tmp_path: Path, algorithm: str) -> None:
    path = _written(tmp_path, algorithm, _passphrase())
    assert load_private_key(path, _passphrase).public == signer_of(algorithm).public
    for wrong in (b"wrong", b"", b"\xff" * 3, b"x" * 1000):
        with pytest.raises(Unusable, match="passphrase does not open"):
            load_private_key(path, partial(bytes, wrong))


@pytest.mark.parametrize("passphrase", [None, _passphrase()], ids=["plain", "encrypted"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ssh_keygen_reads_the_file(
    tmp_path: Path, algorithm: str, passphrase: bytes | None
) -> None:
    demand_tool("ssh-keygen")
    path = _written(tmp_path, algorithm, passphrase)
    assert ran("ssh-keygen", "-y", "-P", (passphrase or b"").decode(), "-f", path)


@pytest.mark.parametrize("passphrase", [None, _passphrase()], ids=["plain", "encrypted"])
def test_openssl_reads_a_p256_file(tmp_path: Path, passphrase: bytes | None) -> None:
    demand_tool("openssl")
    path = _written(tmp_path, "p256", passphrase)
    password = ("-passin", f"pass:{passphrase.decode()}") if passphrase else ()
    assert ran("openssl", "pkey", "-in", path, "-noout", *password)


OPENSSH = ["-t", "ecdsa"], ["-t", "ed25519"], ["-t", "rsa", "-b", "2048"]


@pytest.mark.parametrize("options", OPENSSH, ids=["p256", "ed25519", "rsa"])
def test_encrypted_keys_of_ssh_keygen_are_read(tmp_path: Path, options: list[str]) -> None:
    demand_tool("ssh-keygen")
    path = tmp_path / "key"
    assert ran("ssh-keygen", "-q", *options, "-N", _passphrase().decode(), "-C", "", "-f", path)
    signer = load_private_key(path, _passphrase)
    assert to_openssh(signer.public) == (tmp_path / "key.pub").read_text().strip()
    assert signer.only_sshsig is ("rsa" in options)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_key_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = _written(tmp_path, "p256")
    path.chmod(mode)
    with pytest.raises(Unusable, match=f"its mode is {mode:04o}") as refused:
        load_private_key(path, _never)
    assert refused.value.remedy == f"chmod 600 {path}"


def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    path = _written(tmp_path, "p256")
    os.chown(path, 12345, 12345)
    with pytest.raises(Unusable, match="belongs to another user"):
        load_private_key(path, _never)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not a private key"),
        (b"hello", "not a private key"),
        (b"x" * 100_000, "too large"),
        (
            b"-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n",
            "not a private key",
        ),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "not a private key"),
    ],
    ids=["empty", "text", "large", "openssh", "pkcs8"],
)
def test_what_is_no_key_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(Unusable, match=said):
        load_private_key(path, _never)


def test_a_public_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key.pub"
    path.write_text(to_openssh(signer_of("p256").public))
    path.chmod(0o600)
    with pytest.raises(Unusable, match="not a private key"):
        load_private_key(path, _never)


@pytest.mark.parametrize(
    "options",
    [
        ("genpkey", "-algorithm", "ed448"),
        ("ecparam", "-name", "secp256k1", "-genkey", "-noout"),
        ("genpkey", "-algorithm", "x25519"),
    ],
    ids=["ed448", "secp256k1", "x25519"],
)
def test_other_types_of_keys_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    demand_tool("openssl")
    path = tmp_path / "key"
    assert ran("openssl", *options, "-out", path)
    path.chmod(0o600)
    with pytest.raises(Unusable, match="of a type that"):
        load_private_key(path, _never)


def test_a_small_rsa_key_is_refused(tmp_path: Path) -> None:
    demand_tool("openssl")
    path = tmp_path / "key"
    assert ran("openssl", "genrsa", "-traditional", "-out", path, "1024")
    path.chmod(0o600)
    with pytest.raises(Unusable, match="RSA key of 1,024 bits"):
        load_private_key(path, _never)


def _folder(path: Path) -> None:
    path.mkdir()


def _pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


@pytest.mark.parametrize("make", [_folder, _pipe], ids=["folder", "pipe"])
def test_what_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "key")
    with pytest.raises((Unusable, NotPermitted, OSError)) as refused:
        load_private_key(tmp_path / "key", _never)
    assert isinstance(refused.value, (ReefError, IsADirectoryError))


def test_signatures_are_reproducible_and_differ_by_key() -> None:
    for algorithm in ALGORITHMS:
        signer, other = generate(algorithm), generate(algorithm)
        assert signer.sign(b"data") == signer.sign(b"data")
        assert signer.public != other.public
        assert signer.sign(b"data") != other.sign(b"data")


def test_a_signer_does_not_show_its_key() -> None:
    signer = signer_of("p256")
    assert "_key" not in repr(signer)


def test_unknown_types_are_not_made() -> None:
    with pytest.raises(Unusable, match="not made here"):
        generate("dsa")


def test_a_file_of_a_security_key_leads_to_the_agent(tmp_path: Path) -> None:
    """What is in such a file is a handle for the device, not a key."""
    path = tmp_path / "key"
    algorithm = SK_ED25519.encode()
    public = string(algorithm) + string(b"\1" * 32) + string(b"ssh:")
    secret = b"\0\0\0\1" * 2 + public + b"\1" + string(b"handle") + string(b"") + string(b"")
    secret += bytes(range(1, 1 + -len(secret) % 8))
    fields = string(b"none") * 2 + string(b"") + b"\0\0\0\1" + string(public) + string(secret)
    body = base64.encodebytes(b"openssh-key-v1\0" + fields)
    path.write_bytes(
        b"-----BEGIN OPENSSH PRIVATE KEY-----\n" + body + b"-----END OPENSSH PRIVATE KEY-----\n"
    )
    path.chmod(0o600)
    with pytest.raises(Unusable, match="cannot be used here") as refused:
        load_private_key(path, _never)
    assert "--agent" in str(refused.value.remedy)
