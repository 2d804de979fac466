"""Requests to the Hub that read no more than asked for, whatever the server sends.

Only sessions, headers and addresses are taken from huggingface_hub, which stayed the same from
0.30 to 2.4; the transport below is requests, httpx or httpx2.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any
from urllib.parse import quote

from ...errors import NotPermitted, ReefError, Unusable
from ...records.names import printable

_SECONDS = 10.0  # between two pieces of an answer
_SECONDS_IN_ALL = 120.0
_PAUSES = (0.5, 2.0)
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-\d{1,19}/(\d{1,19})", re.IGNORECASE)


class Unreachable(Unusable):
    """The Hub gave no usable answer, now; a cache may still help."""


class Busy(Unreachable):
    """The Hub answered that it cannot answer now."""


@dataclass(frozen=True)
class Answer:
    """The first bytes of what was asked for; `size` is that of the whole file, where told."""

    data: bytes
    complete: bool
    size: int | None


class Repository:
    """One repository at one revision, and how to ask for its files."""

    def __init__(self, identity: str, revision: str) -> None:
        """Take the endpoint and the token from huggingface_hub."""
        import huggingface_hub.utils as utils
        from huggingface_hub import constants

        library: Any = utils
        self.identity = identity
        self.revision = revision
        self.label = printable(identity)
        self._endpoint = constants.ENDPOINT.rstrip("/")
        self._headers: dict[str, str] = library.build_hf_headers(library_name="reefkit")
        self._session: Any = library.get_session
        # httpx errors are no OSErrors, and which of the three libraries it is depends on the
        # version; a session's class tells.
        transport = import_module(type(self._session()).__module__.partition(".")[0])
        kinds = (getattr(transport, name, None) for name in ("HTTPError", "RequestException"))
        self._failures: tuple[type[Exception], ...] = (
            OSError,
            *(kind for kind in kinds if kind),
        )

    def information(self, limit: int) -> Answer:
        """Ask what the repository holds. Raises Unreachable, NotPermitted, Unusable."""
        revision = quote(self.revision, safe="")
        return self._get(f"/api/models/{quote(self.identity)}/revision/{revision}", None, limit)

    def file(self, name: str, limit: int, offset: int | None = None) -> Answer:
        """Ask for the first bytes of a file, or for `limit` bytes from an offset.

        Raises Unreachable, NotPermitted, Unusable.
        """
        revision = quote(self.revision, safe="")
        path = f"/{quote(self.identity)}/resolve/{revision}/{quote(name)}"
        return self._get(path, offset, limit)

    def _get(self, path: str, offset: int | None, limit: int) -> Answer:
        for pause in _PAUSES:
            try:
                return self._ask(path, offset, limit)
            except Busy:
                time.sleep(pause)
        return self._ask(path, offset, limit)

    def _ask(self, path: str, offset: int | None, limit: int) -> Answer:
        headers = {**self._headers, "Accept-Encoding": "identity"}
        if offset is not None:
            headers["Range"] = f"bytes={offset}-{offset + limit - 1}"
        try:
            with self._stream(self._endpoint + path, headers) as (response, pieces):
                status = int(response.status_code)
                if status == 416 and offset is not None:
                    return Answer(b"", True, None)
                if status not in (200, 206):
                    raise self._refusal(status, str(response.headers.get("X-Error-Code", "")))
                # A server that ignores the range sends everything; it is cut off.
                skip = (offset or 0) if status == 200 else 0
                data, complete = _up_to(pieces, skip + limit)
                return Answer(data[skip:], complete, _full_size(status, response.headers))
        except self._failures as error:
            raise Unreachable(
                f"The Hub cannot be reached for {self.label}: {_cause(error)}.",
                remedy="Try again, or name a folder or a config.json of the base.",
            ) from None

    @contextmanager
    def _stream(
        self, url: str, headers: dict[str, str]
    ) -> Generator[tuple[Any, Iterator[bytes]], None, None]:
        session = self._session()
        if callable(getattr(session, "stream", None)):
            with session.stream("GET", url, headers=headers, timeout=_SECONDS) as response:
                yield response, response.iter_bytes()
        else:
            with session.get(url, headers=headers, timeout=_SECONDS, stream=True) as response:
                yield response, response.iter_content(1 << 16)

    def _refusal(self, status: int, code: str) -> ReefError:
        label = f"{self.label} at {printable(self.revision)}"
        other = "name a folder or a config.json of the base."
        if status in (401, 403):
            what = "gated" if code == "GatedRepo" else "private, gated or not there"
            return NotPermitted(
                f"{label} is {what}: the Hub answered {status}.",
                remedy=f"Ask for access on its page and run `hf auth login`, or {other}",
            )
        if status == 404:
            reason = " has no such revision" if code == "RevisionNotFound" else " is not on the Hub"
            return Unusable(f"{label}{reason}.", remedy=f"Check the name, or {other}")
        if status in _TRANSIENT:
            return Busy(
                f"The Hub answered {status} for {self.label}.", remedy=f"Try again, or {other}"
            )
        return Unusable(
            f"The Hub answered {status} for {label}.", remedy=f"Check HF_ENDPOINT, or {other}"
        )


def _up_to(pieces: Iterator[bytes], limit: int) -> tuple[bytes, bool]:
    """Take up to `limit` bytes; tell whether there were no more. Raises TimeoutError."""
    deadline = time.monotonic() + _SECONDS_IN_ALL
    taken = bytearray()
    for piece in pieces:
        taken += piece
        if len(taken) > limit:
            return bytes(taken[:limit]), False
        if time.monotonic() > deadline:
            raise TimeoutError
    return bytes(taken), True


def _full_size(status: int, headers: Any) -> int | None:
    if status == 206:
        found = _CONTENT_RANGE.fullmatch(str(headers.get("Content-Range", "")))
        return int(found[2]) if found else None
    length = str(headers.get("Content-Length", ""))
    return int(length) if length.isascii() and length.isdigit() and len(length) < 20 else None


def _cause(error: Exception) -> str:
    """Name the cause by its class: the texts of these errors hold addresses and headers."""
    name = type(error).__name__
    if isinstance(error, TimeoutError) or "Timeout" in name:
        return "it does not answer in time"
    if "Offline" in name:
        return "HF_HUB_OFFLINE is set"
    return f"the connection failed ({name})"
