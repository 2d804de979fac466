"""Write the repaired file: private until it is whole, durable, and never over an input."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import queue
import stat
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...errors import DestinationExists, Unusable
from ...records.documents import read_file, to_text, write_atomically
from ...records.names import printable
from ..save.recovery import SCHEMA
from .composed import Composed

RECORD_SUFFIX = ".recovery.json"
_RECORD_LIMIT = 256 << 20
_BLOCK = 1 << 17  # what was read is still in the processor's cache when it is written
_WAITING = 16
_ATTEMPTS = 8
_CHOOSE = "Choose another --out."


class Destination:
    """A file that does not exist yet, or may be replaced; the folder is held open.

    Use it as a context. Until `finish` nothing stands under the final name. The temporary file is
    locked for as long as its run lives: one run writes at a time, and what a killed one left goes
    with the next.
    """

    def __init__(self, path: Path, operands: Iterable[Path], *, force: bool) -> None:
        """Open the folder; `operands` are files that must stay as they are.

        Raises Unusable where nothing can be written.
        """
        self.path = path
        self._label = printable(os.fsencode(path))
        self._name = path.name
        self._force = force
        self._fd: int | None = None
        if not path.name:
            raise Unusable(f"{self._label} names no file.", remedy="Name a file with --out.")
        record = path.with_name(path.name + RECORD_SUFFIX)
        operands = tuple(operands)
        for place in (path, record):
            _refuse_inputs(place, operands)
            _refuse_irregular(place)
        try:
            self._folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> Unusable:
        return Unusable(
            f"Cannot write {self._label}: {os.strerror(error.errno or 0).lower()}.",
            remedy="Choose an --out in a folder that can be written, on a disk with room for it.",
        )

    def _refuse_existing(self) -> None:
        """Refuse what exists. A record without its file is what a crash left, and no obstacle."""
        _refuse_irregular(self.path)
        if self._force:
            return
        taken = self._label
        if self._inode_of(self._name) is None:
            if self._record_is_ours():
                return
            taken += RECORD_SUFFIX
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
        """Remove what is not finished, if it is this run's, and let go of the folder."""
        if self._fd is not None:
            if self._is_ours(self._fd):
                os.unlink(self._temporary, dir_fd=self._folder)
            os.close(self._fd)
        os.close(self._folder)

    @property
    def _temporary(self) -> str:
        return f".{zlib.crc32(os.fsencode(self._name)):08x}.repair.tmp"

    def write(self, composed: Composed, mode: int) -> str:
        """Write all bytes under a temporary name, on the disk; give their sha256.

        Raises DestinationExists, and Unusable where another run writes the same file.
        """
        try:
            self._refuse_existing()
            self._fd = self._claim()
            digest = _copy(composed, self._fd)
            os.fchmod(self._fd, mode)
            os.fsync(self._fd)
        except OSError as error:
            raise self._unwritable(error) from None
        return digest

    def finish(self, record: Mapping[str, object]) -> None:
        """Write the record, then give the file its name: none ever lacks its record."""
        try:
            self._refuse_existing()
            if self._fd is None or not self._is_ours(self._fd):
                raise self._busy()
            write_atomically(self._folder, self._name + RECORD_SUFFIX, to_text(record).encode())
            os.rename(self._temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            os.fsync(self._folder)
        except OSError as error:
            raise self._unwritable(error) from None

    def _claim(self) -> int:
        """Create the temporary file and lock it. A file that nobody has locked is a dead run's."""
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        for _ in range(_ATTEMPTS):
            try:
                fd = os.open(
                    self._temporary, flags | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=self._folder
                )
                is_new = True
            except FileExistsError:
                try:
                    fd = os.open(self._temporary, flags, dir_fd=self._folder)
                except FileNotFoundError:
                    continue
                is_new = False
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_ours(fd):
                    if is_new:
                        return fd
                    os.unlink(self._temporary, dir_fd=self._folder)
            except BlockingIOError:
                os.close(fd)
                break
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        raise self._busy()

    def _is_ours(self, fd: int) -> bool:
        """Tell whether the temporary name still stands for the file that is open and locked."""
        status = os.fstat(fd)
        return self._inode_of(self._temporary) == (status.st_dev, status.st_ino)

    def _inode_of(self, name: str) -> tuple[int, int] | None:
        try:
            status = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        return status.st_dev, status.st_ino

    def _busy(self) -> Unusable:
        return Unusable(
            f"Another run is writing {self._label}.",
            remedy="Wait until it ends, or choose another --out.",
        )


def _refuse_inputs(place: Path, operands: Iterable[Path]) -> None:
    for source in operands:
        with contextlib.suppress(OSError, ValueError):
            if os.path.samefile(place, source):
                raise Unusable(
                    f"{printable(os.fsencode(place))} is given as an input; that is never "
                    "written to.",
                    remedy=_CHOOSE,
                )


def _refuse_irregular(place: Path) -> None:
    """Refuse folders, devices, pipes and links: only a file is ever replaced."""
    try:
        mode = os.lstat(place).st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        raise Unusable(
            f"{printable(os.fsencode(place))} cannot be written.", remedy=_CHOOSE
        ) from None
    if not stat.S_ISREG(mode):
        raise Unusable(
            f"{printable(os.fsencode(place))} is there already and is not a regular file.",
            remedy=_CHOOSE,
        )


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
