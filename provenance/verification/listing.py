"""What says which files must be there: SHA256SUMS, or else a signature's own list, or others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import Unusable
from ...records.names import printable
from ..finding import Finding, FindingKind
from ..sums.model import Sums, SumsLine
from ..sums.names import fault_in
from ..sums.read import read_sums
from .carried import Carried, carried
from .package import Package

SUMS = "SHA256SUMS"
_LIMIT = 64 << 20
_OTHER_LISTS = re.compile(
    r"(?i)(?:.+[._-])?(?:sha(?:1|224|256|384|512)|md5|b2|blake2b?)sums?(?:\.txt)?"
    r"|(?:.+[._-])?checksums?(?:[._-](?:sha\d+|md5))?(?:\.txt)?"
    r"|(?:tag)?manifest-(?:md5|sha\d+)\.txt"
    r"|.+\.(?:sha(?:1|224|256|384|512)(?:sums?)?|md5|b2)"
)
_OPENPGP = (".asc", ".gpg", ".pgp")


@dataclass(frozen=True)
class ListFile:
    """A checksum file: its name and bytes, and what it says, or why it cannot be read."""

    name: str
    data: bytes
    sums: Sums
    fault: Unusable | None = None


MARKER = "COMPLETE"


@dataclass(frozen=True)
class Listing:
    """All lines that count, each name once for an algorithm, and what was signed of it.

    `aside` are the names that no line need cover: the lists themselves, and their signatures.
    """

    lists: tuple[ListFile, ...]
    carried: tuple[Carried, ...]
    lines: tuple[SumsLine, ...]
    aside: frozenset[str]
    findings: tuple[Finding, ...] = ()

    @property
    def fault(self) -> Unusable | None:
        """Say why a list cannot be read, if that is so."""
        return next((each.fault for each in self.lists if each.fault is not None), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Name what the lines were taken from."""
        if self.lists:
            return tuple(each.name for each in self.lists)
        return tuple(each.path for each in self.carried if each.binds_files)


def is_list_name(name: str) -> bool:
    """Tell whether a file is called as checksum files are."""
    return _OTHER_LISTS.fullmatch(name) is not None


def find_listing(package: Package, *, strict: bool) -> Listing:
    """Find and read the list. Raises Unusable when there is none that can be read."""
    names = _names(package)
    found = carried(package, names or (SUMS,))
    signed = {each.list_name for each in found if not each.is_timestamp}
    lists = [_read(package, name, strict=strict, signed=name in signed) for name in names]
    if not lists:
        return _from_signatures(package, found)
    lines, conflicts = _merged(lists)
    lines = (*lines, *_bound(found, lines))
    unread = [
        Finding(
            FindingKind.NOT_CHECKED,
            name + ending,
            "It may be an OpenPGP signature, and those are not checked here: use gpg.",
        )
        for name in names
        for ending in _OPENPGP
        if package.holds(name + ending)
    ]
    aside = frozenset(
        [*names, *(each.path for each in found), *(str(each.path) for each in unread)]
    )
    notes = [finding for each in lists for finding in each.sums.findings]
    return Listing(tuple(lists), found, lines, aside, (*notes, *conflicts, *unread))


def _bound(found: Sequence[Carried], lines: Sequence[SumsLine]) -> list[SumsLine]:
    """Give lines for what a signature binds by SHA-256 and the lists name by another hash only.

    Unless such files are hashed that way, too, the signature says nothing of their bytes.
    """
    by_sha256 = {line.name for line in lines if line.algorithm == "sha256"}
    others = {line.name for line in lines} - by_sha256
    added: dict[str, SumsLine] = {}
    for each in found:
        bound = each.signature.files if each.signature is not None else None
        for name, digest in (bound or {}).items():
            if name in others:
                added.setdefault(name, SumsLine(name, "sha256", digest, 0))
    return list(added.values())


def _names(package: Package) -> tuple[str, ...]:
    if package.listed_by is not None:
        return (package.listed_by,)
    if package.holds(SUMS):
        return (SUMS,)
    if any(each.binds_files for each in carried(package, (SUMS,))):
        return ()
    if package.holds(MARKER) and not any(map(is_list_name, package.members)):
        return (MARKER,)
    return tuple(
        name for name in package.members if "/" not in name and package.holds(name)
        and is_list_name(name)
    )  # fmt: skip


def _read(package: Package, name: str, *, strict: bool, signed: bool) -> ListFile:
    data = package.read(name, _LIMIT)
    if name == MARKER:
        return ListFile(name, data, _marker(data))
    try:
        return ListFile(name, data, read_sums(data, printable(name), strict=strict))
    except Unusable as error:
        if not signed:
            raise
        return ListFile(name, data, Sums(()), error)  # its signatures tell whether it was changed


def _marker(data: bytes) -> Sums:
    """Take the list out of the marker that ends an attempt of RL-Kernel's. Raises Unusable."""
    from ..gate.foreign import ForeignReport, read_report

    report = read_report(data, MARKER)
    if not isinstance(report, ForeignReport) or not report.files:
        raise Unusable(
            f"{MARKER} lists no files.", remedy="Ask the author for a package with checksums."
        )
    if any(fault_in(name) for name in report.files):
        raise Unusable(f"{MARKER} names files outside of its folder.", remedy="Do not use it.")
    lines = (
        SumsLine(name, "sha256", digest, number)
        for number, (name, digest) in enumerate(report.files.items(), 1)
    )
    note = Finding(FindingKind.DIALECT, MARKER, f"It is no checksum file, but {report.schema}.")
    return Sums(tuple(lines), (note,))


def _from_signatures(package: Package, found: Sequence[Carried]) -> Listing:
    """Take the list out of a model.sig. Raises Unusable."""
    binding = [each for each in found if each.binds_files]
    if not binding:
        raise _nothing_lists(package)
    readable = [each for each in binding if each.signature is not None]
    if not readable:
        fault = binding[0].finding
        raise Unusable(
            f"{printable(binding[0].path)} is the only list here, and cannot be used: "
            f"{fault.diagnosis if fault else ''}",
            remedy=binding[0].remedy or "Get it from its source again.",
        )
    files = readable[0].signature.files if readable[0].signature is not None else None
    lines = tuple(
        SumsLine(name, "sha256", digest, number)
        for number, (name, digest) in enumerate((files or {}).items(), 1)
    )
    return Listing((), tuple(found), lines, frozenset(each.path for each in found))


def _nothing_lists(package: Package) -> Unusable:
    nested = sorted(
        name for name in package.members if is_list_name(name.rpartition("/")[2]) and "/" in name
    )
    where = printable(nested[0].rpartition("/")[0]) if nested else None
    return Unusable(
        f"{package.content.label} holds no {SUMS} and nothing else that lists its files.",
        remedy=f"There is a list in {where}: name that folder."
        if where
        else "Ask the author for a package with checksums, or make one with reef-archive sign.",
    )


def _merged(lists: Sequence[ListFile]) -> tuple[tuple[SumsLine, ...], list[Finding]]:
    if len(lists) == 1:
        return lists[0].sums.lines, []
    lines: dict[tuple[str, str], tuple[SumsLine, str]] = {}
    conflicts: list[Finding] = []
    for each in lists:
        for line in each.sums.lines:
            earlier, source = lines.setdefault((line.name, line.algorithm), (line, each.name))
            if earlier.digest != line.digest:
                conflicts.append(
                    Finding(
                        FindingKind.CONFLICTING_DIGESTS,
                        line.name,
                        f"{printable(source)} and {printable(each.name)} give it two digests.",
                    )
                )
    return tuple(line for line, _ in lines.values()), conflicts
