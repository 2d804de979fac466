"""Who signed, whether that counts, and what signatures of other tools are worth."""

from __future__ import annotations

import base64
import importlib
import json
import subprocess
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from signed_evidence import digests_of, put, signer_of, sums_of
from timestamp_authority import make_authority
from verifiable import FILES, add_signature, key, listed, package, tell, trust

from reefkit.errors import Unusable
from reefkit.provenance.finding import FindingKind as Kind
from reefkit.provenance.sign import bundle, oms, sshsig
from reefkit.provenance.sign.carriers import SUMS
from reefkit.provenance.sign.identity import allowed_signers_line
from reefkit.provenance.sign.key import ED25519, P256
from reefkit.provenance.sign.public_key import to_openssh, to_pem
from reefkit.provenance.sign.signing import ecdsa_der
from reefkit.provenance.sign.timestamp import query


def only(folder: Path, *names: str) -> Path:
    for path in folder.iterdir():
        is_signature = path.name.startswith((SUMS + ".", "model"))
        if is_signature and path.name not in names:
            path.unlink()
    return folder


@pytest.mark.parametrize("algorithm", [P256, ED25519])
def test_every_form_of_a_trusted_signer_counts(algorithm: str, tmp_path: Path) -> None:
    signer = signer_of(algorithm)
    folder = package(tmp_path / "e", by=signer)
    signers = trust(tmp_path, signer)
    for form in [path.name for path in folder.iterdir() if path.name.startswith((SUMS + ".", "m"))]:
        alone = only(package(tmp_path / form, by=signer), form)
        told = tell(alone, signers)
        assert (told.verdict, len(told.result.signers)) == ("VERIFIED", 1), form


def test_nobody_is_trusted_without_a_file_of_the_verifier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    told = tell(package(tmp_path / "e"))
    assert (told.verdict, told.kinds) == ("UNTRUSTED", {"unknown-signer"})
    assert not any(each.trusted for each in told.result.signers)


def test_integrity_only_does_not_ask_who_signed(tmp_path: Path) -> None:
    assert tell(package(tmp_path / "e"), integrity_only=True).verdict == "VERIFIED"


