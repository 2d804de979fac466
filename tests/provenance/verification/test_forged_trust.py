"""Evidence that was made to look trusted: what a signature binds, where trust comes from."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest
from verifiable import FILES, add_signature, key, package, put, signer_of, tell, trust, zipped

from reefkit.errors import Unusable
from reefkit.provenance.custody.statements import loose_statement
from reefkit.provenance.sign.carriers import all_names
from reefkit.provenance.sign.key import ED25519
from reefkit.provenance.sign.public_key import to_openssh
from reefkit.records.custody import Artifact, Link, append

FLAT = {"a.txt": b"1", "b.bin": b"\0" * 9}


def sums_by(algorithm: str, files: dict[str, bytes], *, tagged: bool = False) -> bytes:
    lines: list[str] = []
    for name, data in files.items():
        digest = hashlib.new(algorithm, data).hexdigest()
        tag = algorithm.upper().replace("BLAKE2B", "BLAKE2b")
        lines.append(f"{tag} ({name}) = {digest}\n" if tagged else f"{digest}  {name}\n")
    return "".join(lines).encode()


def with_list_by(algorithm: str, folder: Path, *, tagged: bool = False) -> Path:
    """Replace the signed list by one of another hash, of the files as they are now."""
    for name in all_names():
        if name != "model.sig":
            (folder / name).unlink(missing_ok=True)
    names = sorted(set(os.listdir(folder)) - {"model.sig"})
    sums = sums_by(algorithm, {n: (folder / n).read_bytes() for n in names}, tagged=tagged)
    (folder / "SHA256SUMS").write_bytes(sums)
    return folder


@pytest.mark.parametrize("algorithm", ["sha512", "sha384", "blake2b"])
def test_a_signature_over_sha256_vouches_for_no_list_of_another_hash(
    algorithm: str, tmp_path: Path
) -> None:
    folder = package(tmp_path / "p", FLAT)
    signers = trust(tmp_path, key())
    tagged = algorithm == "blake2b"
    assert tell(with_list_by(algorithm, folder, tagged=tagged), signers).verdict == "VERIFIED"
    put(folder, {name: data + b"changed" for name, data in FLAT.items()})
    assert tell(with_list_by(algorithm, folder, tagged=tagged), signers).verdict == "FAILED"


def test_a_folder_that_became_a_link_is_never_only_absent(tmp_path: Path) -> None:
    folder = package(tmp_path / "p", {**FILES, "sub/file.txt": b"1"})
    shutil.move(folder / "sub", tmp_path / "elsewhere")
    (folder / "sub").symlink_to(tmp_path / "elsewhere")
    signers = trust(tmp_path, key())
    for required in ((), (next(iter(FILES)),)):
        told = tell(folder, signers, required=required)
        assert (told.verdict, "link" in told.kinds) == ("FAILED", True)


@pytest.mark.parametrize("how", ["signers", "link", "policy", "signers of the policy"])
def test_trust_that_comes_with_the_evidence_is_refused(how: str, tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    inside = folder / "allowed_signers"
    shutil.copy(trust(tmp_path, key()), inside)
    policy = tmp_path / "policy.toml"
    policy.write_text(f'schema = "reefkit.policy/1"\nsigners = "{inside}"\n')
    if how == "link":
        (tmp_path / "link").symlink_to(inside)
    elif how == "policy":
        own = trust(tmp_path, key())
        policy = folder / "policy.toml"
        policy.write_text(f'schema = "reefkit.policy/1"\nsigners = "{own}"\n')
    options = {
        "signers": {"signers": inside},
        "link": {"signers": tmp_path / "link"},
        "policy": {"policy": policy},
        "signers of the policy": {"policy": policy},
    }
    with pytest.raises(Unusable, match="comes with the evidence"):
        tell(folder, **options[how])


def test_a_withdrawal_beside_a_lone_list_is_read(tmp_path: Path) -> None:
    folder = put(tmp_path / "p", {"a.txt": b"1"})
    sums = sums_by("sha256", {"a.txt": b"1"})
    put(folder, {"SHA256SUMS": sums, "withdrawn.json": loose_statement(sums, "wrong seed")})
    told = tell(folder / "SHA256SUMS", integrity_only=True)
    assert (told.verdict, "withdrawn" in told.kinds) == ("FAILED", True)


@pytest.mark.parametrize("data", [b"", b"junk", b"\x30\x03\x02\x01"])
def test_a_timestamp_that_is_none_does_not_ride_along(data: bytes, tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    (folder / "SHA256SUMS.tsr").write_bytes(data)
    assert tell(folder, trust(tmp_path, key())).verdict == "FAILED"


def test_a_timestamp_for_a_signer_who_is_not_there_is_extra(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    (folder / "SHA256SUMS.5.tsr").write_bytes(b"\x30\x03\x02\x01\x00")
    told = tell(folder, trust(tmp_path, key()))
    assert (told.verdict, "extra" in told.kinds) == ("FAILED", True)


def test_a_revoked_further_signer_is_told(tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    other = signer_of(ED25519)
    add_signature(folder, other, 2)
    signers = trust(tmp_path, key(), other)
    revoked = tmp_path / "revoked.pub"
    revoked.write_text(to_openssh(other.public) + "\n")
    told = tell(folder, signers, revoked=(revoked,))
    assert (told.verdict, told.kinds) == ("VERIFIED", {"further-signer"})


@pytest.mark.parametrize("key_of", ["dsseEnvelope", "messageSignature"])
def test_a_bundle_under_another_name_is_called_what_it_is(key_of: str, tmp_path: Path) -> None:
    (tmp_path / "my.json").write_text(f'{{"{key_of}": {{}}}}')
    with pytest.raises(Unusable, match=r"bundle, not evidence itself"):
        tell(tmp_path / "my.json")


def test_a_chain_is_there_for_the_lists_folder_only(tmp_path: Path) -> None:
    """A chain beside a lone list that does not name it is no part of what was asked for."""
    folder = put(tmp_path / "p", {"a.txt": b"1", "SHA256SUMS": sums_by("sha256", {"a.txt": b"1"})})
    append(folder, Link("dump", [Artifact("a.txt", "0" * 64)]))
    assert tell(folder / "SHA256SUMS", integrity_only=True).verdict == "VERIFIED"


@pytest.mark.parametrize("name", ["SHA256SUMS.sigstore.json", "model.sig"])
def test_what_a_bundle_claims_and_nobody_checked_is_no_pass(name: str, tmp_path: Path) -> None:
    folder = package(tmp_path / "p")
    bundle = json.loads((folder / name).read_bytes())
    bundle["verificationMaterial"]["tlogEntries"] = [{"logIndex": "1"}]
    (folder / name).write_text(json.dumps(bundle))
    told = tell(folder, trust(tmp_path, key()))
    assert (told.verdict, told.kinds) == ("INCOMPLETE", {"not-checked"})


def test_a_zip_with_one_folder_around_everything_is_verified(tmp_path: Path) -> None:
    folder = package(tmp_path / "run-16")
    files = {
        f"run-16/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    signers = trust(tmp_path, key())
    told = tell(zipped(tmp_path / "a.zip", files), signers)
    assert (told.verdict, told.kinds) == ("VERIFIED", {"dialect"})
    told = tell(zipped(tmp_path / "b.zip", {**files, "__MACOSX/._x": b"1"}), signers)
    assert (told.verdict, "extra" in told.kinds) == ("FAILED", True)
