"""A small Hub on this machine: just what a client needs to look at models and download them."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

_INFO = re.compile(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/?]+))?")
_RESOLVE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_PIECE = 1 << 16


@dataclass(frozen=True)
class Zeros:
    """A file of which only the beginning is not zero."""

    begin: bytes
    size: int

    def part(self, start: int, stop: int) -> Iterator[bytes]:
        for at in range(start, stop, _PIECE):
            piece = self.begin[at : min(at + _PIECE, stop)]
            yield piece + bytes(min(_PIECE, stop - at) - len(piece))


@dataclass
class Repo:
    files: Mapping[str, bytes | Zeros]
    token: str | None = None  # what a client must send
    gated: bool = False

    @property
    def commit(self) -> str:
        return hashlib.sha1("".join(sorted(self.files)).encode()).hexdigest()

    def file(self, name: str) -> Zeros:
        found = self.files[name]
        return found if isinstance(found, Zeros) else Zeros(found, len(found))


@dataclass
class Hub:
    """The server's state; a test changes it while it runs."""

    url: str = ""
    repos: dict[str, Repo] = field(default_factory=dict[str, Repo])
    statuses: list[int] = field(default_factory=list[int])  # answers of the next requests
    ignores_ranges: bool = False
    silent_for: float = 0.0
    bytes_served: int = 0
    requests: list[str] = field(default_factory=list[str])


@contextmanager
def serving() -> Generator[Hub, None, None]:
    """Serve until the context ends."""
    hub = Hub()

    class Handler(_Handler):
        state = hub

    server = _Server(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that hang up: those under test do."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Hub

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, body: bool) -> None:
        path = unquote(urlsplit(self.path).path)
        self.state.requests.append(f"{self.command} {path}")
        time.sleep(self.state.silent_for)
        if self.state.statuses:
            self._send(self.state.statuses.pop(0), {}, Zeros(b"", 0), body)
        elif found := _INFO.fullmatch(path):
            self._inform(found[1], found[2] or "revision", found[3] or "main", body)
        elif found := _RESOLVE.fullmatch(path):
            self._resolve(found[1], found[2], found[3], body)
        else:
            self._refuse(404, "NotFound")

    def _repo(self, name: str, revision: str) -> Repo | None:
        repo = self.state.repos.get(name)
        if repo is None:
            self._refuse(404, "RepoNotFound")
        elif repo.token and self.headers.get("Authorization") != f"Bearer {repo.token}":
            self._refuse(403 if repo.gated else 401, "GatedRepo" if repo.gated else "RepoNotFound")
        elif revision not in ("main", repo.commit):
            self._refuse(404, "RevisionNotFound")
        else:
            return repo
        return None

    def _inform(self, name: str, what: str, revision: str, body: bool) -> None:
        repo = self._repo(name, revision)
        if repo is None:
            return
        document: object
        if what == "tree":
            document = [
                {"type": "file", "path": path, "size": repo.file(path).size, "oid": _etag(path)}
                for path in repo.files
            ]
        else:
            siblings = [{"rfilename": path} for path in repo.files]
            document = {"_id": "1", "id": name, "sha": repo.commit, "siblings": siblings}
        data = json.dumps(document).encode()
        self._send(200, {"Content-Type": "application/json"}, Zeros(data, len(data)), body)

    def _resolve(self, name: str, revision: str, path: str, body: bool) -> None:
        repo = self._repo(name, revision)
        if repo is None:
            return
        about = {"X-Repo-Commit": repo.commit, "ETag": f'"{_etag(path)}"', "Accept-Ranges": "bytes"}
        if path not in repo.files:
            self._refuse(404, "EntryNotFound", about)
            return
        file = repo.file(path)
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is None or self.state.ignores_ranges:
            self._send(200, about, file, body)
            return
        start, stop = int(asked[1]), min(int(asked[2]) + 1, file.size)
        if start >= file.size:
            self._refuse(416, "RangeNotSatisfiable")
            return
        about["Content-Range"] = f"bytes {start}-{stop - 1}/{file.size}"
        self._send(206, about, file, body, start, stop)

    def _refuse(self, status: int, code: str, more: Mapping[str, str] | None = None) -> None:
        about = {"X-Error-Code": code, "X-Error-Message": code, **(more or {})}
        self._send(status, about, Zeros(b"", 0), True)

    def _send(
        self,
        status: int,
        headers: Mapping[str, str],
        file: Zeros,
        body: bool,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        stop = file.size if stop is None else stop
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        for piece in file.part(start, stop) if body else ():
            self.wfile.write(piece)
            self.state.bytes_served += len(piece)


def _etag(path: str) -> str:
    return hashlib.sha1(path.encode()).hexdigest()
