"""Agents: the real one, and one that answers whatever a test wants."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Generator
from pathlib import Path

from reefkit.provenance.sign.wire import WireReader, string


@contextlib.contextmanager
def real_agent(path: Path) -> Generator[Path, None, None]:
    done = subprocess.run(
        ["ssh-agent", "-a", str(path)], capture_output=True, text=True, check=True
    )
    found = re.search(r"SSH_AGENT_PID=(\d+)", done.stdout)
    assert found is not None
    try:
        yield path
    finally:
        os.kill(int(found[1]), signal.SIGTERM)


@contextlib.contextmanager
def fake_agent(path: Path, answer: Callable[[bytes], bytes | None]) -> Generator[Path, None, None]:
    """Answer each message with the bytes given; None: say nothing until the client goes away."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
                    if not size:
                        return
                    reply = answer(connection.recv(size, socket.MSG_WAITALL))
                    if reply is None:
                        connection.recv(1)
                    else:
                        connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield path
        finally:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as last:
                last.connect(str(path))
            thread.join(5)


def message(kind: int, *fields: bytes) -> bytes:
    return string(bytes([kind]) + b"".join(fields))


def identities(*keys: tuple[bytes, bytes]) -> bytes:
    listed = b"".join(string(blob) + string(comment) for blob, comment in keys)
    return message(12, len(keys).to_bytes(4, "big"), listed)


def asked_to_sign(request: bytes) -> tuple[bytes, bytes, int]:
    """Give the key, the data and the flags of a request."""
    reader = WireReader(request, "The request")
    assert reader.byte() == 13
    return reader.string(), reader.string(), reader.uint32()