def test_integrity_only_accepts_no_broken_signature(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    (folder / "SHA256SUMS.sig").write_bytes(b"")
    assert tell(folder, integrity_only=True).verdict == "FAILED"


def test_a_raw_signature_needs_a_key_and_finds_the_copy(tmp_path: Path) -> None:
    files = {**FILES, "key.pub.pem": to_pem(key().public).encode()}
    folder = only(package(tmp_path / "e", files), "SHA256SUMS.p256.der")
    told = tell(folder)
    assert (told.verdict, told.kinds) == ("UNTRUSTED", {"unknown-signer"})
    assert told.result.signers[0].fingerprint is not None


def test_a_raw_signature_that_no_known_key_made_is_invalid(tmp_path: Path) -> None:
    folder = only(package(tmp_path / "e"), "SHA256SUMS.p256.der")
    told = tell(folder, trust(tmp_path, signer_of(P256, "another")))
    assert (told.verdict, "invalid-signature" in told.kinds) == ("FAILED", True)


def test_who_is_named_must_be_among_those_who_signed(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    signers = trust(tmp_path, key(), identity="alice@lab")
    assert tell(folder, signers, identity="alice@lab").verdict == "VERIFIED"
    told = tell(folder, signers, identity="bob@lab")
    assert (told.verdict, told.kinds) == ("UNTRUSTED", {"too-few-signers"})


def test_two_of_two_by_policy(tmp_path: Path) -> None:
    second = signer_of(P256, "second")
    folder = package(tmp_path / "e")
    (tmp_path / "both").write_text(
        allowed_signers_line("a@lab", key().public) + allowed_signers_line("b@lab", second.public)
    )
    policy = tmp_path / "policy.toml"
    policy.write_text('schema = "reefkit.policy/1"\nsigners = "both"\nthreshold = 2\n')
    told = tell(folder, policy=policy)
    assert (told.verdict, told.kinds) == ("UNTRUSTED", {"too-few-signers"})
    add_signature(folder, second, 2)
    assert tell(folder, policy=policy).verdict == "VERIFIED"


def test_an_unknown_second_signer_does_no_harm(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    add_signature(folder, signer_of(P256, "stranger"), 2)
    told = tell(folder, trust(tmp_path, key()))
    assert (told.verdict, told.kinds) == ("VERIFIED", set())
    assert {each.trusted for each in told.result.signers} == {True, False}


def test_another_namespace_is_another_purpose(tmp_path: Path) -> None:
    folder = listed(tmp_path / "e")
    data = sshsig.sign(key(), (folder / SUMS).read_bytes(), "git")
    put(folder, {"SHA256SUMS.sig": data})
    (tmp_path / "any").write_text(f"a@lab {to_openssh(key().public)}\n")
    told = tell(folder, tmp_path / "any")
    assert (told.verdict, told.kinds) == ("UNTRUSTED", {"namespace-not-allowed"})


def window(folder: Path, before: str) -> Path:
    path = folder / "window"
    path.write_text(f'a@lab valid-before="{before}" {to_openssh(key().public)}\n')
    return path


def test_a_key_that_expired_counts_at_the_time_it_was_valid(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    signers = window(tmp_path, "20250101Z")
    assert tell(folder, signers).kinds == {"outside-validity"}
    at = datetime(2024, 6, 1, tzinfo=timezone.utc)
    assert tell(folder, signers, at=at).verdict == "VERIFIED"


def test_a_revoked_key_is_not_trusted(tmp_path: Path) -> None:
    revoked = tmp_path / "revoked"
    revoked.write_text(to_openssh(key().public) + "\n")
    told = tell(package(tmp_path / "e"), trust(tmp_path, key()), revoked=(revoked,))
    assert (told.verdict, told.kinds) == ("UNTRUSTED", {"revoked"})


def test_a_timestamp_counts_only_by_an_authority_of_the_policy(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    (tmp_path / "tsa").mkdir()
    authority = make_authority(tmp_path / "tsa")
    sums = (folder / SUMS).read_bytes()
    put(folder, {"SHA256SUMS.tsr": authority.answer(query(sums).as_bytes())})
    told = tell(folder, trust(tmp_path, key()))
    assert (told.verdict, told.kinds) == ("VERIFIED", {"timestamp-not-checked"})
    policy = tmp_path / "policy.toml"
    policy.write_text(
        f'schema = "reefkit.policy/1"\ntimestamp_authorities = ["{authority.certificate}"]\n'
    )
    told = tell(folder, trust(tmp_path, key()), policy=policy)
    assert (told.verdict, told.kinds) == ("VERIFIED", set())
    now = datetime.now(timezone.utc)
    later = window(tmp_path, f"{now.year + 1}0101Z")
    at = datetime(now.year + 2, 1, 1, tzinfo=timezone.utc)
    assert tell(folder, later, at=at).verdict == "UNTRUSTED"
    assert tell(folder, later, at=at, policy=policy).verdict == "VERIFIED"
    put(folder, {"SHA256SUMS.tsr": authority.answer(query(b"other").as_bytes())})
    assert tell(folder, trust(tmp_path, key()), policy=policy).verdict == "FAILED"


def test_what_ssh_keygen_signs_is_accepted(tmp_path: Path) -> None:
    folder = listed(tmp_path / "e")
    run: Callable[..., Any] = lambda *words: subprocess.run(words, check=True, capture_output=True)  # noqa: E731
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "k")
    run("ssh-keygen", "-Y", "sign", "-q", "-f", tmp_path / "k", "-n", "reefkit-sums", folder / SUMS)
    (tmp_path / "signers").write_text("a@lab " + (tmp_path / "k.pub").read_text())
    assert tell(folder, tmp_path / "signers").verdict == "VERIFIED"


def test_what_model_signing_signs_is_accepted(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    from reefkit.provenance.sign.public_key import from_pem

    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "k.pem").write_bytes(pem)
    folder = put(tmp_path / "e", FILES)
    signing: Any = importlib.import_module("model_signing.signing")
    config = signing.Config().use_elliptic_key_signer(private_key=tmp_path / "k.pem")
    config.sign(folder, folder / "model.sig")
    from cryptography.hazmat.primitives.serialization import PublicFormat

    spki = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "signers").write_text(f"a@lab {to_openssh(from_pem(spki, 'k'))}\n")
    for target in (folder, folder / "model.sig"):
        told = tell(target, tmp_path / "signers")
        assert (told.verdict, told.result.checked) == ("VERIFIED", len(FILES))
    assert tell(folder, trust(tmp_path, key())).verdict == "FAILED"
    assert tell(folder, integrity_only=True).verdict == "VERIFIED"


def forged(change: Callable[[dict[str, Any]], object]) -> bytes:
    """Make a model.sig by whoever has a trusted key and means harm."""
    ours = json.loads(oms.encode(key(), digests_of(FILES), ()))
    statement = json.loads(base64.b64decode(ours["dsseEnvelope"]["payload"]))
    change(statement)
    payload = bundle.compact_json(statement)
    signature = ecdsa_der(key(), oms.pre_authentication(payload))
    ours["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    ours["dsseEnvelope"]["signatures"][0]["sig"] = base64.b64encode(signature).decode()
    return json.dumps(ours).encode()


def ignoring(*names: str) -> Callable[[dict[str, Any]], object]:
    return lambda s: s["predicate"]["serialization"].update(ignore_paths=list(names))


@pytest.mark.parametrize("extra", [".git/hooks/x", ".github/workflows/x.yml", "cache/x"])
def test_what_a_signature_lets_others_skip_is_looked_at(extra: str, tmp_path: Path) -> None:
    data = forged(ignoring(".git", ".github", "cache"))
    folder = put(tmp_path / "e", {**FILES, "model.sig": data})
    signers = trust(tmp_path, key())
    told = tell(folder, signers)
    assert (told.verdict, told.kinds) == ("VERIFIED", {"ignored-paths"})
    assert "3 paths" in told.said_of("model.sig")
    put(folder, {extra: b"evil"})
    assert tell(folder, signers).verdict == "FAILED"


def test_an_oms_signature_of_no_files_verifies_nothing(tmp_path: Path) -> None:
    def nothing(statement: dict[str, Any]) -> None:
        statement["predicate"]["resources"] = []
        statement["subject"][0]["digest"]["sha256"] = digests_of({"": b""})[""]

    folder = put(tmp_path / "e", {"model.sig": forged(nothing)})
    told = tell(folder, trust(tmp_path, key()))
    assert (told.verdict, told.kinds) == ("INCOMPLETE", {"nothing-verified"})


def leading_out(statement: dict[str, Any]) -> None:
    statement["predicate"]["resources"][0]["name"] = "../x"


def twice(statement: dict[str, Any]) -> None:
    statement["predicate"]["resources"].append(statement["predicate"]["resources"][0])


def single_file(statement: dict[str, Any]) -> None:
    statement["predicate"]["resources"] = [
        {"name": ".", "algorithm": "sha256", "digest": digests_of(FILES)["a.bin"]}
    ]


@pytest.mark.parametrize("change", [leading_out, twice, single_file])
def test_holes_of_model_signing_are_closed(
    change: Callable[[dict[str, Any]], object], tmp_path: Path
) -> None:
    put(tmp_path / "x", {"x": b""})
    alone = put(tmp_path / "alone", {**FILES, "model.sig": forged(change)})
    with pytest.raises(Unusable):
        tell(alone, trust(tmp_path, key()))
    folder = listed(tmp_path / "e")
    put(folder, {"model.sig": forged(change)})
    assert tell(folder, trust(tmp_path, key())).verdict == "FAILED"


def test_names_are_bound_not_only_contents(tmp_path: Path) -> None:
    folder = package(tmp_path / "e", {"a": b"1", "b": b"2"})
    renamed = {"c": b"1", "d": b"2"}
    for name in ("a", "b"):
        (folder / name).unlink()
    put(folder, {**renamed, SUMS: sums_of(renamed)})
    told = tell(folder, trust(tmp_path, key()))
    assert (told.verdict, Kind.OTHER_FILES_SIGNED.value in told.kinds) == ("FAILED", True)


def test_an_openpgp_signature_is_said_not_to_be_checked(tmp_path: Path) -> None:
    folder = listed(tmp_path / "e")
    put(folder, {"SHA256SUMS.asc": b"-----BEGIN PGP SIGNATURE-----\n"})
    told = tell(folder, integrity_only=True)
    assert (told.verdict, told.kinds) == ("INCOMPLETE", {"unsigned", "not-checked"})


def test_a_policy_demands_files_and_excuses_none(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    policy = tmp_path / "policy.toml"
    for name, verdict in (("a.bin", "VERIFIED"), ("metrics.json", "INCOMPLETE")):
        policy.write_text(f'schema = "reefkit.policy/1"\nrequire = ["{name}"]\n')
        assert tell(folder, trust(tmp_path, key()), policy=policy).verdict == verdict
    (folder / "logs/rank0.log").unlink()
    policy.write_text('schema = "reefkit.policy/1"\nrequire = ["a.bin"]\n')
    assert tell(folder, trust(tmp_path, key()), policy=policy).verdict == "INCOMPLETE"
