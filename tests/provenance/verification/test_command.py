"""`reef-archive verify`: options, exit codes, no network, no traceback, and other systems."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from signed_evidence import put, signed, signer_of, sums_of
from verifiable import FILES, key, listed, package, tell, trust, zipped

from reefkit.errors import ReefError
from reefkit.provenance.sign.carriers import SUMS, all_names
from reefkit.provenance.sign.key import P256

Command = Callable[..., Any]


def test_json_has_the_keys_that_programs_read(tmp_path: Path, reef_archive: Command) -> None:
    put(package(tmp_path / "e"), {"extra": b""})
    answer = reef_archive("verify", tmp_path / "e", "--signers", trust(tmp_path, key()), "--json")
    found = answer.document
    assert (answer.code, found["schema"], found["verdict"], found["checked"]) == (
        1, "reefkit.verification/1", "FAILED", 3,
    )  # fmt: skip
    assert found["findings"][0].keys() >= {"kind", "path", "diagnosis"}
    assert found["signers"][0].keys() >= {"identity", "scheme", "trusted"}
    assert found["lists"] == [SUMS]


def test_json_and_another_report_go_together_only_by_file(
    tmp_path: Path, reef_archive: Command
) -> None:
    folder, out = listed(tmp_path / "e"), tmp_path / "r.xml"
    words = ("verify", folder, "--integrity-only", "--json", "--format", "junit")
    assert reef_archive(*words).code == 2
    answer = reef_archive(*words, "--out", out)
    assert (answer.code, answer.document["verdict"]) == (0, "VERIFIED")
    assert out.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("target", "code"), [("gone", 2), ("e", 3), ("empty", 2), ("e/a.bin", 2), ("e/SHA256SUMS", 3)]
)
def test_exit_codes(target: str, code: int, tmp_path: Path, reef_archive: Command) -> None:
    listed(tmp_path / "e")
    (tmp_path / "empty").mkdir()
    signers = trust(tmp_path, key())
    answer = reef_archive("verify", tmp_path / target, "--signers", signers)
    assert answer.code == code, answer
    assert "Traceback" not in answer.err


def test_a_folder_without_a_list_names_where_one_is(tmp_path: Path, reef_archive: Command) -> None:
    listed(tmp_path / "e/deeper")
    answer = reef_archive("verify", tmp_path / "e", "--integrity-only")
    assert answer.code == 2 and "deeper" in answer.err


@pytest.mark.parametrize(
    "time", ["2026-10-01T12:00:00Z", "2026-10-01", "2026-10-01T12:00:00+02:00"]
)
def test_times_are_iso_8601(time: str, tmp_path: Path, reef_archive: Command) -> None:
    folder = package(tmp_path / "e")
    words = ("verify", folder, "--signers", trust(tmp_path, key()), "--at")
    assert reef_archive(*words, time).code == 0
    assert reef_archive(*words, "yesterday").code == 2


def test_identity_is_not_asked_with_integrity_only(tmp_path: Path, reef_archive: Command) -> None:
    folder = package(tmp_path / "e")
    assert reef_archive("verify", folder, "--integrity-only", "--identity", "a").code == 2


def test_quiet_says_one_line(tmp_path: Path, reef_archive: Command) -> None:
    answer = reef_archive("verify", listed(tmp_path), "--integrity-only", "--quiet")
    assert (answer.out.count("\n"), answer.err) == (1, "")


def test_a_hostile_target_name_is_escaped(tmp_path: Path, reef_archive: Command) -> None:
    folder = listed(tmp_path / "e\x1b[31m\n::error::x")
    answer = reef_archive("verify", folder, "--integrity-only", "--format", "github")
    assert "\x1b" not in answer.out + answer.err and answer.out.count("\n") == 2


def in_process(prelude: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run the command in a Python that a prelude has changed."""
    code = f"{prelude}\nfrom reefkit.cli import archive_main\narchive_main()\n"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


_NO_NETWORK = """
import socket
def refused(*_, **__):
    raise AssertionError("the network was touched")
for name in ("socket", "create_connection", "getaddrinfo", "gethostbyname"):
    setattr(socket, name, refused)
import _socket
_socket.socket = refused
"""
_ELSEWHERE = """
import os, sys
for name in ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_NOATIME"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("fork", "pread", "preadv", "posix_fadvise", "sched_getaffinity", "copy_file_range",
             "sendfile", "memfd_create", "pidfd_open", "mkfifo", "getuid", "geteuid", "fchmod"):
    if hasattr(os, name):
        delattr(os, name)
os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks = set(), set(), set()
real = os.open
def no_dir_fd(path, flags, mode=0o777, *, dir_fd=None):
    assert dir_fd is None, "dir_fd is not there on this system"
    assert not os.path.isdir(path), "folders cannot be opened on this system"
    assert not os.fspath(path).startswith("/proc"), "there is no /proc"
    return real(path, flags, mode)
os.open = no_dir_fd
class Gone:
    def find_spec(self, name, *_):
        if name in ("fcntl", "resource", "termios", "pwd", "grp"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Gone())
for name in ("fcntl", "resource", "termios", "pwd", "grp"):
    sys.modules.pop(name, None)
"""


