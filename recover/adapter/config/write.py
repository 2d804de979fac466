"""Write a configuration and its evidence: both or neither, and never over what is there."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import zlib
from collections.abc import Generator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from ....errors import DestinationExists, DoesNotHold, NotPermitted, ReefError, Unusable
from ....records.documents import read_file, to_text, write_atomically
from ....records.names import printable
from ....records.strict_json import Json, parse_object
from ...json_files import CONFIG_LIMIT

CONFIG = "adapter_config.json"
EVIDENCE = "adapter_config.evidence.json"
_MODE = 0o666  # less the umask, as any program's output
_SHOWN = 120
_ELSEWHERE = "Name another folder with --out."
_FORBIDDEN = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


class Destination(NamedTuple):
    """Where both files go."""

    folder: Path
    config: str = CONFIG
    evidence: str = EVIDENCE

    @property
    def paths(self) -> tuple[Path, Path]:
        """Give both paths, the configuration's first."""
        return self.folder / self.config, self.folder / self.evidence


def destination(out: str | None, beside: Path | None) -> Destination:
    """Give the destination: a folder or a `.json` file that is named, else beside the weights.

    Raises Unusable where neither is known, or no folder can be at the place.
    """
    if out is None:
        if beside is None:
            raise Unusable(
                "A process's file has no folder to write into.",
                remedy="Name one with --out DIR, where the dump of the adapter is.",
            )
        return Destination(beside)
    if not out or "\0" in out:
        raise Unusable(
            "--out names nothing.", remedy="Name a folder, or a file that ends in .json."
        )
    path = Path(out)
    place = Destination(path)
    if path.suffix == ".json" and not path.is_dir():
        place = Destination(path.parent, path.name, f"{path.stem}.evidence.json")
    with _told(place.folder):
        existing = os.path.lexists(place.folder)
        if existing and not stat.S_ISDIR(os.stat(place.folder).st_mode):
            raise Unusable(f"{_shown(place.folder)} is not a folder.", remedy=_ELSEWHERE)
    return place


def demand_free(place: Destination) -> None:
    """Demand that there is no configuration. Raises DestinationExists.

    Evidence alone is what an interrupted run left: it is written first, and names the digest of the
    configuration that it belongs to.
    """
    path = place.paths[0]
    if os.path.lexists(path):
        raise DestinationExists(
            f"{_shown(path)} exists already.",
            remedy="`reef-recover validate` checks an adapter with its configuration; give it "
            "with --recipe to use what it states, write elsewhere with --out, or replace it "
            "with --force.",
        )


def is_ours(place: Destination) -> bool:
    """Tell whether the configuration that is there is the one that its evidence was written for."""
    try:
        with _opened(place.folder) as folder:
            config = read_file(folder, place.config, CONFIG_LIMIT)
            evidence = read_file(folder, place.evidence, CONFIG_LIMIT)
        digest = parse_object(evidence or b"", EVIDENCE).get("sha256")
    except (ReefError, OSError, ValueError):
        return False
    return config is not None and digest == sha256(config).hexdigest()


def config_text(config: Mapping[str, Json]) -> str:
    """Give the text as PEFT writes it: sorted keys, indented by two, no newline at the end."""
    return json.dumps(config, indent=2, sort_keys=True, allow_nan=False)


def write_both(place: Destination, config: str, evidence: Mapping[str, Json]) -> None:
    """Write both files, and read them back before they replace anything.

    Both are on the disk under temporary names before either takes its place, the evidence first:
    a crash between leaves evidence that names another configuration's digest. Where the second
    fails, the evidence that was there comes back. Raises Unusable, DoesNotHold, NotPermitted.
    """
    with _told(place.folder):
        place.folder.mkdir(parents=True, exist_ok=True)
    with _opened(place.folder) as folder:
        for path in place.paths:
            with _told(path):
                _demand_file(folder, path)
        with contextlib.ExitStack() as leftovers:
            new_evidence = _stage(folder, place.paths[1], to_text(evidence).encode(), leftovers)
            new_config = _stage(folder, place.paths[0], config.encode(), leftovers)
            with _told(place.paths[1]):
                former = _content(folder, place.evidence)
                os.rename(new_evidence, place.evidence, src_dir_fd=folder, dst_dir_fd=folder)
            try:
                with _told(place.paths[0]):
                    os.rename(new_config, place.config, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                _restore(folder, place.evidence, former)
                raise
        with _told(place.folder):
            os.fsync(folder)


def _stage(folder: int, path: Path, data: bytes, leftovers: contextlib.ExitStack) -> str:
    """Write a temporary file that follows from the name, so that a crash leaves at most one."""
    name = f".{zlib.crc32(os.fsencode(path.name)):08x}.reefkit.tmp"
    with _told(path):
        _unlink(folder, name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(name, flags, _MODE, dir_fd=folder)
        leftovers.callback(_unlink, folder, name)
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(fd)
        reread = read_file(folder, name, len(data))
    if reread != data:
        raise DoesNotHold(
            f"{_shown(path)} does not read as it was written.",
            remedy="Check the disk, and write elsewhere with --out.",
        )
    return name


def _unlink(folder: int, name: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _content(folder: int, name: str) -> bytes | None:
    """Read what will be replaced; None where there is none, or a link or nothing readable."""
    try:
        return read_file(folder, name, CONFIG_LIMIT)
    except (OSError, ValueError):
        return None


def _restore(folder: int, name: str, former: bytes | None) -> None:
    if former is None:
        _unlink(folder, name)
        return
    with contextlib.suppress(OSError):
        write_atomically(folder, name, former, _MODE)


def _demand_file(folder: int, path: Path) -> None:
    """Demand that nothing but a file or a link is replaced."""
    try:
        mode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise DestinationExists(
            f"{_shown(path)} is {what}, and is not replaced.",
            remedy="Remove it, or write elsewhere with --out.",
        )


@contextlib.contextmanager
def _opened(folder: Path) -> Generator[int, None, None]:
    with _told(folder):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _told(path: Path) -> Generator[None, None, None]:
    """Say what the kernel refused by the path that a person knows."""
    try:
        yield
    except OSError as error:
        if error.errno in _FORBIDDEN:
            raise NotPermitted(f"{_shown(path)} cannot be written.", remedy=_ELSEWHERE) from error
        if error.errno in (errno.EEXIST, errno.ENOTDIR):
            raise Unusable(
                f"{_shown(path)} is not a folder, or lies below a file.", remedy=_ELSEWHERE
            ) from error
        reason = os.strerror(error.errno or 0).lower()
        raise Unusable(f"{_shown(path)} cannot be written: {reason}.", remedy=_ELSEWHERE) from error


def _shown(path: Path) -> str:
    text = printable(os.fsencode(path))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
