"""`reef-archive keygen`: the files of a key, all or none."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from signed_evidence import IDENTITY, demand_tool, ran

from reefkit.errors import Unusable
from reefkit.provenance.sign import new_files
from reefkit.provenance.sign.new_files import NewFile, put_files
from reefkit.provenance.sign.private_key import load_private_key
from reefkit.provenance.sign.public_key import fingerprint, from_openssh, from_pem
from reefkit.records.new_file import refuse_existing

Command = Callable[..., Any]
P256_FILES = {"lab", "lab.pub", "lab.pem", "lab.allowed_signers"}


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_key_has_its_files_and_modes(tmp_path: Path, reef_archive: Command, umask: int) -> None:
    former = os.umask(umask)
    try:
        answer = reef_archive("keygen", "--out", tmp_path / "lab", "--identity", IDENTITY, "--json")
    finally:
        os.umask(former)
    assert answer.code == 0
    assert _names(tmp_path) == P256_FILES
    assert stat.S_IMODE((tmp_path / "lab").stat().st_mode) == 0o600
    key = from_openssh((tmp_path / "lab.pub").read_bytes())
    assert from_pem((tmp_path / "lab.pem").read_bytes()) == key
    assert load_private_key(tmp_path / "lab", bytes).public == key
    document = answer.document
    assert document["schema"] == "reefkit.key/1"
    assert document["fingerprint"] == fingerprint(key)
    assert document["encrypted"] is False
    line = (tmp_path / "lab.allowed_signers").read_text()
    assert line.startswith(
        f'{IDENTITY} namespaces="reefkit-sums,reefkit-custody,reefkit-audit" ecdsa-sha2-nistp256 '
    )
    assert (tmp_path / "lab.pub").read_text().endswith(f" {IDENTITY}\n")


def test_ed25519_has_a_key_for_minisign_that_follows_from_it(
    tmp_path: Path, reef_archive: Command
) -> None:
    demand_tool("minisign")
    options = ("--identity", IDENTITY, "--type", "ed25519")
    assert reef_archive("keygen", "--out", tmp_path / "lab", *options).code == 0
    assert _names(tmp_path) == {*P256_FILES, "lab.minisign.pub"}
    target = tmp_path / "evidence"
    target.mkdir()
    (target / "a").write_bytes(b"x")
    assert reef_archive("sign", target, "--key", tmp_path / "lab").code == 0
    assert ran("minisign", "-V", "-p", tmp_path / "lab.minisign.pub", "-m", target / "SHA256SUMS")


def test_a_passphrase_comes_from_a_file_or_the_environment(
    tmp_path: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"correct horse\nsecond line\n")
    (tmp_path / "keys").mkdir()
    out = tmp_path / "keys" / "lab"
    command = ("keygen", "--out", out, "--identity", IDENTITY)
    assert reef_archive(*command, "--passphrase-file", secret).code == 0
    assert b"ENCRYPTED" in out.read_bytes()
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"x")
    sign = ("sign", tmp_path / "a", "--key", out)
    refused = reef_archive(*sign)
    assert refused.code == 2 and "no terminal" in refused.err
    monkeypatch.setenv("REEFKIT_PASSPHRASE", "wrong horse")
    refused = reef_archive(*sign)
    assert refused.code == 2 and "The passphrase does not open" in refused.err
    assert not (tmp_path / "a" / "SHA256SUMS").exists()
    monkeypatch.setenv("REEFKIT_PASSPHRASE", "correct horse")
    assert reef_archive(*sign).code == 0


@pytest.mark.parametrize("passphrase", [b"four", b"x" * 73])
def test_a_passphrase_that_a_tool_would_refuse_is_refused(
    tmp_path: Path, reef_archive: Command, passphrase: bytes
) -> None:
    (tmp_path / "secret").write_bytes(passphrase)
    answer = reef_archive("keygen", "--out", tmp_path / "lab", "--identity", IDENTITY,
                          "--passphrase-file", tmp_path / "secret")  # fmt: skip
    assert answer.code == 2 and "5 to 72 bytes" in answer.err
    assert _names(tmp_path) == {"secret"}


@pytest.mark.parametrize("there", sorted(P256_FILES))
def test_nothing_is_overwritten_without_force(
    tmp_path: Path, reef_archive: Command, there: str
) -> None:
    (tmp_path / there).write_bytes(b"precious")
    command = ("keygen", "--out", tmp_path / "lab", "--identity", IDENTITY)
    answer = reef_archive(*command)
    assert answer.code == 2 and "exists already" in answer.err
    assert _names(tmp_path) == {there}
    assert (tmp_path / there).read_bytes() == b"precious"
    assert reef_archive(*command, "--force").code == 0
    assert _names(tmp_path) == P256_FILES


def test_a_link_is_not_followed(tmp_path: Path, reef_archive: Command) -> None:
    (tmp_path / "lab").symlink_to(tmp_path / "elsewhere")
    command = ("keygen", "--out", tmp_path / "lab", "--identity", IDENTITY, "--force")
    assert reef_archive(*command).code == 2
    assert _names(tmp_path) == {"lab"}


def test_a_folder_is_made_for_the_user_alone(tmp_path: Path, reef_archive: Command) -> None:
    out = tmp_path / "config" / "reefkit" / "lab"
    assert reef_archive("keygen", "--out", out, "--identity", IDENTITY).code == 0
    assert stat.S_IMODE(out.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("out", ["file/lab", "file/a/lab", ".", ""])
def test_an_unusable_place_is_refused(
    tmp_path: Path, reef_archive: Command, out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    answer = reef_archive("keygen", "--out", out, "--identity", IDENTITY)
    assert answer.code == 2 and answer.err.startswith("Error: ")
    assert _names(tmp_path) == {"file"}


@pytest.mark.parametrize("identity", ["a b", "*", "a,b", "", "-x", "a\nb"])
def test_an_unusable_identity_is_refused(
    tmp_path: Path, reef_archive: Command, identity: str
) -> None:
    answer = reef_archive("keygen", "--out", tmp_path / "lab", f"--identity={identity}")
    assert answer.code == 2 and "identity" in answer.err
    assert _names(tmp_path) == set()


@pytest.mark.parametrize("failing", range(3))
def test_when_one_file_fails_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The folder of one of them is gone, or its name is taken while the others get theirs."""
    files = [NewFile(tmp_path / str(number), b"x") for number in range(3)]

    def meanwhile(path: Path, *, force: bool) -> None:
        refuse_existing(path, force=force)
        if path == files[-1].path:  # all have been looked at
            files[failing].path.write_bytes(b"another's")

    monkeypatch.setattr(new_files, "refuse_existing", meanwhile)
    with pytest.raises(Exception, match="exists already"):
        put_files(files)
    assert _names(tmp_path) == {str(failing)}
    assert files[failing].path.read_bytes() == b"another's"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="Cannot write"):
        put_files([NewFile(tmp_path / "a", b""), NewFile(tmp_path / "absent" / "b", b"")])
    assert _names(tmp_path) == set()


@pytest.mark.parametrize("ending", [".pub", ".pem", ".allowed_signers", ".minisign.pub", ".PUB"])
def test_a_private_key_is_not_called_like_a_public_one(
    tmp_path: Path, reef_archive: Command, ending: str
) -> None:
    answer = reef_archive("keygen", "--out", tmp_path / f"lab{ending}", "--identity", IDENTITY)
    assert answer.code == 2 and "public key" in answer.err
    assert _names(tmp_path) == set()


def test_an_empty_passphrase_in_the_environment_is_refused(
    tmp_path: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REEFKIT_PASSPHRASE", "")
    answer = reef_archive("keygen", "--out", tmp_path / "lab", "--identity", IDENTITY)
    assert answer.code == 2 and "set, but empty" in answer.err
    assert _names(tmp_path) == set()
