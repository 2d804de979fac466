"""Find out what a target is, and open it.

A folder, a zip, a `model.sig`, a `custody.jsonl`, a checksum file; in a repository also REV:PATH,
and then a folder's files are what its commit holds, not what was checked out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ...errors import Unusable
from ...records.names import printable
from ..content.members import Content, Member, MemberKind
from .known_names import ASIDE, CHAIN, HEAD, HEAD_SIGNATURE, KEY_COPY, PACKAGE_MARK
from .package import Package

if TYPE_CHECKING:
    from ..content.git_tree import GitContent

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_MODEL = re.compile(r"model(?:\.[2-9])?\.sig")
_LIST_LIMIT = 64 << 20


@contextmanager
def open_target(target: str, repository: Path | None) -> Generator[Package]:
    """Open it, and close it after. Raises Unusable, NotPermitted."""
    with ExitStack() as stack:
        if repository is not None:
            package = _in_repository(stack, target, repository)
            if package is not None:
                yield package
                return
        path = Path(target)
        if not os.path.lexists(path):
            raise Unusable(
                f"{printable(os.fsencode(target))} does not exist.",
                remedy="Name a zip, a folder or a checksum file; REV:PATH needs --git.",
            )
        yield _folder(path) if path.is_dir() else _file(stack, path)


def _folder(path: Path) -> Package:
    from ..content.folder import FolderContent

    return Package.of(FolderContent(path), base=os.fspath(path))


def _file(stack: ExitStack, path: Path) -> Package:
    head = _head(path)
    if head.startswith(_ZIP) or path.suffix.lower() == ".zip":
        from ..content.zip_read import ZipContent

        zipped = stack.enter_context(ZipContent(path))
        return Package.of(_below_one_folder(zipped), container=os.fspath(path))
    folder, name = path.parent, _member_name(path.name)
    if _MODEL.fullmatch(name):
        return _folder(folder)
    if name == CHAIN:
        from .listed_content import ListedContent

        content = ListedContent(folder, (CHAIN, HEAD, HEAD_SIGNATURE))
        return Package.of(content, base=os.fspath(folder), listed_by=CHAIN, demands_cover=False)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        _refuse_signatures(path)
        from ..content.single_file import SingleFile

        return Package.of(SingleFile(path), base=os.fspath(folder), bundle=name)
    return _list(path, folder, name)


def _below_one_folder(content: Content) -> Content:
    """Take the one folder around everything away, where the list lies in it and not at the top."""
    from ..content.inner import inner_folder

    if any(_is_list(member.name) for member in content.members):
        return content
    return inner_folder(content, _is_list) or content


def _is_list(name: str) -> bool:
    from .listing import is_list_name

    return "/" not in name and (is_list_name(name) or _MODEL.fullmatch(name) is not None)


def _refuse_signatures(path: Path) -> None:
    """Refuse a signature bundle under a name of its own, which says what it signs to nobody."""
    with open(path, "rb") as file:
        start = file.read(_LIST_LIMIT)
    if b'"dsseEnvelope"' in start:
        what, name = "an OMS signature bundle", "model.sig, in the folder that it signs"
    elif b'"messageSignature"' in start:
        what, name = "a sigstore bundle", "SHA256SUMS.sigstore.json, beside what it signs"
    else:
        return
    raise Unusable(
        f"{printable(os.fsencode(path.name))} is {what}, not evidence itself.",
        remedy=f"Call it {name}, and name that folder.",
    )


def _list(path: Path, folder: Path, name: str) -> Package:
    """Open what a checksum file lists, or the whole folder where it claims to cover that."""
    from ..content.folder import FolderContent
    from ..content.single_file import SingleFile
    from ..sign.carriers import MODEL, all_names
    from ..sums.read import read_sums
    from .listed_content import ListedContent

    whole = Package.of(SingleFile(path))
    sums = read_sums(whole.read(next(iter(whole.members)), _LIST_LIMIT), printable(name))
    names = {line.name for line in sums.lines}
    carriers = all_names(name)
    models = [each for each in carriers if each.startswith(MODEL + ".")]
    base = os.fspath(folder)
    if PACKAGE_MARK in names or any(os.path.lexists(folder / each) for each in models):
        return Package.of(FolderContent(folder), base=base, listed_by=name)
    content = ListedContent(folder, {*names, *carriers, *ASIDE, name, KEY_COPY})
    return Package.of(content, base=base, listed_by=name, demands_cover=False)


def _head(path: Path) -> bytes:
    from ..content.single_file import SingleFile

    content = SingleFile(path)
    with content.open(content.members[0]) as file:
        return file.read(512)


def _member_name(name: str) -> str:
    from ..content.name_bytes import member_name

    return member_name(name)


def _in_repository(stack: ExitStack, target: str, repository: Path) -> Package | None:
    """Open what a commit holds; None where the target is no folder that git tracks."""
    from .git import demand_repository

    demand_repository(repository)
    if os.path.lexists(target):
        inside = _tracked_path(Path(target), repository)
        if inside is None:
            return None
        content = _tree(stack, repository, "HEAD", inside)
        if content is None or not content.members:
            return None
        return Package.of(content, base=target, revision=content.label)
    revision, colon, path = target.partition(":")
    if not colon:
        return None
    content = _tree(stack, repository, revision, path)
    if content is not None:
        return Package.of(content, base=path or ".", revision=content.label)
    return _blob(stack, repository, revision, path)


def _tracked_path(target: Path, repository: Path) -> str | None:
    """Say where in the repository a folder lies; None for a file, and for what lies elsewhere."""
    from ..repository.git import top_level

    top = top_level(repository)
    if top is None or not target.is_dir():
        return None
    try:
        inside = target.resolve().relative_to(top.resolve())
    except ValueError:
        return None
    return "" if inside == Path() else inside.as_posix()


def _tree(stack: ExitStack, repository: Path, revision: str, path: str) -> GitContent | None:
    from ..content.git_tree import GitContent

    try:
        return stack.enter_context(GitContent(repository, revision, path))
    except Unusable:
        if path:
            GitContent(repository, revision).close()  # is it the revision that is not there?
            return None
        raise


def _blob(stack: ExitStack, repository: Path, revision: str, path: str) -> Package:
    place = PurePosixPath(path)
    parent = "" if place.parent == PurePosixPath() else place.parent.as_posix()
    content = _tree(stack, repository, revision, parent)
    members = {} if content is None else {member.name: member for member in content.members}
    member = members.get(place.name)
    if content is None or member is None or member.kind is not MemberKind.FILE:
        raise Unusable(
            f"There is no {printable(path)} in {printable(revision)}.",
            remedy="Name a folder, a zip or a checksum file of that revision.",
        )
    with content.open(member) as blob:
        if not blob.read(4).startswith(_ZIP):
            return _list_in_tree(content, members, member, parent)
        blob.seek(0)
        import shutil
        import tempfile

        from ..content.zip_read import ZipContent

        copy = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "blob.zip"
        with open(copy, "xb") as file:
            shutil.copyfileobj(blob, file, 1 << 20)
        zipped = _below_one_folder(stack.enter_context(ZipContent(copy)))
        return Package.of(zipped, container=path, revision=printable(f"{revision}:{path}"))


def _list_in_tree(
    content: Content, members: Mapping[str, Member], member: Member, parent: str
) -> Package:
    from ..sign.carriers import MODEL
    from ..sums.read import read_sums

    whole = Package.of(content, base=parent or ".", listed_by=member.name)
    sums = read_sums(whole.read(member.name, _LIST_LIMIT), printable(member.name))
    claims_all = any(line.name == PACKAGE_MARK for line in sums.lines) or f"{MODEL}.sig" in members
    return Package.of(
        content,
        base=parent or ".",
        listed_by=member.name,
        demands_cover=claims_all,
        revision=content.label,
    )
