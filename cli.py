"""The two commands, `reef-recover` and `reef-archive`: a table of sub-commands, loaded on use.

`--help` needs nothing but this table and click. Every failure leaves here: one sentence and a
remedy on stderr, or one JSON document on stdout, and the exit code of the error's class.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from itertools import takewhile
from typing import cast

import click

from . import __version__
from .errors import ExitCode, ReefError
from .records.names import printable

RECOVER = {
    "demo": "Rehearse an incident on this machine, start to proof.",
    "scan": "List the checkpoints that processes map or hold open.",
    "doctor": "Say which ways to the bytes are open, and what bars others.",
    "pin": "Hold every file of a process: its exit loses nothing.",
    "pins": "List what is pinned.",
    "unpin": "Let go of what is pinned.",
    "dump": "Save the files that a process still holds, with proof.",
    "compare": "Compare two checkpoints: bytes, then values as integers.",
    "validate": "Hold a checkpoint against its base, and read every byte.",
    "rebuild-config": "Rebuild adapter_config.json, each field with its source.",
    "repair": "Rebuild a damaged file: header, and pages of other dumps.",
    "identify": "Say which known checkpoint a file, or a process, holds.",
}
ARCHIVE = {
    "manifest": "Record what must be known to find checkpoints again.",
    "keygen": "Make a key pair, and the line by which others trust it.",
    "sign": "Sign a folder so that stock tools can check it.",
    "pack": "Make one evidence zip: manifest, sums, signatures.",
    "verify": "Check evidence: bytes, signatures, who signed, custody.",
    "gate": "Run pinned cells, compare bit by bit, judge the chain.",
    "doctor": "Find what would change evidence bytes in a repository.",
}
# Where the module is not called like the command.
_MODULES = {"reef-archive doctor": "archive_doctor"}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run, not when they are listed."""

    def __init__(self, name: str, table: Mapping[str, str], help_text: str) -> None:
        super().__init__(
            name,
            help=help_text,
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
            params=[_version_option()],
        )
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
        if cmd_name not in self._table:
            return None
        module = _MODULES.get(f"{self.name} {cmd_name}", cmd_name.replace("-", "_"))
        command = import_module(f".commands.{module}", __package__).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing them."""
        if self._table:
            with formatter.section("Commands"):
                formatter.write_dl(list(self._table.items()))


def _version_option() -> click.Option:
    return click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Show the version and the commit.",
    )


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        from .records.tool import tool_identity

        commit = tool_identity()["commit"]
        click.echo(f"reefkit {__version__}" + (f" ({commit[:12]})" if commit else ""))
        ctx.exit()


recover = LazyGroup(
    "reef-recover",
    RECOVER,
    """Recover model checkpoints from running processes after their files were deleted.

    \b
    In an incident, in this order:
      reef-recover scan                 what is still held, and by whom
      reef-recover pin --pid 4242       nothing can be lost from here on
      reef-recover dump --pid 4242      save it, read twice, with its proof
      reef-recover validate DIR --base BASE           is it whole?
      reef-recover rebuild-config DIR --recipe FILE   make it loadable
    """,
)
archive = LazyGroup(
    "reef-archive",
    ARCHIVE,
    """Sign, pack and verify the evidence of training runs.

    \b
    Once:      reef-archive keygen --out ~/.config/reefkit/lab --identity evidence@lab
    A run:     reef-archive pack RUN_DIR --out evidence.zip --key ~/.config/reefkit/lab --no-redact
    Reviewers: reef-archive verify evidence.zip --signers lab.allowed_signers
    """,
)


def recover_main() -> None:
    """Run `reef-recover`."""
    sys.exit(run(recover, sys.argv[1:]))


def archive_main() -> None:
    """Run `reef-archive`."""
    sys.exit(run(archive, sys.argv[1:]))


@dataclass
class Invocation:
    """What is known of a command line: whether it asked for JSON."""

    as_json: bool


def run(group: click.Group, arguments: Sequence[str]) -> int:
    """Run a command line and give its exit code; print what went wrong, as text or as JSON."""
    options = list(takewhile(lambda word: word != "--", arguments))
    asked = Invocation(as_json="--json" in options)  # until the command itself has parsed it
    if sys.stdout is not None:  # `>&-`
        cast("TextIOWrapper", sys.stdout).reconfigure(errors="backslashreplace")
    try:
        try:
            result: object = group.main(args=list(arguments), standalone_mode=False, obj=asked)
            return result if isinstance(result, int) else ExitCode.HOLDS
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.format_message())
            return ExitCode.CANNOT_JUDGE
        except BaseException:
            if "--debug" in options:
                import traceback

                traceback.print_exc()
            raise
    except click.ClickException as error:
        return _fail(asked, Failure(ExitCode.CANNOT_JUDGE, "Usage", _sentence(error), _help(error)))
    except (click.Abort, KeyboardInterrupt):
        return _fail(asked, _INTERRUPTION)
    except ReefError as error:
        return _fail(asked, Failure(error.exit_code, error.code, error.message, error.remedy))
    except BrokenPipeError:
        _close_stdout()  # the reader has gone: nothing more can be said there
        return ExitCode.DOES_NOT_HOLD
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, _DEBUG_HINT)
        return _fail(asked, Failure(ExitCode.CANNOT_JUDGE, "System", _system(error), remedy))
    except Exception as error:  # a fault of reefkit itself must still answer as documented
        text = f"This is a fault of reefkit: {type(error).__name__}: {printable(str(error))}"
        return _fail(asked, Failure(ExitCode.CANNOT_JUDGE, "Internal", text, _DEBUG_HINT))


@dataclass(frozen=True)
class Failure:
    """How a command failed, as it is printed."""

    exit_code: int
    code: str
    message: str
    remedy: str | None


_DEBUG_HINT = "Run it again with --debug to see where, and report that."
_NO_ROOM = "Make room where the output goes, or write it elsewhere; then run this again."
_REMEDIES = {
    errno.ENOSPC: _NO_ROOM,
    getattr(errno, "EDQUOT", errno.ENOSPC): _NO_ROOM,
    errno.ENOENT: "Check the name.",
    errno.ENOTDIR: "Check the name.",
    errno.EISDIR: "Name a file, not a folder.",
    errno.ENAMETOOLONG: "Check the name.",
    errno.EACCES: "Check who may read and write there, or run as its owner.",
    errno.EROFS: "Write where it can be written.",
}
_INTERRUPTION = Failure(
    130, "Interrupted", "Interrupted.", "Run the same command again: what was read is kept."
)


def _fail(asked: Invocation, failure: Failure) -> int:
    try:
        if asked.as_json and _print_json(failure):
            return int(failure.exit_code)
        click.echo(f"Error: {failure.message}", err=True)
        if failure.remedy:
            click.echo(f"  {failure.remedy}", err=True)
    except BrokenPipeError:
        _close_stdout()
    return int(failure.exit_code)


def _print_json(failure: Failure) -> bool:
    """Print the error document; False when stdout cannot be written, which may be the error."""
    import json

    document = {"schema": "reefkit.error/1", **vars(failure), "exit_code": int(failure.exit_code)}
    try:
        click.echo(json.dumps(document, sort_keys=True))
    except BrokenPipeError:
        raise
    except OSError:
        _close_stdout()
        return False
    return True


def _close_stdout() -> None:
    """Let what is buffered for stdout go nowhere, or the interpreter fails over it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: click.ClickException) -> str:
    return printable(error.format_message())


def _help(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"See `{context.command_path} --help`." if context else "See --help."


def _system(error: OSError) -> str:
    where = f": {printable(str(error.filename))}" if error.filename else ""
    return f"{error.strerror or error}{where}."


if __name__ == "__main__":
    recover_main()
