"""A process that does nothing but hold descriptors, so that the files behind them stay.

An inode lives as long as a descriptor on it: target exit, unload, eviction, even a crash lose
nothing. The holder keeps its record in a sealed memfd of its own: no state on a disk that may be
full, nothing to go stale. It drops every capability and refuses core dumps; where the caller may
trace any process (CAP_SYS_PTRACE) it is also closed to everyone who may not. A holder without that
must stay readable to its own user, or nobody could take the files back out.

Pinned inodes keep their disk space. A holder in a container dies with the container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import Collection

from ..errors import DoesNotHold
from . import linux

NAME = b"reef-pin"
RECORD_NAME = "reefkit-pin"

_F_ADD_SEALS, _F_GET_SEALS, _ALL_SEALS = 1033, 1034, 0xF  # include/uapi/linux/fcntl.h


def hold(descriptors: Collection[int], record: bytes, timeout: float | None) -> int:
    """Start the holder and give its process id, once it holds everything.

    It ends after `timeout` seconds, or never. Raises DoesNotHold when it could not be set up.
    """
    sealed = _sealed_record(record)
    ready, report = os.pipe()
    first = os.fork()
    if first == 0:
        _become_holder({*descriptors, sealed}, report, timeout)
    os.close(report)
    os.close(sealed)
    with open(ready, "rb") as answer:
        text = answer.read()
    os.waitpid(first, 0)
    if not text.isdigit():
        reason = text.decode("utf-8", "replace") or "it ended at once"
        raise DoesNotHold(f"The holder process could not be set up: {reason}.")
    return int(text)


def read_record(fd: int, limit: int) -> bytes | None:
    """Read a holder's record; None when the memfd is not sealed as a holder's is."""
    with contextlib.suppress(OSError):
        if fcntl.fcntl(fd, _F_GET_SEALS) & _ALL_SEALS == _ALL_SEALS:
            return os.pread(fd, limit, 0)
    return None


def _sealed_record(record: bytes) -> int:
    fd = os.memfd_create(RECORD_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file:
        file.write(record)
    fcntl.fcntl(fd, _F_ADD_SEALS, _ALL_SEALS)
    return fd


def _become_holder(keep: set[int], report: int, timeout: float | None) -> None:
    """Detach, keep nothing but the descriptors, say so, and wait. Never returns."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        _close_all_but({*keep, report})
        traces_any = linux.may_trace_any_process()
        linux.set_process_name(NAME)
        linux.drop_capabilities()
        if traces_any:
            linux.set_not_dumpable()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.write(report, str(os.getpid()).encode())
        os.close(report)
        if timeout is not None:
            time.sleep(timeout)
            os._exit(0)
        while True:
            signal.pause()
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(report, str(error).encode())
        os._exit(1)


def _close_all_but(keep: set[int]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        if standard not in keep:
            os.dup2(nowhere, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
