"""The two commands, `reef-recover` and `reef-archive`: a table of sub-commands, loaded on use.

`--help` needs nothing but this table and click. Every failure leaves here: one sentence and a
remedy on stderr, or one JSON document on stdout, and the exit code of the error's class.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module

import click

from . import __version__
from .errors import ExitCode, ReefError
from .records.names import printable

RECOVER = {
    "demo": "Rehearse an incident on this machine, from deletion to proof.",
    "scan": "List the checkpoints that processes still map or hold open.",
    "doctor": "Say which ways to the bytes are open, and how to open the others.",
    "pin": "Hold every file of a process, so that its exit loses nothing.",
    "pins": "List what is pinned.",
    "unpin": "Let go of what is pinned.",
    "dump": "Save the files that a process still holds, with proof.",
    "compare": "Compare two checkpoints: bytes, then values as integers.",
}
ARCHIVE: dict[str, str] = {}

_INTERRUPTED = 130


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
        command = import_module(f".commands.{cmd_name}", __package__).command
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
    """,
)
archive = LazyGroup(
    "reef-archive",
    ARCHIVE,
    """Archive, sign, redact, verify and publish the evidence of training runs.

    This release has no sub-command yet; reef-recover is complete on its own.
    """,
)


def recover_main() -> None:
    """Run `reef-recover`."""
    sys.exit(run(recover, sys.argv[1:]))


def archive_main() -> None:
    """Run `reef-archive`."""
    sys.exit(run(archive, sys.argv[1:]))


def run(group: click.Group, arguments: Sequence[str]) -> int:
    """Run a command line and give its exit code; print what went wrong, as text or as JSON."""
    as_json, debug = "--json" in arguments, "--debug" in arguments
    try:
        result: object = group.main(args=list(arguments), standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return ExitCode.CANNOT_JUDGE
    except click.ClickException as error:
        return _fail(as_json, ExitCode.CANNOT_JUDGE, "Usage", _sentence(error), _see_help(error))
    except (click.Abort, KeyboardInterrupt):
        return _fail(
            as_json,
            _INTERRUPTED,
            "Interrupted",
            "Interrupted.",
            "Run the same command again: what was read is kept.",
        )
    except ReefError as error:
        if debug:
            raise
        return _fail(as_json, error.exit_code, error.code, error.message, error.remedy)
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone: nothing more can be said there
        return ExitCode.DOES_NOT_HOLD
    except OSError as error:
        if debug:
            raise
        return _fail(as_json, ExitCode.CANNOT_JUDGE, "System", _system(error), _DEBUG_HINT)
    except Exception as error:  # a fault of reefkit itself must still answer as documented
        if debug:
            raise
        text = f"This is a fault of reefkit: {type(error).__name__}: {printable(str(error))}"
        return _fail(as_json, ExitCode.CANNOT_JUDGE, "Internal", text, _DEBUG_HINT)
    return result if isinstance(result, int) else ExitCode.HOLDS


_DEBUG_HINT = "Run it again with --debug to see where, and report that."


def _fail(as_json: bool, exit_code: int, code: str, message: str, remedy: str | None) -> int:
    if as_json:
        import json

        document = {
            "schema": "reefkit.error/1",
            "code": code,
            "exit_code": int(exit_code),
            "message": message,
            "remedy": remedy,
        }
        click.echo(json.dumps(document, sort_keys=True))
    else:
        click.echo(f"Error: {message}", err=True)
        if remedy:
            click.echo(f"  {remedy}", err=True)
    return int(exit_code)


def _sentence(error: click.ClickException) -> str:
    return printable(error.format_message())


def _see_help(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"See `{context.command_path} --help`." if context else "See --help."


def _system(error: OSError) -> str:
    where = f": {printable(str(error.filename))}" if error.filename else ""
    return f"{error.strerror or error}{where}."


if __name__ == "__main__":
    recover_main()
