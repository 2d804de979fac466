"""The output folder: where each file goes, and how it gets there without a moment of doubt.

A file is written as `<name>.partial` beside `<name>.rescue.map`; complete, it is renamed to
`<name>`, and the map is removed once `recovery.json` holds the result. Whatever moment a crash
picks, the next run finds either the partial file with its map or the finished file. Every step is
taken relative to a folder handle and follows no link, so nothing is written outside.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from ...errors import DestinationExists, Unusable
from ...records.custody_lines import FILE as CUSTODY
from ...records.documents import read_file, to_text, write_atomically
from ...records.names import printable
from .. import linux
from ..linux import PAGE, equal_bytes
from ..ranges import Range, intersect
from ..routes import Route
from ..sources import FileSource
from .outputs import PRIVATE_MODE, Attributes
from .rescue_map import RescueMap
from .slots import Slot, slot_for

RECORD = "recovery.json"

_RECORD_LIMIT = 256 << 20
_MAP_LIMIT = 256 << 20
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderOutput:
    """One file being written below the output folder."""

    in_order = False

    def __init__(self, folder: int, slot: Slot, earlier: RescueMap | None, facts: dict[str, str]):
        self.slot = slot
        self.earlier = earlier
        self._folder = folder
        self._facts = facts
        self._attributes = Attributes(0)
        self._complete = False
        self._fd = -1
        self._direct = -1
        self._sparse: tuple[Range, ...] | None = None
        self._zeros = memoryview(b"")

    @property
    def path(self) -> bytes:
        """Give the path relative to the output folder, as it is now."""
        name = self.slot.name if self._complete else self.slot.partial
        return b"/".join((*self.slot.folders, name))

    def begin(
        self, attributes: Attributes, *, sparse: tuple[Range, ...] | None, clone_of: int | None
    ) -> bool:
        """Create the partial file, or open the earlier run's; tell whether it is a clone.

        Where the filesystem can (FICLONE), a new file shares the blocks of the descriptor
        `clone_of`. Else room is made for the whole size, so that a full disk shows now and not
        at the end. `sparse` are the ranges that hold data where the source has holes.
        """
        self._attributes = attributes
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        if self.earlier is None:
            # The map comes first: it is what tells a partial file of ours from a foreign one.
            self._write_map(RescueMap(attributes.size), durable=False)
            self._discard()
            flags |= os.O_EXCL
        self._fd = os.open(self.slot.partial, flags, PRIVATE_MODE, dir_fd=self._folder)
        if clone_of is not None and self.earlier is None:
            with contextlib.suppress(OSError):
                linux.clone_file(clone_of, self._fd)
                return True
        os.ftruncate(self._fd, attributes.size)
        self._sparse = sparse
        if sparse is not None:
            self._zeros = memoryview(mmap.mmap(-1, PAGE))
        elif attributes.size:
            self._allocate(attributes.size)
        if linux.bypasses_page_cache(self._fd):
            direct = os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC
            with contextlib.suppress(OSError):
                self._direct = os.open(f"/proc/self/fd/{self._fd}", direct)
        return False

    def _allocate(self, size: int) -> None:
        try:
            linux.allocate(self._fd, size)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT) and self.earlier is None:
                self._discard()
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise

    def _discard(self) -> None:
        """Remove the partial file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.slot.partial, dir_fd=self._folder)

    def write(self, offset: int, block: memoryview) -> None:
        """Write a block that starts on a page boundary. Raises OSError."""
        for piece in self._pieces(offset, block):
            self._write_piece(piece.start, block[piece.start - offset : piece.stop - offset])

    def _pieces(self, offset: int, block: memoryview) -> tuple[Range, ...]:
        window = Range(offset, offset + len(block))
        if self._sparse is None:
            return (window,)
        written = [Range(r.start // PAGE * PAGE, -(-r.stop // PAGE) * PAGE) for r in self._sparse]
        for start in range(window.start, window.stop, PAGE):
            page = block[start - offset : start - offset + PAGE]
            if not equal_bytes(page, self._zeros[: len(page)]):
                written.append(Range(start, start + PAGE))
        return intersect(written, window)

    def _write_piece(self, offset: int, block: memoryview) -> None:
        done = 0
        whole = len(block) - len(block) % PAGE if self._direct >= 0 else 0
        while done < whole:
            done += os.pwritev(self._direct, [block[done:whole]], offset + done)
            if done % PAGE:  # a short write off the page boundary: the rest goes the other way
                break
        while done < len(block):
            done += os.pwritev(self._fd, [block[done:]], offset + done)

    def read_back(self) -> FileSource:
        """Give what was written so far, for reading; the caller closes it."""
        return FileSource(os.dup(self._fd), Route.FD)

    def checkpoint(self, rescue_map: RescueMap) -> None:
        """Put the data on the disk, then the map that says so."""
        os.fdatasync(self._fd)
        self._write_map(rescue_map, durable=True)

    def _write_map(self, rescue_map: RescueMap, *, durable: bool) -> None:
        described = replace(rescue_map, facts={**self._facts, **rescue_map.facts})
        name = os.fsdecode(self.slot.map_name)
        data = described.to_text().encode()
        write_atomically(self._folder, name, data, durable=durable)

    def finish(self, *, complete: bool) -> None:
        """Give a complete file its name, mode and times, all on the disk."""
        if complete:
            if (mtime := self._attributes.mtime_ns) is not None:
                os.utime(self._fd, ns=(mtime, mtime))
            os.fchmod(self._fd, self._attributes.mode & 0o777)
        os.fsync(self._fd)
        if complete:
            old, new = self.slot.partial, self.slot.name
            os.rename(old, new, src_dir_fd=self._folder, dst_dir_fd=self._folder)
            os.fsync(self._folder)
            self._complete = True
        self._close_file()

    def settle(self) -> None:
        """Remove the rescue map of a complete file, once its result is recorded."""
        if self._complete:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.slot.map_name, dir_fd=self._folder)

    def close(self) -> None:
        """Close the file and its folder."""
        self._close_file()
        os.close(self._folder)

    def _close_file(self) -> None:
        for fd in (self._direct, self._fd):
            if fd >= 0:
                os.close(fd)
        self._direct = self._fd = -1


class OutputFolder:
    """The folder given as `--out`, held open with every file in it that is being written."""

    in_order = False

    def __init__(self, path: str, *, force: bool = False) -> None:
        """Create it where it does not exist. Raises Unusable with a remedy."""
        self.path = path
        self._force = force
        self._outputs: list[FolderOutput] = []
        self._files: set[bytes] = {RECORD.encode(), CUSTODY.encode()}
        self._folders: set[bytes] = set()
        try:
            os.makedirs(path, exist_ok=True)
            self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise unwritable(path, error) from None
        self._lock()

    def _lock(self) -> None:
        """Keep a second dump out while this one writes; filesystems without locks allow it."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self.fd)
            raise Unusable(
                f"Another dump is writing to {printable(self.path)}.",
                remedy="Wait for it, or choose another --out.",
            ) from None
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise

    def close(self) -> None:
        """Let go of the folder and of everything in it."""
        while self._outputs:
            self._outputs.pop().close()
        os.close(self.fd)

    @property
    def took_over(self) -> bool:
        """Tell whether a file goes on from what an interrupted run had read."""
        return any(output.earlier is not None for output in self._outputs)

    def has(self, path: str) -> bool:
        """Tell whether a file stands at a path relative to the folder."""
        try:
            os.stat(path, dir_fd=self.fd, follow_symlinks=False)
        except (OSError, ValueError):
            return False
        return True

    def read_record(self) -> dict[str, object] | None:
        """Read the `recovery.json` that an earlier run left; None where there is none.

        Raises DestinationExists for a file of that name that is no record, unless forced.
        """
        with contextlib.suppress(OSError, ValueError, RecursionError):
            data = read_file(self.fd, RECORD, _RECORD_LIMIT)
            if data is None and not self.has(RECORD):
                return None
            document: object = json.loads(data) if data is not None else None
            if isinstance(document, dict):
                return cast("dict[str, object]", document)
        if self._force:
            return None
        raise DestinationExists(
            f"{printable(os.path.join(self.path, RECORD))} is not a record of reefkit.",
            remedy="Choose another --out, or overwrite with --force.",
        )

    def write_record(self, document: Mapping[str, object]) -> None:
        """Write `recovery.json`, and then remove the maps of what it says is complete."""
        write_atomically(self.fd, RECORD, to_text(document).encode())
        for output in self._outputs:
            output.settle()

    def open(self, path: bytes, facts: dict[str, str]) -> FolderOutput:
        """Open the place for the file that was at `path`.

        An interrupted file with the same facts is taken up again; a place taken by another one
        in this run, or left there by an interrupted run for another one, means the next number.
        Raises DestinationExists for a finished file, unless forced; Unusable.
        """
        first = slot_for(path)
        number = 1
        while True:
            slot = first.numbered(number)
            number += 1
            if slot.claims & (self._files | self._folders) or slot.parents & self._files:
                continue
            try:
                folder = self._folder(slot.folders)
            except OSError as error:
                raise unwritable(self._shown(slot), error) from None
            try:
                output = self._open_in(folder, slot, facts)
            except OSError as error:
                os.close(folder)
                raise unwritable(self._shown(slot), error) from None
            except BaseException:
                os.close(folder)
                raise
            if output is not None:
                self._outputs.append(output)
                self._files |= slot.claims
                self._folders |= slot.parents
                return output
            os.close(folder)

    def _open_in(self, folder: int, slot: Slot, facts: dict[str, str]) -> FolderOutput | None:
        """Open one place; None where something of another file is there."""
        names = {os.fsencode(name) for name in os.listdir(folder)}
        earlier = _read_map(folder, slot)
        ours = earlier is not None and _same(earlier, facts)
        foreign = {slot.partial, slot.map_name} & names
        if foreign and not ours and not self._force:
            return None
        if ours and slot.name in names and slot.partial not in names:
            # A run that ended after the rename, before its record: take the file up again.
            os.rename(slot.name, slot.partial, src_dir_fd=folder, dst_dir_fd=folder)
            names.add(slot.partial)
        elif slot.name in names and not self._force:
            raise DestinationExists(
                f"{printable(self._shown(slot))} exists already.",
                remedy="Choose another --out, or overwrite with --force.",
            )
        taken_up = earlier if ours and slot.partial in names else None
        return FolderOutput(folder, slot, taken_up, facts)

    def _shown(self, slot: Slot) -> str:
        return os.path.join(self.path, os.fsdecode(slot.path))

    def _folder(self, parts: tuple[bytes, ...]) -> int:
        current = os.dup(self.fd)
        for part in parts:
            try:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=current)
                below = os.open(part, _FOLDER_FLAGS, dir_fd=current)
            finally:
                os.close(current)
            current = below
        return current


def _read_map(folder: int, slot: Slot) -> RescueMap | None:
    try:
        data = read_file(folder, os.fsdecode(slot.map_name), _MAP_LIMIT)
        return None if data is None else RescueMap.from_text(data.decode("ascii"))
    except (ValueError, Unusable):
        return None


def _same(rescue_map: RescueMap, facts: dict[str, str]) -> bool:
    return all(rescue_map.facts.get(key) == value for key, value in facts.items())


def unwritable(path: str, error: OSError) -> Unusable:
    """Say why nothing can be written at `path`, and where to go instead."""
    return Unusable(
        f"Cannot write {printable(path)}: {os.strerror(error.errno or 0).lower()}.",
        remedy="Choose another --out, or stream: `--out - | ssh HOST 'cat > FILE'` "
        "(one file raw, several as tar).",
    )
