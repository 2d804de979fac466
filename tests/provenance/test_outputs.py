"""What the commands write, they never write over what they read; and what they refuse to take."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from signed_evidence import IDENTITY

from reefkit.commands.pack import _epoch  # pyright: ignore[reportPrivateUsage]
from reefkit.errors import Unusable
from reefkit.provenance.evidence import pack

Command = Callable[..., Any]


@pytest.fixture
def place(tmp_path: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hold a key, a package, a signed folder, a list in a folder that is none, and a policy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REEFKIT_SIGNERS", "lab.allowed_signers")
    assert reef_archive("keygen", "--out", "lab", "--identity", IDENTITY).code == 0
    for name in ("run", "folder", "loose"):
        Path(name).mkdir()
        Path(name, "a").write_bytes(b"x")
    assert reef_archive("pack", "run", "-o", "e.zip", "--key", "lab", "--no-redact").code == 0
    assert reef_archive("sign", "folder", "--key", "lab").code == 0
    Path("loose/SHA256SUMS").write_text(f"{sha256(b'x').hexdigest()}  a\n")
    Path("loose/SHA256SUMS.sig").write_bytes(b"no signature")
    Path("ca.pem").write_bytes(b"")
    Path("policy.toml").write_text(
        'schema = "reefkit.policy/1"\nsigners = "other.signers"\ntimestamp_authorities = ["ca.pem"]'
    )
    Path("other.signers").write_bytes(Path("lab.allowed_signers").read_bytes())
    Path("link").symlink_to("folder")
    return tmp_path


def _all(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("target", "out"),
    [
        ("e.zip", "e.zip"),
        ("e.zip", "./run/../e.zip"),
        ("e.zip", "lab.allowed_signers"),
        ("folder", "folder/VERIFY.md"),
        ("folder", "folder/new.xml"),
        ("folder", "link/new.xml"),
        ("link", "folder/new.xml"),
        ("folder/SHA256SUMS", "folder/new.xml"),
        ("folder/model.sig", "link/a"),
        ("loose/SHA256SUMS", "loose/a"),
        ("loose/SHA256SUMS", "loose/SHA256SUMS"),
        ("loose/SHA256SUMS", "loose/SHA256SUMS.sig"),
    ],
)
def test_verify_writes_nothing_over_or_into_what_it_reads(
    place: Path, reef_archive: Command, target: str, out: str
) -> None:
    before = _all(place)
    answer = reef_archive("verify", target, "-o", out, "--force")
    assert answer.code == 2 and "Choose another --out" in answer.err
    assert _all(place) == before


@pytest.mark.parametrize("out", ["policy.toml", "other.signers", "ca.pem", "gone"])
def test_nor_over_its_own_files(place: Path, reef_archive: Command, out: str) -> None:
    before = _all(place)
    answer = reef_archive(
        "verify", "e.zip", "--policy", "policy.toml", "--revoked", "gone", "-o", out, "--force"
    )
    assert answer.code == 2 and "is to be read" in answer.err
    assert _all(place) == before


def test_a_report_beside_a_list_may_be_written_again(place: Path, reef_archive: Command) -> None:
    for _ in range(2):
        command = ("verify", "loose/SHA256SUMS", "--integrity-only", "-o", "loose/r", "--force")
        assert "lies in" not in reef_archive(*command).err
        assert Path("loose/r").read_text()


@pytest.mark.parametrize("out", ["run/a", "run/b"])
def test_manifest_writes_over_no_input(place: Path, reef_archive: Command, out: str) -> None:
    Path("run/b").write_bytes(b'{"schema": "other"}')
    before = _all(place)
    for path in ("run", out):
        answer = reef_archive("manifest", path, "-o", out, "--force")
        assert answer.code == 2 and "Choose another --out" in answer.err
    assert _all(place) == before
    for _ in range(2):
        assert reef_archive("manifest", "run", "-o", "run/m.json", "--force").code == 0


def test_a_hyphen_is_stdout_and_no_file(place: Path, reef_archive: Command) -> None:
    before = _all(place)
    answer = reef_archive("verify", "e.zip", "--format", "junit", "-o", "-")
    assert answer.code == 0 and answer.out.startswith("<?xml")
    answer = reef_archive("manifest", "run", "-o", "-")
    assert answer.code == 0 and answer.document["schema"] == "reefkit.manifest/1"
    for command in (
        ("keygen", "--identity", IDENTITY),
        ("pack", "run", "--unsigned", "--no-redact"),
    ):
        assert reef_archive(*command, "--out", "-").code == 2
    assert _all(place) == before
    assert reef_archive("verify", "e.zip", "-o", "./-").code == 0
    assert Path("-").read_text().startswith("VERIFIED")


@pytest.mark.parametrize("zone", ["UTC+5", "UTC", "UTC-5"])
@pytest.mark.parametrize(
    "at",
    [
        "0001-01-01",
        "9999-12-31T23:59:59",
        "0001-01-01T00:00:00+23:59",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ],
)
def test_the_first_and_the_last_days_are_no_fault(
    place: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch, zone: str, at: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        answer = reef_archive("verify", "e.zip", f"--at={at}")
        for after, before in (("00010101Z", "99991231"), ("19700102", "99991231235959Z")):
            line = Path("lab.allowed_signers").read_text().split(" ", 1)
            window = f'valid-after="{after}",valid-before="{before}",'
            Path("s").write_text(f"{line[0]} {window}{line[1]}")
            judged = reef_archive("verify", "e.zip", f"--at={at}", "--signers", "s")
            assert judged.code in (0, 2, 3) and "fault of reefkit" not in judged.err
    finally:
        monkeypatch.undo()
        time.tzset()
    assert "fault of reefkit" not in answer.err
    assert (answer.code, "must be a time" in answer.err) in ((0, False), (2, True))
    assert answer.code == 2 or at.endswith("Z") or at == "0001-01-01" or at.endswith("59")


@pytest.mark.parametrize("value", ["9" * 5000, "253402300800", "1e3", "-1", "\u0661"])
def test_an_epoch_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", value)
    with pytest.raises(Unusable, match="SOURCE_DATE_EPOCH"):
        _epoch()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0" * 5000 + "86400")
    assert _epoch() == 86400


@pytest.mark.parametrize(
    "command",
    [
        ("verify", ""),
        ("verify", "e.zip", "--signers", ""),
        ("verify", "e.zip", "--policy="),
        ("verify", "e.zip", "--revoked", "lab.pub", "--revoked", ""),
        ("verify", "e.zip", "--require", ""),
        ("verify", "e.zip", "--git", ""),
        ("verify", "e.zip", "--identity", ""),
        ("verify", "e.zip", "--out", ""),
        ("verify", "e.zip", "--at", ""),
        ("sign", "", "--key", "lab"),
        ("sign", "run", "--key", ""),
        ("sign", "run", "--key", "lab", "--timestamp", ""),
        ("pack", "", "-o", "f.zip", "--unsigned", "--no-redact"),
        ("pack", "run", "-o", "", "--unsigned", "--no-redact"),
        ("manifest", "", "--json"),
        ("keygen", "--out", "k", "--identity", IDENTITY, "--passphrase-file", ""),
        ("gate", ""),
        ("doctor", ""),
    ],
)
def test_an_empty_value_is_a_variable_that_is_not_set(
    place: Path, reef_archive: Command, command: tuple[str, ...]
) -> None:
    before = _all(place)
    answer = reef_archive(*command)
    assert answer.code == 2 and "Invalid value for" in answer.err + answer.out
    assert _all(place) == before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--key", "nokey"), "reef-archive keygen"),
        (("--key", "run"), "a folder"),
        (("--key", "lab/x"), "not a directory"),
        (("--key", os.devnull), "not a file"),
        (("--agent", "--key", "nokey.pub"), "cannot be read"),
        (("--key", "secret", "--passphrase-file", "none"), "cannot be read"),
        (("--key", "secret", "--passphrase-file", "run"), "cannot be read"),
    ],
)
def test_a_key_that_cannot_be_had_is_said_with_what_to_do(
    place: Path, reef_archive: Command, options: tuple[str, ...], said: str
) -> None:
    Path("pass").write_text("correct horse\n")
    command = ("keygen", "--out", "secret", "--identity", IDENTITY, "--passphrase-file", "pass")
    assert reef_archive(*command).code == 0
    answer = reef_archive("sign", "loose", *options)
    assert answer.code == 2 and said in answer.err
    assert "--debug" not in answer.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_stdout_has_a_remedy(place: Path) -> None:
    script = "from reefkit.cli import archive_main; archive_main()"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-c", script, "manifest", "run", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert "Make room" in done.stderr and "--debug" not in done.stderr


def test_a_killed_pack_is_cleaned_up_by_the_next(
    place: Path, reef_archive: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("pack", "run", "-o", "f.zip", "--key", "lab", "--no-redact")
    before = {path.name for path in place.iterdir()}
    child = os.fork()
    if child == 0:

        def dying(file: Any, _members: object) -> None:
            file.write(b"half")
            file.flush()
            os.kill(os.getpid(), signal.SIGKILL)

        monkeypatch.setattr(pack, "write_zip", dying)
        reef_archive(*command)
        os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    left = {path.name for path in place.iterdir()} - before
    assert len(left) == 1 and "f.zip" not in left
    assert reef_archive(*command).code == 0
    assert {path.name for path in place.iterdir()} - before == {"f.zip"}


def test_no_umask_opens_what_is_written(place: Path, reef_archive: Command) -> None:
    former = os.umask(0)
    try:
        assert reef_archive("keygen", "--out", "open", "--identity", IDENTITY).code == 0
        assert reef_archive("verify", "e.zip", "--out", "report").code == 0
        assert reef_archive("pack", "run", "-o", "f.zip", "--key", "lab", "--no-redact").code == 0
        assert reef_archive("manifest", "run", "-o", "m.json").code == 0
    finally:
        os.umask(former)
    names = ("open.pub", "open.pem", "open.allowed_signers", "report", "f.zip", "m.json")
    assert {stat.S_IMODE(Path(name).stat().st_mode) for name in names} == {0o644}
    assert stat.S_IMODE(Path("open").stat().st_mode) == 0o600
