"""The folder of a gate's run: what lies where, written so that nobody sees half of it."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path

from ...errors import DestinationExists, NotPermitted, Unusable
from ...records.documents import to_text
from ...records.names import printable
from .judge_rank import cell_folder
from .manifest import Manifest
from .manifest_file import read_bytes
from .model import RankReport
from .part import MANIFEST_NAMES
from .provenance import run_record_name
from .report import LIMIT, parse_rank_report
from .verdict import CHAIN_NAME, REPORT_NAME


class OutFolder:
    """One rank's view of the folder; several ranks write into it at the same time."""

    def __init__(self, path: Path, rank: int) -> None:
        """Make the folder where there is none. Raises Unusable, NotPermitted."""
        self.path = path
        self.rank = rank
        self.report_name = f"rank-{rank}.json"
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _refused(path, error) from None

    def write(self, name: str, data: bytes) -> None:
        """Write a file whole, or not at all. Raises Unusable, NotPermitted."""
        temporary = self.path / f".{name}.{self.rank}.tmp"
        try:
            self.path.mkdir(parents=True, exist_ok=True)  # a cell may have removed it
            self._clear(temporary)
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, self.path / name)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise _refused(self.path / name, error) from None

    def write_json(self, name: str, document: Mapping[str, object]) -> None:
        """Write a JSON document whole, or not at all."""
        self.write(name, to_text(document).encode())

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            (self.path / name).unlink()

    def keep_once(self, name: str, data: bytes, *, force: bool) -> None:
        """Write a file that all ranks write alike. Raises DestinationExists where it differs."""
        there = self.path / name
        if os.path.lexists(there) and not force:
            if read_bytes(there) == data:
                return
            raise DestinationExists(
                f"{printable(os.fsencode(self.path))} holds the run of another gate ({name}).",
                remedy="Name another --out, or give --force to run anew here.",
            )
        self.write(name, data)

    def earlier(self, *, finished: bool) -> RankReport | None:
        """Read this rank's report, or what an interrupted run left; None where there is none.

        Raises Unusable for a finished one that cannot be read; an unfinished one is no loss.
        """
        name = self.report_name if finished else f"{self.report_name}.partial"
        if not os.path.lexists(self.path / name):
            return None
        try:
            return parse_rank_report(read_bytes(self.path / name, LIMIT), name)
        except Unusable:
            if finished:
                raise
            return None

    def peers_with(self, cell: str, world_size: int) -> bool:
        """Tell whether every other rank has ended a cell, too."""
        for rank in range(world_size):
            if rank == self.rank:
                continue
            peer = OutFolder(self.path, rank)
            found = peer.earlier(finished=True) or peer.earlier(finished=False)
            if found is None or all(each.id != cell for each in found.cells):
                return False
        return True

    def retire_run(self, *, record: bool) -> None:
        """Keep what earlier executions left, which is never changed, under its digest.

        That is the mark of one that was killed, and with `record` the run record of one that ended.
        """
        name = run_record_name(self.rank)
        for there, suffix in ((f"{name}.started", "started"), (name, "json")):
            if (suffix == "started" or record) and os.path.lexists(self.path / there):
                data = read_bytes(self.path / there, LIMIT)
                digest = hashlib.sha256(data).hexdigest()[:16]
                kept = self.path / f"run-earlier-{self.rank}-{digest}.{suffix}"
                os.replace(self.path / there, kept)

    @contextlib.contextmanager
    def alone(self) -> Generator[None]:
        """Keep other processes of this rank out, where the system has locks.

        The lock goes with the process that holds it. Raises DestinationExists where another has it.
        """
        try:
            import fcntl
        except ImportError:  # Windows
            yield
            return
        path = self.path / f".rank-{self.rank}.lock"
        file = self._lock(path, lambda handle: fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB))
        if file is None:
            yield
            return
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(file)

    def _lock(self, path: Path, lock: Callable[[int], None]) -> int | None:
        """Open a file and lock it, and give it; None on a file system without locks."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        while True:
            try:
                file = os.open(path, flags, 0o644)
            except OSError as error:
                raise _refused(path, error) from None
            try:
                lock(file)
                # Who held it before has removed the file: then this lock keeps nobody out.
                if os.path.lexists(path) and os.path.samestat(os.fstat(file), os.lstat(path)):
                    return file
            except BlockingIOError:
                os.close(file)
                raise DestinationExists(
                    f"Another process runs rank {self.rank} into "
                    f"{printable(os.fsencode(self.path))}.",
                    remedy="Wait for it, name another --out, or say with RANK or --rank which "
                    "rank this is.",
                ) from None
            except FileNotFoundError:
                pass
            except OSError:
                os.close(file)
                with contextlib.suppress(OSError):
                    path.unlink()
                return None
            os.close(file)

    def reports(self) -> list[str]:
        """Name the reports that are there."""
        return [name for name in os.listdir(self.path) if REPORT_NAME.fullmatch(name)]

    def begin_cell(self, cell: str, execution: str) -> Path:
        """Make the folder that a cell writes into, fresh and of a name that no other run has.

        A command that outlives its killed gate then cannot write into a later attempt.
        """
        folder = self.path / cell_folder(cell, self.rank)
        try:
            for part in (folder.parent.parent, folder.parent):
                part.mkdir(exist_ok=True)
                if part.is_symlink():
                    raise Unusable(
                        f"{printable(os.fsencode(part))} is a link, which is not followed.",
                        remedy="Name another --out.",
                    )
            for path in (folder, *self.logs(cell)):
                self._clear(path)
            for name in os.listdir(folder.parent):
                if name.startswith(f".{folder.name}."):
                    self._clear(folder.parent / name)
            attempt = folder.with_name(f".{folder.name}.{execution}")
            attempt.mkdir()
        except OSError as error:
            raise _refused(folder, error) from None
        return attempt

    def end_cell(self, cell: str, attempt: Path) -> Path:
        """Give the folder that a cell wrote its lasting name.

        Raises Unusable, NotPermitted where the cell removed it or put something else there; then
        what it put there is removed.
        """
        folder = self.path / cell_folder(cell, self.rank)
        try:
            if not stat.S_ISDIR(os.lstat(attempt).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            os.rename(attempt, folder)
        except OSError as error:
            with contextlib.suppress(OSError):
                self._clear(attempt)
            if isinstance(error, (FileNotFoundError, NotADirectoryError)):
                raise Unusable(
                    "the folder that it was to write into is gone, or no folder any more",
                    remedy="Let a cell write into {out}, and leave {out} itself alone.",
                ) from None
            raise _refused(folder, error) from None
        return folder

    def logs(self, cell: str) -> tuple[Path, Path]:
        """Give the paths of a cell's stdout and stderr, beside its artifacts."""
        folder = self.path / cell_folder(cell, self.rank)
        name = folder.name
        return folder.with_name(f"{name}.stdout.txt"), folder.with_name(f"{name}.stderr.txt")

    def _clear(self, path: Path) -> None:
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)


