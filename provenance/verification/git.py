"""Ask a repository about the commits that the evidence names: are they there, with that tree?

Nothing is fetched: objects that a partial clone lacks are missing. Replaced objects count as what
they were.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ...records.names import printable
from ..finding import Finding, FindingKind
from ..repository.git import git
from ..sums.names import fault_in
from .named_commits import NamedCommit

_TRANSPORTS = ("https", "http", "ssh", "git", "file", "ext")
_OFFLINE = (
    "-c", "protocol.allow=never",
    *(word for name in _TRANSPORTS for word in ("-c", f"protocol.{name}.allow=never")),
    "--no-replace-objects",
)  # fmt: skip
_MOST_AT_ONCE = 64 << 20
_LARGEST_BLOB = 1 << 30
_POINTER = b"version https://git-lfs.github.com/spec/v1\n"


def check_commits(repository: Path, named: Sequence[NamedCommit]) -> Iterator[Finding]:
    """Look every commit up, and hash the files that are said to be in it. Raises Unusable."""
    demand_repository(repository)
    trees = _trees(repository, named)
    for each in {(one.commit, one.tree): one for one in reversed(named)}.values():
        found = trees[f"{each.commit}^{{commit}}"], trees[f"{each.commit}^{{tree}}"]
        if None in found:
            yield _absent(repository, each, trees)
        elif each.tree is not None and found[1] != each.tree:
            yield Finding(
                FindingKind.TREE_DIFFERS,
                each.source,
                f"Commit {each.commit} has the tree {found[1]}, not {each.tree}.",
            )
    for each in named:
        if each.files and trees[f"{each.commit}^{{commit}}"] is not None:
            yield from _check_files(repository, each)


def demand_repository(repository: Path) -> None:
    """Demand that there is a repository. Raises Unusable."""
    from ...errors import Unusable

    if not repository.is_dir():
        raise Unusable(
            f"{printable(str(repository))} is no folder.", remedy="Name a repository with --git."
        )
    ask(repository, "rev-parse", "--git-dir")


def ask(repository: Path, *arguments: str, stdin: bytes = b"", may_fail: bool = False) -> bytes:
    """Run a git command that touches no network. Raises Unusable unless it may fail."""
    return git(repository, *_OFFLINE, *arguments, stdin=stdin, may_fail=may_fail) or b""


def _trees(repository: Path, named: Sequence[NamedCommit]) -> Mapping[str, str | None]:
    """Ask what each commit and tree is, in one process; None for what is not there."""
    wanted = dict.fromkeys(
        word
        for each in named
        for word in (
            f"{each.commit}^{{commit}}",
            f"{each.commit}^{{tree}}",
            *((f"{each.tree}^{{tree}}",) if each.tree else ()),
        )
    )
    if not wanted:
        return {}
    answer = ask(repository, "cat-file", "--batch-check", stdin=_lines(wanted))
    found: dict[str, str | None] = {}
    for word, line in zip(wanted, answer.decode("utf-8", "replace").splitlines(), strict=True):
        parts = line.split(" ")
        found[word] = parts[0] if len(parts) == 3 and parts[1] in ("commit", "tree") else None
    return found


def _absent(repository: Path, each: NamedCommit, trees: Mapping[str, str | None]) -> Finding:
    if each.tree is not None and trees[f"{each.tree}^{{tree}}"] is not None:
        heir = _commit_with(repository, each.tree)
        where = f"commit {heir} has" if heir else "the repository holds"
        return Finding(
            FindingKind.REWRITTEN_COMMIT,
            each.source,
            f"Commit {each.commit} is not in the repository any more, but {where} its very tree, "
            f"{each.tree}: history was rewritten, the files were not.",
        )
    shallow = ask(repository, "rev-parse", "--is-shallow-repository").strip() == b"true"
    hint = " The clone is shallow: fetch the whole history (fetch-depth: 0)." if shallow else ""
    tree = f", nor its tree, {each.tree}" if each.tree else ""
    return Finding(
        FindingKind.COMMIT_MISSING,
        each.source,
        f"The repository does not have commit {each.commit}{tree}.{hint}",
    )


def _commit_with(repository: Path, tree: str) -> str | None:
    log = ask(repository, "log", "--all", "--format=%H %T", may_fail=True)
    for line in log.decode("ascii", "replace").splitlines():
        commit, _, its_tree = line.partition(" ")
        if its_tree == tree:
            return commit
    return None


def _check_files(repository: Path, each: NamedCommit) -> Iterator[Finding]:
    """Hash the blobs of a revision, not what was checked out from it."""
    usable = {path: sha for path, sha in each.files.items() if not _unusable(path)}
    for path in each.files.keys() - usable.keys():
        text = f"It names {printable(path[:200])}, which no repository holds."
        yield Finding(FindingKind.RECORD, each.source, text)
    for path, digest in _blob_digests(repository, each.commit, list(usable)):
        at = f"{printable(path)} at {each.commit}"
        if digest is None:
            text = f"It lists {at}, and there is no such file."
            yield Finding(FindingKind.MISSING, each.source, text)
        elif usable[path] not in digest:
            yield Finding(
                FindingKind.MISMATCH,
                each.source,
                f"It gives {at} the SHA-256 {usable[path]}, and the blob has {digest[0]}.",
            )


def _unusable(path: str) -> bool:
    return fault_in(path) is not None or not path.isprintable()


def _blob_digests(
    repository: Path, commit: str, paths: Sequence[str]
) -> Iterator[tuple[str, tuple[str, ...] | None]]:
    """Give each blob's SHA-256, and that of the content where it is an LFS pointer."""
    words = [f"{commit}:{path}" for path in paths]
    if not words:
        return
    answer = ask(repository, "cat-file", "--batch-check", stdin=_lines(words))
    group: list[str] = []
    size = 0
    for path, line in zip(paths, answer.decode("utf-8", "replace").splitlines(), strict=True):
        parts = line.split(" ")
        if len(parts) != 3 or parts[1] != "blob" or int(parts[2]) > _LARGEST_BLOB:
            yield path, None
            continue
        if group and size + int(parts[2]) > _MOST_AT_ONCE:
            yield from _hashed(repository, commit, group)
            group, size = [], 0
        group.append(path)
        size += int(parts[2])
    yield from _hashed(repository, commit, group)


def _hashed(
    repository: Path, commit: str, paths: Sequence[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    words = [f"{commit}:{path}" for path in paths]
    answer = ask(repository, "cat-file", "--batch", stdin=_lines(words)) if words else b""
    at = 0
    for path in paths:
        end = answer.index(b"\n", at)
        size = int(answer[at:end].rpartition(b" ")[2])
        blob = answer[end + 1 : end + 1 + size]
        at = end + 1 + size + 1
        digest = hashlib.sha256(blob).hexdigest()
        yield path, (digest, *_pointed_at(blob))


def _pointed_at(blob: bytes) -> tuple[str, ...]:
    if not blob.startswith(_POINTER):
        return ()
    lines = blob.decode("utf-8", "replace").splitlines()
    return tuple(line[11:] for line in lines if line.startswith("oid sha256:"))


def _lines(words: Iterable[str]) -> bytes:
    return b"".join(word.encode() + b"\n" for word in words)
