"""`reef-archive sign`: what it writes, what it refuses, and that it can be cut off anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from signed_evidence import (
    CONTENT,
    IDENTITY,
    Stock,
    accepted,
    demand_tool,
    put,
    ran,
    signer_of,
    sums_of,
)

from reefkit.provenance.sign import stage
from reefkit.provenance.sign.carriers import SUMS, carrier_of
from reefkit.provenance.sign.identity import allowed_signers_line
from reefkit.provenance.sign.public_key import to_openssh
from reefkit.provenance.sign.signatures import sign_sums
from reefkit.provenance.sign.stage import Order, sign_folder

Command = Callable[..., Any]
COMPANIONS = {"VERIFY.md", "allowed_signers", "key.pub.pem"}
SIGNATURES = {"SHA256SUMS.sig", "SHA256SUMS.p256.der", "SHA256SUMS.sigstore.json", "model.sig"}


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return _key(tmp_path, "p256", "the signer", "lab")


def _key(folder: Path, algorithm: str, which: str, name: str) -> Path:
    (folder / "keys").mkdir(exist_ok=True)
    path = folder / "keys" / name
    signer = signer_of(algorithm, which)
    path.write_bytes(signer.to_file(None))
    path.chmod(0o600)
    path.with_name(f"{name}.allowed_signers").write_text(
        allowed_signers_line(IDENTITY, signer.public)
    )
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path / "evidence", CONTENT)


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_folder_is_signed_for_every_tool(
    tmp_path: Path, folder: Path, key: Path, reef_archive: Command
) -> None:
    answer = reef_archive("sign", folder, "--key", key, "--json")
    assert answer.code == 0
    files = _files(folder)
    assert files.keys() == CONTENT.keys() | COMPANIONS | SIGNATURES | {SUMS}
    covered = {name: files[name] for name in CONTENT.keys() | COMPANIONS}
    assert files[SUMS] == sums_of(covered)
    document = answer.document
    assert document["schema"] == "reefkit.signature/1"
    assert document["path"] == str(folder)
    assert document["identity"] == IDENTITY
    assert document["schemes"] == ["sshsig", "openssl", "sigstore", "oms"]
    assert set(document["files"]) == COMPANIONS | SIGNATURES | {SUMS}
    stock = Stock(tmp_path / "trust", signer_of("p256").public)
    assert stock.ssh_keygen(folder) and stock.openssl(folder) and stock.model_signing(folder)
    demand_tool("sha256sum")
    assert ran("sha256sum", "--strict", "-c", SUMS, cwd=folder)


def test_signing_again_changes_nothing(folder: Path, key: Path, reef_archive: Command) -> None:
    assert reef_archive("sign", folder, "--key", key).code == 0
    before = _files(folder)
    for more in ((), ("--force",), ("--add",)):
        answer = reef_archive("sign", folder, "--key", key, "--json", *more)
        assert answer.code == 0
        assert answer.document["written"] == []
        assert _files(folder) == before


@pytest.mark.parametrize("lost", sorted(SIGNATURES))
def test_a_signature_that_is_missing_is_made_again(
    folder: Path, key: Path, reef_archive: Command, lost: str
) -> None:
    assert reef_archive("sign", folder, "--key", key).code == 0
    before = _files(folder)
    (folder / lost).unlink()
    code = reef_archive("sign", folder, "--key", key).code
    if lost == "SHA256SUMS.sig":  # it holds the key: nothing else says whose the others are
        assert code == 2
        assert reef_archive("sign", folder, "--key", key, "--force").code == 0
    else:
        assert code == 0
    assert _files(folder) == before


def test_another_signer_must_be_added(tmp_path: Path, folder: Path, key: Path,
                                      reef_archive: Command) -> None:  # fmt: skip
    assert reef_archive("sign", folder, "--key", key).code == 0
    before = _files(folder)
    other = _key(tmp_path, "ed25519", "other", "other")
    answer = reef_archive("sign", folder, "--key", other)
    assert answer.code == 2 and "--add" in answer.err
    assert _files(folder) == before
    answer = reef_archive("sign", folder, "--key", other, "--add", "--json")
    assert answer.code == 0 and answer.document["slot"] == 2
    after = _files(folder)
    assert after.keys() - before.keys() == {
        "SHA256SUMS.2.sig", "SHA256SUMS.2.ed25519.raw", "SHA256SUMS.2.minisig",
    }  # fmt: skip
    assert {name: after[name] for name in before} == before
    assert accepted(after, "SHA256SUMS.2.sig", signer_of("ed25519", "other").public)
    third = _key(tmp_path, "p256", "third", "third")
    assert reef_archive("sign", folder, "--key", third, "--add").code == 0
    stock = Stock(tmp_path / "trust", signer_of("p256", "third").public)
    (folder / "model.3.sig").replace(folder / "model.sig")
    assert stock.model_signing(folder)


def test_force_replaces_the_first_signer_whole(
    tmp_path: Path, folder: Path, key: Path, reef_archive: Command
) -> None:
    assert reef_archive("sign", folder, "--key", key).code == 0
    other = _key(tmp_path, "ed25519", "other", "other")
    assert reef_archive("sign", folder, "--key", other, "--force").code == 0
    carriers = {name for name in _files(folder) if carrier_of(name)}
    assert carriers == {"SHA256SUMS.sig", "SHA256SUMS.ed25519.raw", "SHA256SUMS.minisig"}


def test_nine_can_sign(folder: Path) -> None:
    for number in range(9):
        order = Order(signer_of("ed25519", str(number)), IDENTITY, add=number > 0)
        assert sign_folder(folder, order).slot == number + 1
    with pytest.raises(Exception, match="9 have signed"):
        sign_folder(folder, Order(signer_of("ed25519", "9"), IDENTITY, add=True))


@pytest.mark.parametrize("name", sorted({*SIGNATURES, "SHA256SUMS.minisig"}))
def test_nothing_is_added_to_an_invalid_signature(
    tmp_path: Path, folder: Path, key: Path, reef_archive: Command, name: str
) -> None:
    first = "ed25519" if name.endswith("minisig") else "p256"
    sign_folder(folder, Order(signer_of(first), IDENTITY))
    other = sign_sums(b"x", {}, signer_of(first))[name]
    (folder / name).write_bytes(other)
    before = _files(folder)
    adding = _key(tmp_path, "ed25519", "other", "other")
    answer = reef_archive("sign", folder, "--key", adding, "--add")
    assert answer.code == 1 and f"{name} is not a valid signature" in answer.err
    assert _files(folder) == before


def _change(folder: Path) -> None:
    (folder / "a.bin").write_bytes(b"changed")


def _add(folder: Path) -> None:
    (folder / "new").write_bytes(b"")


def _remove(folder: Path) -> None:
    (folder / "run.json").unlink()


@pytest.mark.parametrize(
    ("change", "said"),
    [(_change, "a.bin differs"), (_add, "new is not listed"), (_remove, "run.json is missing")],
)
@pytest.mark.parametrize("more", [(), ("--force",), ("--add",)], ids=str)
def test_sums_must_say_what_is_there(
    folder: Path, key: Path, reef_archive: Command, change: Callable[[Path], None], said: str,
    more: tuple[str, ...],
) -> None:  # fmt: skip
    assert reef_archive("sign", folder, "--key", key).code == 0
    change(folder)
    before = _files(folder)
    answer = reef_archive("sign", folder, "--key", key, *more)
    assert answer.code == 1 and said in answer.err
    assert _files(folder) == before


def test_sums_of_another_are_signed_as_they_are(
    folder: Path, key: Path, reef_archive: Command
) -> None:
    demand_tool("sha256sum")
    names = sorted(CONTENT, reverse=True)
    sums = subprocess.run(
        ["sha256sum", "-b", *names], cwd=folder, capture_output=True, check=True
    ).stdout
    (folder / SUMS).write_bytes(sums)
    assert reef_archive("sign", folder, "--key", key).code == 0
    files = _files(folder)
    assert files.keys() == CONTENT.keys() | SIGNATURES | {SUMS}
    assert files[SUMS] == sums


def _link(folder: Path) -> None:
    (folder / "link").symlink_to("a.bin")


def _empty_folder(folder: Path) -> None:
    (folder / "empty").mkdir()


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "pipe")


def _twins(folder: Path) -> None:
    (folder / "A.bin").write_bytes(b"")


def _backslash(folder: Path) -> None:
    (folder / "a\\b").write_bytes(b"")


def _newline(folder: Path) -> None:
    (folder / "a\nb").write_bytes(b"")


def _signature_alone(folder: Path) -> None:
    (folder / "SHA256SUMS.sig").write_bytes(b"x")


def _link_for_sums(folder: Path) -> None:
    (folder / SUMS).symlink_to("a.bin")


@pytest.mark.parametrize(
    "spoil",
    [_link, _empty_folder, _pipe, _twins, _backslash, _newline, _signature_alone, _link_for_sums],
)
def test_what_no_checksum_covers_is_refused(
    folder: Path, key: Path, reef_archive: Command, spoil: Callable[[Path], None]
) -> None:
    spoil(folder)
    before = sorted(folder.rglob("*"))
    answer = reef_archive("sign", folder, "--key", key)
    assert answer.code == 2
    assert answer.err.startswith("Error: ")
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("missing", ["absent", "empty"])
def test_nothing_to_sign(tmp_path: Path, key: Path, reef_archive: Command, missing: str) -> None:
    (tmp_path / "empty").mkdir()
    assert reef_archive("sign", tmp_path / missing, "--key", key).code == 2


def test_who_signs_must_be_known(folder: Path, key: Path, reef_archive: Command) -> None:
    key.with_name("lab.allowed_signers").unlink()
    answer = reef_archive("sign", folder, "--key", key)
    assert answer.code == 2 and "--identity" in answer.err
    assert reef_archive("sign", folder).code == 2
    assert _files(folder) == CONTENT
    assert reef_archive("sign", folder, "--key", key, "--identity", "me").code == 0
    assert (folder / "allowed_signers").read_text().startswith("me ")


def test_the_private_key_must_not_lie_inside(folder: Path, reef_archive: Command) -> None:
    key = _key(folder, "p256", "the signer", "lab")
    answer = reef_archive("sign", folder, "--key", key)
    assert answer.code == 2 and "lies in the folder" in answer.err
    assert not (folder / SUMS).exists()


def test_a_checksum_file_alone_is_signed(tmp_path: Path, key: Path, reef_archive: Command) -> None:
    sums = tmp_path / "checksums.txt"
    sums.write_bytes(sums_of(CONTENT))
    answer = reef_archive("sign", sums, "--key", key, "--json")
    assert answer.code == 0
    assert answer.document["files"] == [
        "checksums.txt.p256.der", "checksums.txt.sig", "checksums.txt.sigstore.json",
    ]  # fmt: skip
    assert reef_archive("sign", sums, "--key", key, "--json").document["written"] == []
    other = _key(tmp_path, "p256", "other", "other")
    assert reef_archive("sign", sums, "--key", other).code == 2
    assert reef_archive("sign", sums, "--key", other, "--add").code == 0
    assert (tmp_path / "checksums.txt.2.sig").exists()


@pytest.mark.parametrize("content", [b"", b"no sums\n", b"\0"])
def test_what_is_no_checksum_file_is_refused(
    tmp_path: Path, key: Path, reef_archive: Command, content: bytes
) -> None:
    (tmp_path / "x").write_bytes(content)
    assert reef_archive("sign", tmp_path / "x", "--key", key).code == 2
    assert not (tmp_path / "x.sig").exists()


def test_a_timestamp_is_put_beside_the_signatures(folder: Path) -> None:
    asked: list[bytes] = []

    def stamp(sums: bytes) -> bytes:
        asked.append(sums)
        return b"a response"

    order = Order(signer_of("p256"), IDENTITY, timestamp=stamp)
    done = sign_folder(folder, order)
    assert asked == [(folder / SUMS).read_bytes()]
    assert (folder / "SHA256SUMS.tsr").read_bytes() == b"a response"
    assert "rfc3161" in done.schemes
    assert sign_folder(folder, order).written == ()


CUT_OFF = """
import os, signal, sys
from reefkit.cli import archive, run
calls = int(sys.argv[1])
real = os.link
def link(*arguments):
    global calls
    if calls == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    calls -= 1
    return real(*arguments)
