"""What every command has: `--json`, `--quiet`, `--debug`, and a terminal to speak to."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import click

from ..records.documents import to_text
from ..records.names import printable


class Terminal:
    """Where a command speaks: its product on stdout, everything said about it on stderr."""

    def __init__(self, *, as_json: bool, quiet: bool) -> None:
        self.as_json = as_json
        self.quiet = quiet

    def document(self, document: Mapping[str, object]) -> None:
        """Print the command's JSON document, when JSON was asked for."""
        if self.as_json:
            click.echo(to_text(document), nl=False)

    def product(self, text: str) -> None:
        """Print a line of what was asked for; with --json the document says it instead."""
        if not self.as_json:
            click.echo(text)

    def say(self, text: str) -> None:
        """Print advice or news on stderr."""
        if not self.quiet:
            click.echo(text, err=True)

    def warn(self, text: str) -> None:
        """Print on stderr what must not be missed, also when quiet."""
        click.echo(text, err=True)

    @property
    def shows_progress(self) -> bool:
        """Tell whether a progress bar may be drawn."""
        return not self.quiet and sys.stderr.isatty()


def declare(
    name: str, *, help_text: str, examples: str
) -> Callable[[Callable[..., int]], click.Command]:
    """Make a click command of a function that takes a Terminal first and gives the exit code."""

    def wrap(function: Callable[..., int]) -> click.Command:
        @functools.wraps(function)
        def call(*, as_json: bool, quiet: bool, debug: bool, **options: object) -> int:
            click.get_current_context().obj.as_json = as_json
            return int(function(Terminal(as_json=as_json, quiet=quiet), **options))

        for option in (
            click.option("--debug", is_flag=True, help="On an error, show the traceback."),
            click.option("--quiet", is_flag=True, help="Say nothing but errors and results."),
            click.option(
                "--json", "as_json", is_flag=True, help="Print one JSON document on stdout."
            ),
        ):
            call = option(call)
        epilog = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in examples.strip().split("\n"))
        return click.command(name, cls=_Command, help=help_text, epilog=epilog)(call)

    return wrap


class _Command(click.Command):
    """A command that takes no empty values: those are of variables that were not set."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        given = self.make_parser(ctx).parse_args(list(args))[0]
        rest = super().parse_args(ctx, args)
        for parameter in self.params:
            value: object = given.get(parameter.name or "")
            if value == "" or (isinstance(value, (list, tuple)) and "" in value):
                raise click.BadParameter("it is empty; is a variable not set?", ctx, parameter)
        return rest


STDOUT = Path("-")


class OutPath(click.Path):
    """A file to be written; `-` is stdout where the command can write there, and else refused."""

    def __init__(self, *, stdout: bool = False) -> None:
        super().__init__(path_type=Path)
        self._stdout = stdout

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Path:
        """Give the path; a file that is called `-` can be named as `./-`."""
        path = Path(value)
        if value == "-":
            if not self._stdout:
                self.fail("`-` is no file here: it is not printed. Name a file.", param, ctx)
            return STDOUT
        return path.absolute() if path == STDOUT else path


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Align columns; the last is never cut. Cells are made safe for a terminal."""
    cells = [list(headings), *([printable(cell) for cell in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(headings) - 1)]
    return "\n".join(
        "  ".join([*(cell.ljust(w) for cell, w in zip(row, widths, strict=False)), row[-1]])
        for row in cells
    )


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Give a number with its noun."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def human_size(count: int | None) -> str:
    """Show a number of bytes with a binary unit."""
    if count is None:
        return "?"
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def shortened(text: str, width: int) -> str:
    """Cut a text that is only there to be recognised."""
    return text if len(text) <= width else text[: width - 1] + "…"


pid_option = click.option(
    "--pid", type=click.IntRange(1, 1 << 22), metavar="PID", help="The process to look at."
)
tree_options: tuple[Callable[[Callable[..., int]], Callable[..., int]], ...] = (
    click.option(
        "--children/--no-children",
        default=True,
        help="Look into its descendants, too: servers load weights in workers.  [default: on]",
    ),
    click.option("--cgroup", is_flag=True, help="Look into everything in its control group."),
)


def with_options(
    *options: Callable[[Callable[..., int]], Callable[..., int]],
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Put several options on a command, in the order given."""

    def wrap(function: Callable[..., int]) -> Callable[..., int]:
        for option in reversed(options):
            function = option(function)
        return function

    return wrap
