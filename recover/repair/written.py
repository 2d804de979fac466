"""Write the repaired file: private until it is whole, durable, and never over an input."""

from __future__ import annotations

import contextlib
import hashlib
import os
import queue
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...errors import DestinationExists, Unusable
from ...records.documents import read_file, to_text, write_atomically
from ...records.names import printable
from ..save.destination import unwritable
from ..save.recovery import SCHEMA
from .composed import Composed

RECORD_SUFFIX = ".recovery.json"
_RECORD_LIMIT = 256 << 20
_BLOCK = 1 << 17  # what was read is still in the processor's cache when it is written
_WAITING = 16


class Destination:
    """A file that does not exist yet, or may be replaced; the folder is held open.

    Use it as a context. Until `finish` nothing stands under the final name; what an interrupted
    run left under the temporary one goes with the next.
    """

    def __init__(self, path: Path, inputs: list[Path], *, force: bool) -> None:
        """Open the folder. Raises DestinationExists, and Unusable where nothing can be written."""
        self.path = path
        self._label = printable(os.fsencode(path))
        self._name = path.name
        self._force = force
        if not path.name:
            raise Unusable(f"{self._label} names no file.", remedy="Name a file with --out.")
        for source in inputs:
            with contextlib.suppress(OSError):
                if os.path.samefile(path, source):
                    raise Unusable(
                        f"{self._label} is what is to be repaired; that is never written to.",
                        remedy="Choose another --out.",
                    )
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            self._folder = os.open(path.parent, flags)
        except OSError as error:
            raise unwritable(self._label, error) from None
        try:
            self._refuse_existing()
        except BaseException:
            os.close(self._folder)
            raise

    def _refuse_existing(self) -> None:
        """Refuse what exists. A record without its file is what a crash left, and no obstacle."""
        if self._force and not os.path.isdir(self.path):
            return
        try:
            os.stat(self._name, dir_fd=self._folder, follow_symlinks=False)
            taken = self._label
        except FileNotFoundError:
            if self._record_is_ours():
                return
            taken = f"{self._label}{RECORD_SUFFIX}"
        except (OSError, ValueError):
            raise Unusable(
                f"{self._label} cannot be written.", remedy="Choose another --out."
            ) from None
        raise DestinationExists(
            f"{taken} exists already.",
            remedy="Choose another --out, or overwrite with --force.",
        )

    def _record_is_ours(self) -> bool:
        """Tell whether nothing stands where the record goes, or a record."""
        try:
            data = read_file(self._folder, self._name + RECORD_SUFFIX, _RECORD_LIMIT)
            return data is None or f'"schema": "{SCHEMA}"'.encode() in data
        except (OSError, ValueError):
            return False

    def __enter__(self) -> Destination:
        """Give the destination itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what is not finished, and let go of the folder."""
        self._discard()
        os.close(self._folder)

    @property
    def _temporary(self) -> str:
        return f".{zlib.crc32(os.fsencode(self._name)):08x}.repair.tmp"

    def _discard(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._temporary, dir_fd=self._folder)

    def write(self, composed: Composed, mode: int) -> str:
        """Write all bytes under a temporary name, on the disk; give their sha256."""
        self._discard()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(self._temporary, flags, 0o600, dir_fd=self._folder)
            try:
                digest = _copy(composed, fd)
                os.fchmod(fd, mode)
                os.fsync(fd)
            finally:
                os.close(fd)
        except OSError as error:
            raise unwritable(self._label, error) from None
        return digest

    def finish(self, record: Mapping[str, object]) -> None:
        """Write the record, then give the file its name: none ever lacks its record."""
        try:
            write_atomically(self._folder, self._name + RECORD_SUFFIX, to_text(record).encode())
            self._refuse_existing()
            os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            os.fsync(self._folder)
        except OSError as error:
            raise unwritable(self._label, error) from None


def digest_of(composed: Composed) -> str:
    """Hash the result without writing it."""
    digest = hashlib.sha256()
    for block in _blocks(composed):
        digest.update(block)
    return digest.hexdigest()


def _blocks(composed: Composed) -> Iterator[bytes]:
    for offset in range(0, composed.size, _BLOCK):
        yield composed.read(offset, _BLOCK)


def _copy(composed: Composed, fd: int) -> str:
    """Write every block while another thread hashes it."""
    digest = hashlib.sha256()
    waiting: queue.Queue[bytes] = queue.Queue(_WAITING)

    def hash_all() -> None:
        while block := waiting.get():
            digest.update(block)

    thread = threading.Thread(target=hash_all)
    thread.start()
    try:
        for block in _blocks(composed):
            waiting.put(block)
            view = memoryview(block)
            while view:
                view = view[os.write(fd, view) :]
    finally:
        waiting.put(b"")
        thread.join()
    return digest.hexdigest()