@pytest.mark.parametrize("prelude", [_NO_NETWORK, _ELSEWHERE], ids=["no network", "elsewhere"])
@pytest.mark.parametrize("form", ["folder", "zip", "sums", "custody"])
def test_it_runs_offline_and_on_other_systems(prelude: str, form: str, tmp_path: Path) -> None:
    from reefkit.provenance.custody.head import HEAD, head_document
    from reefkit.provenance.sign import sshsig
    from reefkit.records.custody import Artifact, Link, append

    (tmp_path / "w").mkdir()
    digest = hashlib.sha256(FILES["a.bin"]).hexdigest()
    append(tmp_path / "w", Link("dump", outputs=(Artifact("a.bin", digest, 6),)))
    chain = (tmp_path / "w/custody.jsonl").read_bytes()
    head = head_document(chain)
    signature = sshsig.sign(key(), head, sshsig.CUSTODY_NAMESPACE)
    files = {**FILES, "custody.jsonl": chain, HEAD: head, HEAD + ".sig": signature}
    files["run.json"] = b'{"schema": "reefkit.run/1"}'
    package(tmp_path / "e", files)
    zipped(tmp_path / "e.zip", signed(key(), files))
    target = {"folder": "e", "zip": "e.zip", "sums": "e/SHA256SUMS", "custody": "e/custody.jsonl"}
    signers = trust(tmp_path, key())
    done = in_process(prelude, "verify", tmp_path / target[form], "--signers", signers)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert done.stdout.startswith("VERIFIED")


def test_revocation_lists_are_asked_offline(tmp_path: Path) -> None:
    from reefkit.provenance.sign.public_key import to_openssh

    revoked = tmp_path / "revoked"
    revoked.write_text(to_openssh(signer_of(P256, "other").public) + "\n")
    words = ("verify", package(tmp_path / "e"), "--signers", trust(tmp_path, key()))
    done = in_process(_NO_NETWORK, *words, "--revoked", revoked)
    assert (done.returncode, done.stderr) == (0, ""), done


def test_nothing_heavy_is_loaded_for_unsigned_evidence(tmp_path: Path) -> None:
    listed(tmp_path)
    prelude = """
import atexit, sys
HEAVY = ("cryptography", "yaml", "numpy", "regex", "ssl", "socket", "http", "click.testing")
atexit.register(lambda: print([name for name in HEAVY if name in sys.modules], file=sys.stderr))
"""
    done = in_process(prelude, "verify", tmp_path, "--integrity-only")
    assert (done.returncode, done.stderr) == (0, "[]\n"), done


ANY = st.one_of(st.binary(max_size=200), st.text(max_size=80).map(str.encode))


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from([*all_names()[:1], SUMS, "SHA256SUMS.sig", "model.sig", "custody.jsonl",
                        "custody.head.json", "custody.head.json.sig", "withdrawn.json",
                        "withdrawn.json.sig", "SHA256SUMS.minisig", "SHA256SUMS.tsr", "run.json",
                        "SHA256SUMS.sigstore.json", "SHA256SUMS.p256.der", "chain.json",
                        "key.pub.pem", "manifest.json", "gate-manifest.json"]), ANY)  # fmt: skip
def test_whatever_a_file_holds_is_judged_or_refused(tmp_path: Path, name: str, data: bytes) -> None:
    folder = package(tmp_path / "e")
    path = folder / name
    before = path.read_bytes() if path.exists() else None
    path.write_bytes(data)
    try:
        assert (
            tell(folder, trust(tmp_path, key())).verdict != "VERIFIED"
            or data == before
            or (name == "SHA256SUMS.tsr")
        )
    except ReefError as error:
        assert error.message and "\n" not in error.message
    finally:
        path.unlink()


@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(["evidence.zip", SUMS, "model.sig", "custody.jsonl", "x.json"]), ANY)
def test_whatever_a_target_holds_is_judged_or_refused(
    tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    try:
        assert tell(tmp_path / name, trust(tmp_path, key())).verdict != "VERIFIED"
    except ReefError as error:
        assert error.message
    finally:
        (tmp_path / name).unlink()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, 10_000), st.integers(1, 255))
def test_any_byte_of_a_zip_matters(tmp_path: Path, at: int, change: int) -> None:
    target = zipped(tmp_path / "e.zip", signed(key(), FILES))
    data = bytearray(target.read_bytes())
    at %= len(data)
    data[at] ^= change
    target.write_bytes(data)
    try:
        told = tell(target, trust(tmp_path, key()))
        assert told.verdict != "VERIFIED" or told.kinds  # times and the like are noted
    except ReefError as error:
        assert error.message


def test_ten_thousand_findings_are_told_in_bounded_time(tmp_path: Path) -> None:
    import time

    files = {f"d/{number:05}": b"x" for number in range(3000)}
    put(tmp_path, {SUMS: sums_of(files), **{name + "y": b"x" for name in files}})
    begin = time.monotonic()
    told = tell(tmp_path, integrity_only=True)
    assert len(told.result.findings) >= 6000
    assert time.monotonic() - begin < 15


def test_another_users_umask_locale_and_zone_change_nothing(tmp_path: Path) -> None:
    folder = package(tmp_path / "e", {**FILES, "größe.txt": b"x"})
    answers: set[str] = set()
    for environment in ({"LC_ALL": "C", "TZ": "UTC"}, {"LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo"}):
        done = subprocess.run(
            [sys.executable, "-c", "from reefkit.cli import archive_main; archive_main()",
             "verify", str(folder), "--signers", str(trust(tmp_path, key())), "--json"],
            env={**os.environ, **environment}, capture_output=True, text=True, check=True,
        )  # fmt: skip
        answers.add(json.dumps(json.loads(done.stdout), sort_keys=True))
    assert len(answers) == 1
