"""Where `reef-archive verify` may write its report: never over, or into, what it reads."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Unusable
from ..records.names import printable
from ..records.new_file import refuse_existing, refuse_inputs

if TYPE_CHECKING:
    from ..provenance.verification.result import Verification
    from ..provenance.verify import Request


def refuse_out(out: Path, request: Request, *, force: bool) -> None:
    """Refuse a report that is, or lies in, what a verification reads. Raises what that raises."""
    refuse_existing(out, force=force)
    refuse_inputs(out, _inputs(request))


def refuse_verified(out: Path, result: Verification) -> None:
    """Refuse a report in place of a file that was verified, or that lists or signs some.

    That is for the files beside a list: which they are is known afterwards. Raises Unusable.
    """
    of_files = os.path.exists(result.target) and result.container is None
    if result.base is None or not of_files:  # a zip, or a revision of a repository
        return
    from ..provenance.sign.carriers import all_names
    from ..provenance.verification.known_names import KEY_COPY, STATEMENTS

    taken = {
        *STATEMENTS,
        KEY_COPY,
        *result.files,
        *result.lists,
        *(signer.path for signer in result.signers),
    }
    taken.update(finding.path for finding in result.findings if finding.path is not None)
    for each in result.lists:
        taken.update(all_names(each))
    if _inside(out, result.base) in {os.path.normcase(name) for name in taken}:
        raise Unusable(
            f"{printable(os.fsencode(out))} is one of the files that were verified.",
            remedy="Choose another --out: what is read is never written to.",
        )


def _inside(path: Path, folder: str) -> str | None:
    """Give a path's name in a folder; None outside of it."""
    try:
        return os.path.normcase(os.path.relpath(os.path.realpath(path), os.path.realpath(folder)))
    except ValueError:  # on another drive
        return None


def _inputs(request: Request) -> Iterator[Path]:
    target = Path(request.target)
    yield target
    if target.is_file() and _is_package(target.parent):
        yield target.parent
    yield from request.revoked
    for path in (request.signers, request.policy):
        if path is not None:
            yield path
    if not request.integrity_only:
        yield from _trust_files(request)
    if request.repository is not None:
        bare = (request.repository / "objects").is_dir()
        yield request.repository if bare else request.repository / ".git"


def _trust_files(request: Request) -> Iterator[Path]:
    from ..provenance.trust.own_files import default_signers, named_signers
    from ..provenance.trust.policy import read_policy

    for path in (named_signers(), default_signers()):
        if path is not None:
            yield path
    if request.policy is not None:
        rules = read_policy(request.policy)
        yield from () if rules.signers is None else (rules.signers,)
        yield from (*rules.revoked, *rules.timestamp_authorities)


def _is_package(folder: Path) -> bool:
    """Tell whether a folder was signed as a whole: one more file in it is one too many."""
    return any(os.path.lexists(folder / name) for name in ("VERIFY.md", "model.sig"))
