"""What we sign, the stock tools accept; what they sign, we accept."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from signed_evidence import (
    CONTENT,
    IDENTITY,
    Stock,
    accepted,
    ask_node,
    demand_tool,
    digests_of,
    model_signing,
    put,
    ran,
    signed,
    signer_of,
    sums_of,
)

from reefkit.provenance.sign import minisign
from reefkit.provenance.sign.carriers import SUMS, Form, carrier_name, carrier_of, read_signature
from reefkit.provenance.sign.key import PublicKey
from reefkit.provenance.sign.private_key import load_private_key
from reefkit.provenance.sign.public_key import from_openssh, from_pem, to_pem
from reefkit.provenance.sign.signatures import sign_sums
from reefkit.provenance.sign.sshsig import SUMS_NAMESPACE, sign


@pytest.fixture
def p256(tmp_path: Path) -> Stock:
    return Stock(tmp_path / "trust", signer_of("p256").public)


@pytest.fixture
def ed25519(tmp_path: Path) -> Stock:
    return Stock(tmp_path / "trust", signer_of("ed25519").public)


def test_every_tool_accepts_p256(tmp_path: Path, p256: Stock) -> None:
    files = signed(signer_of("p256"))
    folder = put(tmp_path / "evidence", files)
    assert p256.ssh_keygen(folder)
    assert p256.openssl(folder)
    assert p256.model_signing(folder)
    assert p256.sigstore([files, files], "SHA256SUMS.sigstore.json") == [True, True]
    assert p256.sigstore([files], "model.sig") == [True]


def test_every_tool_accepts_ed25519(tmp_path: Path, ed25519: Stock) -> None:
    folder = put(tmp_path / "evidence", signed(signer_of("ed25519")))
    assert ed25519.ssh_keygen(folder)
    assert ed25519.openssl(folder)
    assert ed25519.minisign(folder)


def test_the_command_of_model_signing_accepts_a_folder_with_git_files(
    tmp_path: Path, p256: Stock
) -> None:
    content = {**CONTENT, ".gitattributes": b"* -text\n", "é/naïve.log": b"x\n", "a b": b"y\n"}
    folder = put(tmp_path / "evidence", signed(signer_of("p256"), content))
    command = (Path(sys.executable).parent / "model_signing", "verify", "key", folder)
    options = ("--signature", folder / "model.sig", "--public_key", p256.home / "key.pem")
    assert ran(*command, *options, "--no-ignore-git-paths")
    (folder / "extra").write_bytes(b"")
    assert not ran(*command, *options, "--no-ignore-git-paths")


def test_model_signing_accepts_a_folder_that_nine_have_signed(tmp_path: Path, p256: Stock) -> None:
    files = signed(signer_of("p256"))
    for slot in range(2, 10):
        files |= sign_sums(files[SUMS], digests_of(CONTENT), signer_of("p256"), slot)
        files[carrier_name(Form.TIMESTAMP, slot)] = b"a timestamp"
    folder = put(tmp_path / "evidence", files)
    assert p256.model_signing(folder)
    (folder / "model.9.sig").rename(folder / "model.sig")
    assert p256.model_signing(folder)


def test_sigstore_does_not_take_ed25519_message_signatures() -> None:
    """The reason why there is no bundle with an Ed25519 key."""
    from reefkit.provenance.sign import sigstore
    from reefkit.provenance.sign.signing import ed25519_raw

    signer = signer_of("ed25519")
    sums = sums_of(CONTENT)
    bundle = sigstore.encode(signer.public, sums, ed25519_raw(signer, sums))
    found = sigstore.read(bundle, "x", "x")
    assert found.verify(signer.public, sums)
    case = {"key": to_pem(signer.public), "bundle": bundle.decode(), "artifact": ""}
    assert ask_node([case]) == ["signature verification failed"]


def test_ed25519_ssh_signatures_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    demand_tool("ssh-keygen")
    signer = signer_of("ed25519")
    private = tmp_path / "key"
    private.write_bytes(signer.to_file(None))
    private.chmod(0o600)
    sums = sums_of(CONTENT)
    theirs = subprocess.run(
        ["ssh-keygen", "-Y", "sign", "-f", private, "-n", SUMS_NAMESPACE],
        input=sums, capture_output=True, check=True,
    ).stdout  # fmt: skip
    assert sign(signer, sums, SUMS_NAMESPACE) == theirs


def _made_by_ssh_keygen(folder: Path, *options: str) -> tuple[Path, PublicKey]:
    demand_tool("ssh-keygen")
    private = folder / "theirs"
    assert ran("ssh-keygen", "-q", "-N", "", "-C", IDENTITY, "-f", private, *options)
    return private, from_openssh((folder / "theirs.pub").read_bytes())


KEYS = {
    "p256": ("-t", "ecdsa", "-b", "256"),
    "p384": ("-t", "ecdsa", "-b", "384"),
    "p521": ("-t", "ecdsa", "-b", "521"),
    "ed25519": ("-t", "ed25519"),
    "rsa": ("-t", "rsa", "-b", "2048"),
    "p256 in pem": ("-t", "ecdsa", "-m", "PEM"),
    "rsa in pkcs8": ("-t", "rsa", "-b", "2048", "-m", "PKCS8"),
}


@pytest.mark.parametrize("options", KEYS.values(), ids=KEYS)
@pytest.mark.parametrize("hash_name", ["sha256", "sha512"])
def test_what_ssh_keygen_signs_is_accepted(
    tmp_path: Path, options: tuple[str, ...], hash_name: str
) -> None:
    private, key = _made_by_ssh_keygen(tmp_path, *options)
    sums = tmp_path / SUMS
    sums.write_bytes(sums_of(CONTENT))
    assert ran("ssh-keygen", "-Y", "sign", "-f", private, "-n", SUMS_NAMESPACE,
               "-O", f"hashalg={hash_name}", sums)  # fmt: skip
    files = {SUMS: sums.read_bytes(), "SHA256SUMS.sig": (tmp_path / "SHA256SUMS.sig").read_bytes()}
    assert accepted(files, "SHA256SUMS.sig", key)
    assert not accepted({**files, SUMS: b"x"}, "SHA256SUMS.sig", key)
    assert not accepted(files, "SHA256SUMS.sig", signer_of("p256").public)


@pytest.mark.parametrize("options", KEYS.values(), ids=KEYS)
def test_keys_of_ssh_keygen_sign_what_it_verifies(tmp_path: Path, options: tuple[str, ...]) -> None:
    private, key = _made_by_ssh_keygen(tmp_path, *options)
    signer = load_private_key(private, bytes)
    assert signer.public == key
    sums = sums_of(CONTENT)
    files = {SUMS: sums, **sign_sums(sums, None, signer)}
    assert "model.sig" not in files
    assert Stock(tmp_path / "trust", key).ssh_keygen(put(tmp_path, files))


def test_what_openssl_signs_is_accepted(tmp_path: Path) -> None:
    demand_tool("openssl")
    private, public, sums = tmp_path / "k", tmp_path / "k.pem", tmp_path / SUMS
    sums.write_bytes(sums_of(CONTENT))
    assert ran("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", private)
    assert ran("openssl", "pkey", "-in", private, "-pubout", "-out", public)
    out = tmp_path / "SHA256SUMS.p256.der"
    assert ran("openssl", "dgst", "-sha256", "-sign", private, "-out", out, sums)
    files = {SUMS: sums.read_bytes(), out.name: out.read_bytes()}
    assert accepted(files, out.name, from_pem(public.read_bytes()))
    private.chmod(0o600)
    assert load_private_key(private, bytes).public == from_pem(public.read_bytes())


def test_what_openssl_signs_with_ed25519_is_accepted(tmp_path: Path) -> None:
    demand_tool("openssl")
    private, public, sums = tmp_path / "k", tmp_path / "k.pem", tmp_path / SUMS
    sums.write_bytes(sums_of(CONTENT))
    assert ran("openssl", "genpkey", "-algorithm", "ed25519", "-out", private)
    assert ran("openssl", "pkey", "-in", private, "-pubout", "-out", public)
    out = tmp_path / "SHA256SUMS.ed25519.raw"
    assert ran("openssl", "pkeyutl", "-sign", "-inkey", private, "-rawin", "-in", sums, "-out", out)
    files = {SUMS: sums.read_bytes(), out.name: out.read_bytes()}
    assert accepted(files, out.name, from_pem(public.read_bytes()))
    private.chmod(0o600)
    assert load_private_key(private, bytes).public == from_pem(public.read_bytes())


@pytest.mark.parametrize("legacy", [False, True], ids=["prehashed", "legacy"])
def test_what_minisign_signs_is_accepted(tmp_path: Path, legacy: bool) -> None:
    demand_tool("minisign")
    sums = tmp_path / SUMS
    sums.write_bytes(sums_of(CONTENT))
    public, private = tmp_path / "m.pub", tmp_path / "m.key"
    assert ran("minisign", "-G", "-W", "-p", public, "-s", private)
    assert ran("minisign", "-S", *(["-l"] if legacy else []), "-s", private, "-m", sums)
    key = minisign.read_public_key_file(public.read_bytes(), "m.pub")
    files = {SUMS: sums.read_bytes(), "SHA256SUMS.minisig": Path(f"{sums}.minisig").read_bytes()}
    assert accepted(files, "SHA256SUMS.minisig", key)
    assert not accepted({**files, SUMS: b"x"}, "SHA256SUMS.minisig", key)
    renamed = files["SHA256SUMS.minisig"].replace(b"file:SHA256SUMS", b"file:SHA256SUMZ")
    assert not accepted({**files, "SHA256SUMS.minisig": renamed}, "SHA256SUMS.minisig", key)


def test_what_signify_signs_is_accepted(tmp_path: Path) -> None:
    demand_tool("signify-openbsd")
    sums = tmp_path / SUMS
    sums.write_bytes(sums_of(CONTENT))
    public, private = tmp_path / "s.pub", tmp_path / "s.sec"
    assert ran("signify-openbsd", "-G", "-n", "-p", public, "-s", private)
    assert ran("signify-openbsd", "-S", "-s", private, "-m", sums)
    key = minisign.read_public_key_file(public.read_bytes(), "s.pub")
    files = {SUMS: sums.read_bytes(), "SHA256SUMS.sig": (tmp_path / "SHA256SUMS.sig").read_bytes()}
    assert accepted(files, "SHA256SUMS.sig", key)
    assert not accepted({**files, SUMS: b"x"}, "SHA256SUMS.sig", key)


@pytest.mark.parametrize("curve", ["prime256v1", "secp384r1", "secp521r1"])
@pytest.mark.parametrize("with_sums", [False, True], ids=["alone", "beside sums"])
def test_what_model_signing_signs_is_accepted(tmp_path: Path, curve: str, with_sums: bool) -> None:
    hashing, signing = model_signing("hashing"), model_signing("signing")
    private, public = tmp_path / "k", tmp_path / "k.pem"
    assert ran("openssl", "ecparam", "-name", curve, "-genkey", "-noout", "-out", private)
    assert ran("openssl", "pkey", "-in", private, "-pubout", "-out", public)
    sums = sums_of(CONTENT)
    folder = put(tmp_path / "evidence", {**CONTENT, **({SUMS: sums} if with_sums else {})})
    config = signing.Config().use_elliptic_key_signer(private_key=private)
    config.set_hashing_config(
        hashing.Config().set_ignored_paths(paths=["model.sig"], ignore_git_paths=True)
    ).sign(folder, folder / "model.sig")
    files = {SUMS: sums, "model.sig": (folder / "model.sig").read_bytes()}
    assert accepted(files, "model.sig", from_pem(public.read_bytes()))
    carrier = carrier_of("model.sig")
    assert carrier is not None
    found = read_signature(carrier, "model.sig", files["model.sig"])
    assert sorted(found.ignored) == [
        ".git", ".gitattributes", ".github", ".gitignore", "model.sig",
    ]  # fmt: skip
    assert found.verify(from_pem(public.read_bytes()), b"other") is not with_sums
