"""`reef-archive verify`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import Unusable
from ..records.names import printable
from .frame import STDOUT, OutPath, Terminal, declare, human_size, with_options
from .verify_out import refuse_out, refuse_verified

if TYPE_CHECKING:
    from ..provenance.verification.result import Verification

_LARGE = 1 << 28
_FORMATS = ("text", "junit", "sarif", "github")


def _time(_context: click.Context, _option: click.Parameter, value: str | None) -> datetime | None:
    """Read ISO 8601; Python 3.10 does not know the Z. A naive time is local."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value[:-1] + "+00:00" if value[-1:] in "Zz" else value)
        return moment.astimezone(timezone.utc)
    except (ValueError, OverflowError, OSError):  # also for the first and the last days there are
        raise click.BadParameter("it must be a time like 2026-10-01T12:00:00Z.") from None


@declare(
    "verify",
    help_text="""Check evidence: every byte, every signature, who signed, and its custody.

    \b
    TARGET is one of
      a zip or a folder   every file must be listed, every listed one there
      a checksum file     the files that it lists, in any dialect; in a folder made by `sign`
                          or `pack` nothing else may be there, elsewhere that is only noted
      model.sig           an OMS signature, over the folder that it lies in
      custody.jsonl       a chain of custody, alone
      a result bundle     a JSON with artifacts and the SHA-256 of their originals
      REV:PATH            with --git: what that revision holds

    \b
    Whom you trust is said by your own files, never by what comes with the evidence:
      --signers, else REEFKIT_SIGNERS, else reefkit/allowed_signers in your config folder.
    Such a file, or a --policy, that lies inside the evidence is refused.

    \b
    Exit code 0: verified. 1: it is not what was signed, or not all could be checked.
    2: it could not be judged. 3: intact, but nobody you trust signed it.

    Nothing is fetched from a network.
    """,
    examples="""
reef-archive verify evidence.zip --signers lab.allowed_signers
reef-archive verify run-16/ --policy policy.toml --git . --json
reef-archive verify SHA256SUMS --integrity-only
reef-archive verify partial/ --require metrics.json --signers lab.allowed_signers
reef-archive verify v1.2:docs/evidence --git . --format junit --out verify.xml
""",
)
@with_options(
    click.argument("target"),
    click.option("--signers", metavar="FILE", type=click.Path(path_type=Path),
                 help="OpenSSH allowed_signers: whom you trust."),
    click.option("--policy", metavar="FILE", type=click.Path(path_type=Path),
                 help="How many of whom must have signed, and what must be there (TOML)."),
    click.option("--revoked", metavar="FILE", type=click.Path(path_type=Path), multiple=True,
                 help="Revoked keys: a KRL or public keys (repeatable)."),
    click.option("--identity", metavar="NAME", help="Who must be among the trusted signers."),
    click.option("--at", callback=_time, metavar="TIME",
                 help="Judge keys as of then (ISO 8601; local unless it ends in Z or an offset)."),
    click.option("--require", "required", metavar="NAME", multiple=True,
                 help="Check a part: NAME must be there, other listed files may be absent "
                 "(repeatable)."),
    click.option("--integrity-only", is_flag=True, help="Do not ask who signed."),
    click.option("--strict", is_flag=True, help="Refuse lists and zips in unusual dialects."),
    click.option("--git", "repository", metavar="REPO", type=click.Path(path_type=Path),
                 help="Look up the named commits there, and hash its blobs."),
    click.option("--format", "form", type=click.Choice(_FORMATS), default="text",
                 show_default=True, help="How to report."),
    click.option("--out", "-o", metavar="FILE", type=OutPath(stdout=True),
                 help="Where to write the report; nowhere in the evidence.  [default: stdout]"),
    click.option("--force", is_flag=True, help="Overwrite FILE."),
)  # fmt: skip
def command(
    terminal: Terminal,
    target: str,
    signers: Path | None,
    policy: Path | None,
    revoked: tuple[Path, ...],
    identity: str | None,
    at: datetime | None,
    required: tuple[str, ...],
    integrity_only: bool,
    strict: bool,
    repository: Path | None,
    form: str,
    out: Path | None,
    force: bool,
) -> int:
    """Print the verdict, and what it rests on; the exit code is the verdict's."""
    from ..provenance.verify import Request, verify

    out = None if out == STDOUT else out
    if terminal.as_json and form != "text" and out is None:
        raise Unusable(
            f"--json and --format {form} would both be printed.",
            remedy="Write one of them to a file with --out.",
        )
    if integrity_only and identity is not None:
        raise Unusable(
            "--integrity-only does not ask who signed, and --identity does.",
            remedy="Leave one of them out.",
        )
    with contextlib.ExitStack() as stack:
        request = Request(
            target,
            signers=signers,
            policy=policy,
            revoked=revoked,
            required=required,
            identity=identity,
            at=at,
            repository=repository,
            integrity_only=integrity_only,
            strict=strict,
            progress=_bar(stack, terminal),
        )
        if out is not None:
            refuse_out(out, request, force=force)
        result = verify(request)
    if out is not None:
        refuse_verified(out, result)
    _report(terminal, result, form, out, force=force)
    return int(result.exit_code)


def _bar(
    stack: contextlib.ExitStack, terminal: Terminal
) -> Callable[[int], Callable[[int], object] | None]:
    def start(size: int) -> Callable[[int], object] | None:
        if size < _LARGE:
            return None
        terminal.say(f"Hashing {human_size(size)}.")
        if not terminal.shows_progress:
            return None
        bar = click.progressbar(length=size, label="Hashing", file=sys.stderr)
        return stack.enter_context(bar).update

    return start


def _report(
    terminal: Terminal, result: Verification, form: str, out: Path | None, *, force: bool
) -> None:
    from ..provenance.verification.text import headline, to_text_report

    if out is not None:
        from ..records.new_file import new_file

        with new_file(out, force=force) as file:
            file.write(_written(result, form, every=True).encode())
    if terminal.as_json:
        terminal.document(result.to_json())
    elif out is not None or form == "text":
        report = headline(result) if terminal.quiet else to_text_report(result).rstrip("\n")
        terminal.product(report)
        if out is not None:
            terminal.say(f"Report: {printable(str(out))}")
    else:
        click.echo(_written(result, form, every=True), nl=False)
        terminal.say(headline(result))


def _written(result: Verification, form: str, *, every: bool) -> str:
    if form == "junit":
        from ..provenance.verification.junit import to_junit

        return to_junit(result)
    if form == "sarif":
        from ..provenance.verification.sarif import to_sarif

        return to_sarif(result)
    if form == "github":
        from ..provenance.verification.github import to_github

        return to_github(result)
    from ..provenance.verification.text import to_text_report

    return to_text_report(result, every=every)
