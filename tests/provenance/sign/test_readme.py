"""VERIFY.md: its commands are run as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from signed_evidence import CONTENT, IDENTITY, Stock, demand_tool, put, signer_of

from reefkit.provenance.sign.carriers import SUMS
from reefkit.provenance.sign.public_key import to_openssh
from reefkit.provenance.sign.readme import verify_readme
from reefkit.provenance.sign.signatures import forms_of
from reefkit.provenance.sign.stage import Order, sign_folder

# `reef-archive verify` has tests of its own; the others are on no Linux, or cannot be had here.
ELSEWHERE = ("reef-archive ", "cosign ", "cmd ", "Get-Content ")
COMMANDS = {
    "p256": ["sha256sum", "shasum", "ssh-keygen", "ssh-keygen", "openssl", "model_signing"],
    "ed25519": ["sha256sum", "shasum", "ssh-keygen", "openssl", "minisign"],
}


def _commands(text: str) -> list[str]:
    found = [
        match.replace("\\\n", " ")
        for match in re.findall(r"^    ([a-z].*(?:\\\n.*)?)$", text, re.MULTILINE)
    ]
    return [
        command
        for command in found
        if not command.startswith((*ELSEWHERE, "identity ", "fingerprint ", IDENTITY))
    ]


@pytest.mark.parametrize("algorithm", COMMANDS)
def test_its_commands_accept_the_folder_and_notice_a_change(tmp_path: Path, algorithm: str) -> None:
    folder = put(tmp_path / "evidence", CONTENT)
    signer = signer_of(algorithm)
    sign_folder(folder, Order(signer, IDENTITY))
    trust = Stock(tmp_path / "trust", signer.public).home
    (trust / "key.pub").write_text(to_openssh(signer.public))
    commands = _commands((folder / "VERIFY.md").read_text())
    assert [command.split()[0] for command in commands] == COMMANDS[algorithm]
    own = {
        "TRUSTED_SIGNERS": trust / "signers",
        "TRUSTED.pem": trust / "key.pem",
        "TRUSTED.pub": trust / "key.pub",
        "TRUSTED.minisign.pub": trust / "minisign.pub",
        "model_signing": Path(sys.executable).parent / "model_signing",
    }
    for command in commands:
        demand_tool(command.split()[0].replace("model_signing", "sh"))
        for name, path in own.items():
            command = command.replace(name, str(path)) if name in command else command
        assert _succeeds(command, folder), command
        if "-e -m" not in command:
            assert not _succeeds(command, _changed(folder, tmp_path / "changed")), command


def _changed(folder: Path, copy: Path) -> Path:
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    (copy / "a.bin").write_bytes(b"changed")
    (copy / SUMS).write_bytes((copy / SUMS).read_bytes()[:-1])
    return copy


def _succeeds(command: str, folder: Path) -> bool:
    done = subprocess.run(command, shell=True, cwd=folder, capture_output=True, check=False)
    return done.returncode == 0


@pytest.mark.parametrize("algorithm", COMMANDS)
def test_it_says_that_the_keys_inside_prove_nothing(algorithm: str) -> None:
    signer = signer_of(algorithm)
    for custody in (False, True):
        text = verify_readme(signer.public, IDENTITY, forms_of(signer), custody=custody)
        assert "**The keys in this folder prove nothing.**" in text
        assert ("custody.head.json.sig" in text) is custody
        assert text == verify_readme(signer.public, IDENTITY, forms_of(signer), custody=custody)
        assert "{" not in text.replace("{ $", "").replace('{ "BAD', "")


def test_a_security_key_has_the_command_of_ssh_keygen_alone() -> None:
    text = verify_readme(signer_of("p256").public, IDENTITY, [forms_of(signer_of("p256"))[0]])
    assert "ssh-keygen -Y verify" in text
    assert not any(tool in text for tool in ("openssl", "cosign", "model_signing", "minisign"))
