"""`reef-recover dump`."""

from __future__ import annotations

import click

from ..errors import Unusable
from ..recover.routes import Wanted
from .frame import Terminal, declare, pid_option, tree_options, with_options


@declare(
    "dump",
    help_text="""Save the files that a process still holds, with proof.

    Saves what is deleted or replaced; with --match, whatever fits the glob, live or not. Every
    byte is read twice (the page cache, then the storage where the filesystem has O_DIRECT),
    compared, and hashed; OUT/recovery.json says what was read and what that proves. Nothing is
    written to the process, and it is never stopped.

    Verdicts: FILE_EXACT, REBUILT_VERIFIED and MEMORY_CLEAN are byte-exact (exit code 0); all
    others are not, say why, and exit with 1. An interrupted or partial dump goes on when the
    same command runs again. After the process ended, dump works from what was pinned.

    With --base, --recipe or --set, what was saved is validated and an adapter's lost
    adapter_config.json is rebuilt beside it, as `validate` and `rebuild-config` do; the exit code
    is then the worst of the three.""",
    examples="""
reef-recover dump --pid 4242
reef-recover dump --pid 4242 --match '*step_8/*' --out rescued --expect-sha256 9f86d0…
reef-recover dump --pid 4242 --out - | ssh backup 'cat > adapter_model.safetensors'
reef-recover dump --pid 4242 --source memory    # what the process sees, and what it changed
reef-recover dump --pid 4242 --base Qwen/Qwen3-8B --recipe serve.yaml    # the incident in one line
""",
)
@with_options(
    pid_option,
    click.option(
        "--out", "-o", metavar="PATH", help="A folder, or - for stdout.  [default: recovered-PID]"
    ),
    click.option("--match", metavar="GLOB", help="Only files whose path, its end, or name fits."),
    click.option("--expect-sha256", metavar="HEX", help="The digest that the file must have."),
    click.option(
        "--source",
        type=click.Choice([w.value for w in Wanted]),
        default=Wanted.AUTO.value,
        show_default=True,
        help="Where to read: the file, the process's memory, or the best that is open.",
    ),
    click.option(
        "--against-memory",
        is_flag=True,
        help="Hold the file against the process's memory, too (makes its pages resident).",
    ),
    click.option("--any-format", is_flag=True, help="Every deleted file, not only safetensors."),
    *tree_options,
    click.option(
        "--base", metavar="BASE", help="The base model to validate against: see `validate`."
    ),
    click.option(
        "--recipe",
        "recipes",
        multiple=True,
        metavar="FILE",
        help="What the run was made with: see `rebuild-config`.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="State a field of the configuration.",
    ),
    click.option("--force", is_flag=True, help="Overwrite what is at the destination."),
)
def command(
    terminal: Terminal,
    pid: int | None,
    out: str | None,
    match: str | None,
    expect_sha256: str | None,
    source: str,
    against_memory: bool,
    any_format: bool,
    children: bool,
    cgroup: bool,
    base: str | None,
    recipes: tuple[str, ...],
    settings: tuple[str, ...],
    force: bool,
) -> int:
    """Choose the files, save them, and say what that proves."""
    if pid is None:
        raise Unusable("dump needs --pid.", remedy="`reef-recover scan` lists what is held.")
    from .dump_run import Options, run

    return run(
        terminal,
        Options(
            pid=pid,
            out=out,
            match=match,
            expect_sha256=expect_sha256,
            wanted=Wanted(source),
            against_memory=against_memory,
            any_format=any_format,
            children=children,
            cgroup=cgroup,
            force=force,
            base=base,
            recipes=recipes,
            settings=settings,
        ),
    )
