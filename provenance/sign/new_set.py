"""Files that mean something only together: a kill at any moment leaves the old set or the new one.

The first file decides. All files are written under temporary names, the first one before the
others, and then get their names, the first one before the others. So while the first one's
temporary is there, the old set is valid, and what lies beside it is to be removed; once it has
its name, the temporaries of the others belong to the new set, which `complete` finishes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable
from ...records.new_file import discard, publish, refuse_existing, temporary_of, unpublished
from .new_files import NewFile

# What a private key's name is followed by in those of its public files.
PUBLIC_ENDINGS = (".pub", ".pem", ".allowed_signers", ".minisign.pub")


def put_set(
    files: Sequence[NewFile], *, obsolete: Sequence[Path] = (), force: bool = False
) -> None:
    """Write a set whose first file decides; where another cannot be written, none is left.

    With `force` the set replaces what is there, and what is `obsolete` with that goes.

    Raises DestinationExists, Unusable.
    """
    for file in files:
        refuse_existing(file.path, force=force)
    try:
        for file in files:
            with unpublished(file.path, mode=file.mode) as opened:
                opened.write(file.data)
        publish(files[0].path, force=force)
    except BaseException:
        for file in reversed(files):
            discard(file.path)
        raise
    published = [files[0].path]
    try:
        for path in obsolete if force else ():
            path.unlink(missing_ok=True)
        for file in files[1:]:
            publish(file.path, force=force)
            published.append(file.path)
    except BaseException:
        if not force:
            for path in published:
                with contextlib.suppress(OSError):
                    os.unlink(path)
            for file in reversed(files):
                discard(file.path)
        raise


def complete(private: Path) -> tuple[Path, ...]:
    """Finish a set of a key that was cut off once its first file was there; name what it lacked.

    A set that had not come that far is left alone. Raises Unusable when it cannot be finished.
    """
    if not os.path.lexists(private) or _is_undecided(private):
        return ()
    done: list[Path] = []
    openssh, *_, minisign = _others(private)
    try:
        if _is_pending(openssh) and not _is_pending(minisign):
            minisign.unlink(missing_ok=True)  # the former key's, the new one has none
        for path in _others(private):
            if _is_pending(path):
                os.replace(temporary_of(path), path)
                done.append(path)
        for path in (*_others(private), private):
            discard(path)  # where it is the file itself, by a second name, no replacing removes it
    except OSError as error:
        raise Unusable(
            f"The making of {printable(os.fsencode(private))} was cut off and cannot be completed: "
            f"{os.strerror(error.errno or 0).lower()}.",
            remedy="Make its folder writable, and run this again.",
        ) from None
    return tuple(done)


def abandon(private: Path) -> None:
    """Remove what was left of a set that was cut off before its first file was there."""
    if not os.path.lexists(private) or _is_undecided(private):
        for path in (*reversed(_others(private)), private):
            discard(path)


def minisign_name(private: Path) -> Path:
    """Give the name of the public file that only some keys have."""
    return _others(private)[-1]


def _is_pending(path: Path) -> bool:
    return os.path.lexists(temporary_of(path))


def _is_undecided(private: Path) -> bool:
    """Tell whether the first file's temporary is there, and not by a second name for it."""
    temporary = temporary_of(private)
    if not os.path.lexists(temporary):
        return False
    try:
        return not os.path.samefile(temporary, private)
    except OSError:
        return True


def _others(private: Path) -> tuple[Path, ...]:
    return tuple(private.with_name(private.name + ending) for ending in PUBLIC_ENDINGS)
