"""Write a configuration and its evidence: both or neither, and never over what is there."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import NamedTuple

from ....errors import DestinationExists, DoesNotHold, NotPermitted, Unusable
from ....records.documents import read_file, to_text, write_atomically
from ....records.names import printable
from ..statement import Json

CONFIG = "adapter_config.json"
EVIDENCE = "adapter_config.evidence.json"
_MODE = 0o666  # less the umask, as any program's output


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

    Raises Unusable where neither is known.
    """
    if out is None:
        if beside is None:
            raise Unusable(
                "A process's file has no folder to write into.",
                remedy="Name one with --out DIR, where the dump of the adapter is.",
            )
        return Destination(beside)
    path = Path(out)
    if path.suffix == ".json" and not path.is_dir():
        return Destination(path.parent, path.name, f"{path.stem}.evidence.json")
    return Destination(path)


def demand_free(place: Destination) -> None:
    """Demand that there is no configuration. Raises DestinationExists.

    Evidence alone is what an interrupted run left: it is written first, and names the digest of the
    configuration that it belongs to.
    """
    path = place.paths[0]
    if os.path.lexists(path):
        raise DestinationExists(
            f"{printable(os.fsencode(path))} exists already.",
            remedy="`reef-recover validate` checks an adapter with its configuration; give it "
            "with --recipe to use what it states, write elsewhere with --out, or replace it "
            "with --force.",
        )


def config_text(config: Mapping[str, Json]) -> str:
    """Give the text as PEFT writes it: sorted keys, indented by two, no newline at the end."""
    return json.dumps(config, indent=2, sort_keys=True, allow_nan=False)


def write_both(place: Destination, config: str, evidence: Mapping[str, Json]) -> None:
    """Write both files and read the configuration back. Raises DoesNotHold, NotPermitted.

    Nothing new is left where one of them fails.
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    with _opened(place.folder) as folder:
        written: list[str] = []
        try:
            for name, text in ((place.evidence, to_text(evidence)), (place.config, config)):
                write_atomically(folder, name, text.encode(), _MODE)
                written.append(name)
            if read_file(folder, place.config, len(config.encode())) != config.encode():
                raise DoesNotHold(
                    f"{printable(os.fsencode(place.paths[0]))} does not read as it was written.",
                    remedy="Check the disk, and write elsewhere with --out.",
                )
        except BaseException:
            for name in written:
                with contextlib.suppress(OSError):
                    os.unlink(name, dir_fd=folder)
            raise


@contextlib.contextmanager
def _opened(folder: Path) -> Generator[int, None, None]:
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError as error:
        raise NotPermitted(
            f"{printable(os.fsencode(folder))} cannot be written to.",
            remedy="Name another folder with --out.",
        ) from error
    try:
        yield fd
    finally:
        os.close(fd)
