"""Revocation lists: read by ssh-keygen, or refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trust_keys import KeyFile, accepts, make_key, sign

from reefkit.errors import Unusable
from reefkit.provenance.trust.revocation import Revocations


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[KeyFile, KeyFile]:
    folder = tmp_path_factory.mktemp("keys")
    return make_key(folder, "good"), make_key(folder, "lost", "ecdsa")


def make_krl(path: Path, *keys: KeyFile) -> Path:
    public = [f"{key.path}.pub" for key in keys]
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(path), *public], check=True)
    return path


@pytest.mark.parametrize("form", ["krl", "list", "fingerprint"])
def test_a_listed_key_is_revoked_and_another_is_not(
    keys: tuple[KeyFile, KeyFile], tmp_path: Path, form: str
) -> None:
    good, lost = keys
    path = tmp_path / "-revoked list"
    if form == "list":
        path.write_text(f"# by whom\r\n\n  {lost.line} lost it\r\n")
    elif form == "krl":
        make_krl(path, lost)
    else:
        specification = tmp_path / "specification"
        specification.write_text(f"sha256: {lost.line}\n")
        command = ["ssh-keygen", "-q", "-k", "-f", str(path), str(specification)]
        subprocess.run(command, check=True)
    revocations = Revocations.load([path])
    assert revocations.revoked_in(lost.public) == path
    assert revocations.revoked_in(good.public) is None
    signers = tmp_path / "signers"
    signers.write_text(f"a@lab {good.line}\na@lab {lost.line}\n")
    assert not accepts(signers, sign(lost), "a@lab", "-r", str(path))
    assert accepts(signers, sign(good), "a@lab", "-r", str(path))


def test_many_keys_are_asked_about_in_one_call(
    keys: tuple[KeyFile, KeyFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, lost = keys
    revocations = Revocations.load([make_krl(tmp_path / "krl", lost)])
    revocations.ask([good.public, lost.public])
    monkeypatch.setenv("PATH", "")
    assert revocations.revoked_in(lost.public) == tmp_path / "krl"
    assert revocations.revoked_in(good.public) is None


def test_every_list_is_asked(keys: tuple[KeyFile, KeyFile], tmp_path: Path) -> None:
    good, lost = keys
    first = make_krl(tmp_path / "first", good)
    second = make_krl(tmp_path / "second", lost)
    revocations = Revocations.load([first, second])
    assert [revocations.revoked_in(key.public) for key in (good, lost)] == [first, second]


@pytest.mark.parametrize("content", ["cut", "cut in the magic", "longer", "empty", "text", "cert"])
def test_a_broken_list_is_refused(
    keys: tuple[KeyFile, KeyFile], tmp_path: Path, content: str
) -> None:
    good, lost = keys
    path = make_krl(tmp_path / "krl", lost)
    data = path.read_bytes()
    certificate = b"ssh-ed25519-cert-v01@openssh.com " + b"AAAA"
    path.write_bytes(
        {
            "cut": data[:-5],
            "cut in the magic": data[:7],
            "longer": data + b"\x01\0\0",
            "empty": b"",
            "text": b"nobody\n",
            "cert": certificate,
        }[content]
    )
    with pytest.raises(Unusable) as caught:
        Revocations.load([path]).ask([good.public])
    assert caught.value.exit_code == 2


def test_a_list_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be read"):
        Revocations.load([tmp_path / "none"])


def test_a_krl_without_ssh_keygen_is_refused_and_a_plain_list_is_read(
    keys: tuple[KeyFile, KeyFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, lost = keys
    krl = make_krl(tmp_path / "krl", lost)
    plain = tmp_path / "plain"
    plain.write_text(f"{good.line}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unusable, match="not installed"):
        Revocations.load([krl])
    assert Revocations.load([plain]).revoked_in(good.public) == plain


@pytest.mark.parametrize(
    "script",
    [
        "exit 0",
        "exit 255",
        'for key in "$@"; do echo "$key (x): ok"; done; exit 1',
        'echo "0.pub (key): fine"; exit 0',
        'echo "1.pub (key): ok"; exit 0',
        'echo "0.pub (key): REVOKED"; exit 0',
        'echo "0.pub (key): ok"; exit 1',
        "kill -9 $$",
    ],
)
def test_an_answer_of_ssh_keygen_that_is_not_understood_is_refused(
    keys: tuple[KeyFile, KeyFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    good, lost = keys
    revocations = Revocations.load([make_krl(tmp_path / "krl", lost)])
    program = tmp_path / "ssh-keygen"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(Unusable, match="cannot read the revocation list"):
        revocations.ask([good.public])


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | st.just(b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5"))
def test_any_plain_list_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "list"
    path.write_bytes(data)
    try:
        Revocations.load([path])
    except Unusable as error:
        assert "list" in error.message