def check_destination(out: OutFolder, manifest: Manifest, *, force: bool) -> None:
    """Put the manifest into the folder, once; with `force`, drop what this rank left there."""
    for name in set(MANIFEST_NAMES) - {manifest.file_name}:
        if force:
            out.remove(name)
        elif os.path.lexists(out.path / name):
            raise DestinationExists(
                f"{printable(os.fsencode(out.path))} holds the run of another gate ({name}).",
                remedy="Name another --out, or give --force to run anew here.",
            )
    out.keep_once(manifest.file_name, manifest.raw, force=force)
    if force:
        for name in (out.report_name, f"{out.report_name}.partial", CHAIN_NAME):
            out.remove(name)


def refuse_inputs(out: Path, inputs: Iterable[Path]) -> None:
    """Refuse to write onto what is read, or into a folder that is judged. Raises Unusable."""
    there = out.resolve()
    for each in inputs:
        read = each.resolve()
        same = os.path.lexists(out) and each.exists() and os.path.samefile(out, each)
        if same or there == read or (read in there.parents and each.is_dir()):
            raise Unusable(
                f"--out {printable(os.fsencode(out))} would be written into what is read, "
                f"{printable(os.fsencode(each))}.",
                remedy="Name an --out elsewhere.",
            )


def write_document(path: Path, document: Mapping[str, object], *, force: bool) -> None:
    """Write a JSON document whole, or not at all. Raises DestinationExists without `force`."""
    if os.path.lexists(path) and not force:
        raise DestinationExists(
            f"{printable(os.fsencode(path))} is there already.",
            remedy="Name another --out, or give --force to replace it.",
        )
    OutFolder(path.parent, 0).write_json(path.name, document)


def _refused(path: Path, error: OSError) -> Unusable | NotPermitted:
    message = f"{printable(os.fsencode(path))} cannot be written: {error.strerror}."
    if isinstance(error, PermissionError):
        return NotPermitted(message, remedy="Name a folder that you may write to.")
    return Unusable(message, remedy="Name another --out.")
