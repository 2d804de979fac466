"""Hash the listed files and say which are not what the list says, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ...records.strict_json import Json
from ..content.members import Member
from ..finding import Finding, FindingKind
from ..hashing import Hashed, hash_members
from ..sums.algorithms import WEAK
from ..sums.model import SumsLine
from .cover import Cover, Pair, extra_findings, missing_findings
from .package import Package

MANIFEST = "manifest.json"
_MANIFEST_LIMIT = 256 << 20
# Looking for renamed files reads what nothing asked for: only so many, only so much.
_MOST_EXTRA = 1000
_MOST_EXTRA_BYTES = 4 << 30
_SAME = 8


@dataclass(frozen=True)
class Checked:
    """What became of the listed files; `good` were equal to a digest that proves something."""

    names: tuple[str, ...]
    good: frozenset[str]
    mismatched: tuple[str, ...]
    findings: tuple[Finding, ...]


def check_files(
    package: Package,
    cover: Cover,
    *,
    partial: bool,
    required: Collection[str],
    progress: Callable[[int], object] | None = None,
) -> Checked:
    """Hash every pair. With `partial`, what is missing and not required is only noted."""
    names: list[str] = []
    good: set[str] = set()
    wrong: list[tuple[Pair, Hashed, SumsLine]] = []
    on_disk: dict[str, str] = {}
    findings: list[Finding] = []
    for pair, hashed in zip(
        cover.pairs, hash_members(package.content, _wanted(cover.pairs), progress=progress),
        strict=True,
    ):  # fmt: skip
        name = pair.member.name
        if hashed.fault is not None:
            kind = hashed.kind or FindingKind.UNREADABLE
            findings.append(Finding(kind, name, hashed.fault))
            continue
        names.append(name)
        digests = hashed.digests
        for line in pair.lines:
            found = on_disk[name] = digests[line.algorithm]
            if found != line.digest:
                wrong.append((pair, hashed, line))
                break
            if line.algorithm not in WEAK:
                good.add(name)
                good.add(line.name)
        else:
            continue
        good.discard(name)
        good.discard(pair.lines[0].name)
    absent = [line for line in cover.missing if not partial or line.name in required]
    on_disk.update(_extra_digests(package, cover) if absent else {})
    findings += _mismatches(package, cover, wrong, on_disk, good)
    findings += _absences(package, cover, absent, on_disk, good)
    bad = tuple(pair.member.name for pair, _, _ in wrong)
    return Checked(tuple(names), frozenset(good), bad, tuple(findings))


def _wanted(pairs: Sequence[Pair]) -> list[tuple[Member, frozenset[str]]]:
    sets: dict[str, frozenset[str]] = {}
    wanted: list[tuple[Member, frozenset[str]]] = []
    for pair in pairs:
        if len(pair.lines) == 1:
            name = pair.lines[0].algorithm
            algorithms = sets.get(name) or sets.setdefault(name, frozenset((name,)))
        else:
            algorithms = frozenset(line.algorithm for line in pair.lines)
        wanted.append((pair.member, algorithms))
    return wanted


def _absences(
    package: Package,
    cover: Cover,
    absent: Sequence[SumsLine],
    on_disk: Mapping[str, str],
    good: Collection[str],
) -> list[Finding]:
    if not absent and not cover.extra and not cover.missing:
        return []
    elsewhere = {digest: name for name, digest in on_disk.items() if name not in good}
    renamed = {line.name: elsewhere[line.digest] for line in absent if line.digest in elsewhere}
    told = {line.name for line in absent}
    notes = [
        Finding(
            FindingKind.NOT_REQUIRED, line.name, "It is listed, but neither there nor required."
        )
        for line in cover.missing
        if line.name not in told
    ]
    missing = list(missing_findings(absent, cover, package, renamed))
    extra = list(extra_findings(cover, set(renamed.values()))) if package.demands_cover else []
    return [*missing, *extra, *notes]


def _extra_digests(package: Package, cover: Cover) -> dict[str, str]:
    """Hash files that nothing lists, to find those that were renamed."""
    algorithms = frozenset(line.algorithm for line in cover.missing)
    size = sum(member.size for member in cover.extra)
    if len(algorithms) != 1 or len(cover.extra) > _MOST_EXTRA or size > _MOST_EXTRA_BYTES:
        return {}
    hashed = hash_members(package.content, [(member, algorithms) for member in cover.extra])
    return {each.member.name: digest for each in hashed for digest in each.digests.values()}


def _mismatches(
    package: Package,
    cover: Cover,
    wrong: Sequence[tuple[Pair, Hashed, SumsLine]],
    on_disk: Mapping[str, str],
    good: Collection[str],
) -> list[Finding]:
    if not wrong:
        return []
    from ..diagnosis.diagnose import Diagnoses
    from ..diagnosis.known import Known

    by_digest: dict[str, tuple[str, ...]] = {}
    for line in (*(line for pair in cover.pairs for line in pair.lines), *cover.missing):
        names = by_digest.get(line.digest, ())
        if len(names) < _SAME:
            by_digest[line.digest] = (*names, line.name)
    known = Known(by_digest, on_disk, _manifest(package, good))
    diagnoses = Diagnoses(package.content, known)
    return [
        Finding(FindingKind.MISMATCH, pair.member.name, diagnoses.of(pair.member, line))
        for pair, _, line in wrong
    ]


def _manifest(package: Package, good: Collection[str]) -> Mapping[str, Json] | None:
    """Read the manifest, which may tell where a file differs, if it is itself what was listed."""
    from ...errors import ReefError
    from ...records.strict_json import parse_object

    if MANIFEST not in good:
        return None
    try:
        return parse_object(package.read(MANIFEST, _MANIFEST_LIMIT), MANIFEST)
    except (ReefError, OSError):
        return None
