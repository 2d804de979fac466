"""Run a cell's command: no shell, a process group of its own, a time limit, bounded logs."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import BinaryIO

from ...records.names import printable
from .judge_cell import Ran

_GRACE = 5.0
_LOG_HEAD = 8 << 20
_LOG_TAIL = 1 << 20
_CHUNK = 64 << 10
_LONGEST_PAUSE = 0.05


def run_command(
    argv: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    timeout_s: float,
    logs: tuple[Path, Path],
) -> Ran:
    """Run a command in `folder` and wait for it; its whole group is gone when this returns.

    `logs` get the first 8 MiB and the last MiB of stdout and stderr. A command that cannot be
    started is unavailable; one that takes longer than `timeout_s` is in trouble.
    """
    try:
        for path in logs:
            path.write_bytes(b"")  # before the command can remove the folder that they lie in
    except OSError as error:
        return Ran(trouble=f"its output cannot be kept: {error.strerror}")
    try:
        process = subprocess.Popen(
            list(argv),
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return Ran(unavailable=f"`{printable(argv[0])}` cannot be started: {reason}")
    assert process.stdout is not None and process.stderr is not None
    readers = [
        Thread(target=_keep, args=(stream, path), daemon=True)
        for stream, path in zip((process.stdout, process.stderr), logs, strict=True)
    ]
    for reader in readers:
        reader.start()
    try:
        in_time = _wait(process, timeout_s)
        if not in_time:
            _signal(process, signal.SIGTERM)
            _wait(process, _GRACE)
    except BaseException:
        _signal(process, signal.SIGTERM)
        with contextlib.suppress(KeyboardInterrupt):
            _wait(process, _GRACE)
        raise
    finally:
        # The leader is not reaped yet, so that its number still is that of this group.
        _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
        process.wait()
        for reader in readers:
            reader.join(_GRACE)
    if not in_time:
        return Ran(process.returncode, trouble=f"it took longer than {timeout_s:g} s")
    return Ran(process.returncode)


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> bool:
    """Wait until the process has ended, without reaping it; False when it takes longer."""
    end = time.monotonic() + timeout_s
    pause = 0.001
    while not _has_ended(process):
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return True


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        return process.poll() is not None
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    return os.waitid(os.P_PID, process.pid, options) is not None


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    if not hasattr(os, "killpg"):
        process.terminate()
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _log(path: Path) -> BinaryIO:
    """Open a log, or nothing where the command removed it: what it says must go somewhere."""
    try:
        return open(path, "r+b")
    except OSError:
        return open(os.devnull, "wb")


def _keep(stream: BinaryIO, path: Path) -> None:
    """Copy a stream into a file: its beginning and its end."""
    written = dropped = 0
    tail: deque[bytes] = deque()
    held = 0
    with stream, _log(path) as file:
        while data := os.read(stream.fileno(), _CHUNK):
            room = _LOG_HEAD - written
            head, rest = data[:room], data[room:]
            file.write(head)
            written += len(head)
            if rest:
                tail.append(rest)
                held += len(rest)
                while held - len(tail[0]) >= _LOG_TAIL:
                    dropped += len(tail[0])
                    held -= len(tail.popleft())
        if dropped:
            file.write(f"\n[{dropped:,} bytes were left out here]\n".encode())
        for data in tail:
            file.write(data)