os.link = link
sys.exit(run(archive, sys.argv[2:]))
"""


def test_a_run_that_is_killed_can_be_run_again(
    tmp_path: Path, folder: Path, key: Path, reef_archive: Command
) -> None:
    whole = put(tmp_path / "whole", CONTENT)
    assert reef_archive("sign", whole, "--key", key).code == 0
    for calls in (0, 2, 4, 5, 7):
        command = [
            sys.executable,
            "-c",
            CUT_OFF,
            str(calls),
            "sign",
            str(folder),
            "--key",
            str(key),
        ]
        assert subprocess.run(command, check=False).returncode == -9
        left = _files(folder)
        assert any(name.endswith(".tmp") for name in left)
        for name in left.keys() & _files(whole).keys():
            assert left[name] == (whole / name).read_bytes()
        assert reef_archive("sign", folder, "--key", key).code == 0
        assert _files(folder) == _files(whole)
        for name in COMPANIONS | SIGNATURES | {SUMS}:
            (folder / name).unlink()


@pytest.mark.parametrize("algorithm", ["p256", "ed25519"])
def test_a_key_in_an_agent_signs_in_every_form(
    tmp_path: Path,
    folder: Path,
    reef_archive: Command,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: str,
) -> None:
    demand_tool("ssh-agent")
    demand_tool("ssh-add")
    private = _key(tmp_path, algorithm, "the signer", "lab")
    socket = tmp_path / "agent"
    agent = subprocess.Popen(
        ["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
    try:
        for _ in range(200):
            if socket.exists():
                break
            time.sleep(0.02)
        assert ran("ssh-add", "-q", private)
        public = private.with_name("lab.pub")
        public.write_text(to_openssh(signer_of(algorithm).public))
        command = ("sign", folder, "--agent", "--key", public)
        assert reef_archive(*command).code == 0  # the identity is that beside the key
        before = _files(folder)
        assert reef_archive("sign", folder, "--agent", "--identity", IDENTITY).code == 0
        assert _files(folder) == before  # although an agent's ECDSA is another each time
    finally:
        agent.terminate()
        agent.wait()
    stock = Stock(tmp_path / "trust", signer_of(algorithm).public)
    assert stock.ssh_keygen(folder) and stock.openssl(folder)
    assert stock.minisign(folder) if algorithm == "ed25519" else stock.model_signing(folder)


SETTINGS = [{"LC_ALL": "C", "TZ": "UTC"}, {"LC_ALL": "C.UTF-8", "TZ": "Pacific/Kiritimati"}]


def test_signatures_do_not_depend_on_where_they_are_made(tmp_path: Path, key: Path) -> None:
    results: list[dict[str, bytes]] = []
    for number, settings in enumerate(SETTINGS):
        content = dict(reversed(CONTENT.items())) if number else CONTENT
        folder = put(tmp_path / f"place{number}", {**content, "naïve.log": b"x"})
        os.utime(folder / "a.bin", (number, number))
        done = subprocess.run(
            [sys.executable, "-c", "import sys, os; os.umask(int(sys.argv[1]));"
             "from reefkit.cli import archive, run; sys.exit(run(archive, sys.argv[2:]))",
             str(0o077 * number), "sign", folder, "--key", key],
            env={**os.environ, **settings, "PYTHONHASHSEED": str(number)}, check=False,
        )  # fmt: skip
        assert done.returncode == 0
        results.append(_files(folder))
    assert results[0] == results[1]


def test_custody_is_signed_before_the_sums(
    tmp_path: Path, folder: Path, key: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = b'{"head": 1}\n'

    def head_of(_chain: bytes) -> bytes:
        return head

    monkeypatch.setattr("reefkit.provenance.custody.head.head_document", head_of)
    (folder / "custody.jsonl").write_bytes(b"{}\n")
    assert reef_archive("sign", folder, "--key", key).code == 0
    assert (folder / "custody.head.json").read_bytes() == head
    sums = (folder / SUMS).read_text()
    assert "custody.head.json\n" in sums and "custody.head.json.sig\n" in sums
    demand_tool("ssh-keygen")
    trust = Stock(tmp_path / "trust", signer_of("p256").public).home / "signers"
    assert ran("ssh-keygen", "-Y", "verify", "-f", trust, "-I", IDENTITY, "-n", "reefkit-custody",
               "-s", folder / "custody.head.json.sig", stdin=head)  # fmt: skip
    assert "custody.head.json.sig" in (folder / "VERIFY.md").read_text()
    for name in _files(folder):
        if name.startswith((SUMS, "model.sig")):
            (folder / name).unlink()
    assert reef_archive("sign", folder, "--key", key).code == 0  # the head is as it was
    for name in _files(folder):
        if name.startswith((SUMS, "model.sig")):
            (folder / name).unlink()
    other = _key(tmp_path, "p256", "other", "other")
    answer = reef_archive("sign", folder, "--key", other)
    assert answer.code == 2 and "custody.head.json" in answer.err
    assert reef_archive("sign", folder, "--key", other, "--force").code == 0


def test_what_changes_while_it_is_hashed_is_not_signed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from collections.abc import Iterator, Sequence

    from reefkit.provenance import hashing
    from reefkit.provenance.content.members import Content, Member
    from reefkit.provenance.sign import signable

    def faulty(
        _content: Content, wanted: Sequence[tuple[Member, frozenset[str]]], **_more: object
    ) -> Iterator[hashing.Hashed]:
        for member, _ in wanted:
            yield hashing.Hashed(member, 0, {}, "It changed meanwhile.")

    monkeypatch.setattr(signable, "hash_members", faulty)
    with pytest.raises(Exception, match=r"It changed meanwhile\."):
        sign_folder(folder, Order(signer_of("p256"), IDENTITY))
    assert _files(folder) == CONTENT
    assert stage.SCHEMA == "reefkit.signature/1"
