"""A key that replaces another: after a kill at any moment one of them is whole, or becomes so."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from signed_evidence import IDENTITY

from reefkit.provenance.sign import new_set
from reefkit.provenance.sign.key_files import make_key
from reefkit.provenance.sign.minisign import public_key_file
from reefkit.provenance.sign.private_key import load_private_key
from reefkit.provenance.sign.public_key import from_openssh, from_pem
from reefkit.records.new_file import publish, temporary_of

CALLS = ("open", "unlink", "link", "replace", "fsync")
FILES = {"lab", "lab.pub", "lab.pem", "lab.allowed_signers"}


def killed_at(moment: int, work: Callable[[], object]) -> bool:
    """Do it in a child that is killed before its n-th change of the disk; False: it came through.

    Only a failure of the child's own fails the test: it exits with 1 then.
    """
    child = os.fork()
    if child == 0:
        calls = count()

        def counted(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any, **options: Any) -> Any:
                if next(calls) == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                return function(*arguments, **options)

            return call

        try:
            for name in CALLS:
                setattr(os, name, counted(getattr(os, name)))
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def whole(out: Path) -> bytes | None:
    """Give the public key that all files have; None when they differ, or one is missing."""
    key = load_private_key(out, bytes).public
    beside = {name: out.with_name(out.name + name) for name in new_set.PUBLIC_ENDINGS}
    try:
        copies = [
            from_openssh(beside[".pub"].read_bytes()),
            from_pem(beside[".pem"].read_bytes()),
            from_openssh(beside[".allowed_signers"].read_bytes().split(b'" ')[1]),
        ]
    except FileNotFoundError:
        return None
    if any(copy != key for copy in copies):
        return None
    minisign = beside[".minisign.pub"]
    if key.algorithm == "ssh-ed25519":
        fits = minisign.is_file() and minisign.read_bytes() == public_key_file(key)
    else:
        fits = not minisign.exists()
    return key.blob if fits else None


@pytest.mark.parametrize("former", ["p256", "ed25519", None])
@pytest.mark.parametrize("then", ["p256", "ed25519"])
def test_a_kill_leaves_a_whole_key(tmp_path: Path, former: str | None, then: str) -> None:
    for moment in count():
        folder = tmp_path / str(moment)
        folder.mkdir()
        out = folder / "lab"
        old = None
        if former is not None:
            make_key(out, IDENTITY, former, None)
            old = whole(out)
            assert old is not None
        work = partial(make_key, out, IDENTITY, then, None, force=former is not None)
        if not killed_at(moment, work):
            assert moment > 20
            break
        completed = new_set.complete(out)
        if out.exists():
            found = whole(out)
            assert found is not None
            assert not completed or found != old
        else:
            assert former is None
        make_key(out, IDENTITY, then, None, force=True)
        assert whole(out) not in (None, old)
        assert {path.name for path in folder.iterdir()} - {"lab.minisign.pub"} == FILES


@pytest.mark.parametrize("command", ["sign", "keygen"])
def test_the_next_run_completes_it_and_says_so(
    tmp_path: Path, reef_archive: Callable[..., Any], command: str
) -> None:
    out = tmp_path / "lab"
    make_key(out, IDENTITY, "p256", None)
    for ending in (".pub", ".allowed_signers"):
        path = out.with_name(out.name + ending)
        path.rename(temporary_of(path))
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "a").write_bytes(b"x")
    if command == "sign":
        answer = reef_archive("sign", tmp_path / "run", "--key", out)
        assert answer.code == 0
    else:
        answer = reef_archive("keygen", "--out", out, "--identity", IDENTITY)
        assert answer.code == 2 and "exists already" in answer.err
    assert "cut off" in answer.err and "lab.allowed_signers" in answer.err
    assert whole(out) is not None


def test_what_another_takes_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(path: Path, *, force: bool) -> None:
        publish(path, force=force)
        (tmp_path / "lab.pem").write_bytes(b"another's")

    monkeypatch.setattr(new_set, "publish", meanwhile)
    with pytest.raises(Exception, match="exists already"):
        make_key(tmp_path / "lab", IDENTITY, "p256", None)
    assert {path.name for path in tmp_path.iterdir()} == {"lab.pem"}
