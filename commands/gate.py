"""`reef-archive gate`."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..errors import Unusable
from ..records.names import printable
from .frame import Terminal, declare, with_options

if TYPE_CHECKING:
    from ..provenance.gate.model import ChainReport
    from ..provenance.gate.run import Plan

_POLL = 0.2
_JUNIT = 256 << 20
_TORCHRUN_WAIT = 600


@declare(
    "gate",
    help_text="""Run pinned cells, compare what they write bit by bit, judge the chain.

    \b
    TARGET is a manifest (JSON or TOML), whose cells are run into --out, or what such a run left:
    a folder or a zip, which is judged anew, by the artifacts and not by what the reports say.

    \b
    Each rank runs its own command; RANK and WORLD_SIZE are read as torchrun sets them. It writes
    rank-N.json, and the last one chain.json. What an interrupted run ended is kept, if manifest,
    commit, topology and environment are the same.

    \b
    Exit code 0: all cells passed on all ranks. 1: something differs, is missing, was skipped or
    could not run. 2: it cannot be judged: unusable input, a topology that the manifest does not
    accept, a predecessor that did not pass.
    """,
    examples="""
reef-archive gate gate.toml --out runs/moe --tp 4 --world-size 4 --rank 0
torchrun --nproc-per-node 4 --no-python reef-archive gate gate.toml --out runs/moe --tp 4
reef-archive gate runs/moe
reef-archive gate runs/moe --against evidence.zip --json
""",
)
@with_options(
    click.argument("target", type=click.Path(path_type=Path)),
    click.option("-o", "--out", metavar="DIR", type=click.Path(path_type=Path),
                 help="Where the run goes; of what is judged, the file for the chain report."),
    click.option("--rank", type=click.IntRange(0), metavar="N", help="This rank; else RANK, or 0."),
    click.option("--world-size", type=click.IntRange(1), metavar="N",
                 help="The number of ranks; else WORLD_SIZE, or 1."),
    click.option("--tp", type=click.IntRange(1), default=1, metavar="N", help="Tensor parallel."),
    click.option("--pp", type=click.IntRange(1), default=1, metavar="N", help="Pipeline parallel."),
    click.option("--ep", type=click.IntRange(1), default=1, metavar="N", help="Expert parallel."),
    click.option("--etp", type=click.IntRange(1), default=1, metavar="N",
                 help="Tensor parallel within experts."),
    click.option("--cp", type=click.IntRange(1), default=1, metavar="N", help="Context parallel."),
    click.option("--quick", is_flag=True,
                 help="Run only cells marked as quick; INCOMPLETE at best, never a pass."),
    click.option("--predecessor", metavar="DIR", type=click.Path(path_type=Path),
                 help="Where the stage before lies, if not where the manifest says."),
    click.option("--against", metavar="PACKAGE", type=click.Path(path_type=Path),
                 help="An earlier run whose artifacts must be bitwise identical."),
    click.option("--junit", metavar="FILE", multiple=True, type=click.Path(path_type=Path),
                 help="JUnit results that must have passed as well, none skipped (repeatable)."),
    click.option("--test", "tests", metavar="ID", multiple=True,
                 help="A test that must be among those results and have passed (repeatable)."),
    click.option("--merge", metavar="DIR", multiple=True, type=click.Path(path_type=Path),
                 help="The same gate, run in another Python environment (repeatable)."),
    click.option("--manifest", metavar="FILE", type=click.Path(path_type=Path),
                 help="Where the manifest of what is judged, and its references, lie now."),
    click.option("--repository", metavar="DIR", type=click.Path(path_type=Path),
                 help="The code that is measured, if not the repository of the manifest."),
    click.option("--wait", type=click.IntRange(0), metavar="S",
                 help="Wait up to S seconds for other ranks (600 under torchrun, else 0)."),
    click.option("--force", is_flag=True, help="Run anew what has been run into DIR already."),
)  # fmt: skip
def command(
    terminal: Terminal,
    target: Path,
    out: Path | None,
    rank: int | None,
    world_size: int | None,
    quick: bool,
    predecessor: Path | None,
    against: Path | None,
    junit: tuple[Path, ...],
    tests: tuple[str, ...],
    merge: tuple[Path, ...],
    manifest: Path | None,
    repository: Path | None,
    wait: int | None,
    force: bool,
    **sizes: int,
) -> int:
    """Run or judge, and print the chain."""
    options = _Options(
        target, out, predecessor, against, junit, tests, merge, manifest, repository, wait, force
    )
    if tests and not junit:
        raise Unusable("--test names tests of --junit results.", remedy="Add --junit FILE.")
    if _is_manifest(target, out):
        return options.run(terminal, rank, world_size, quick, sizes)
    given = [name for name, size in sizes.items() if size != 1]
    if quick or given or rank is not None or world_size is not None or repository is not None:
        raise Unusable(
            "Ranks, sizes, --quick and --repository are for running a manifest.",
            remedy="Leave them out to judge a run, or name its manifest to run it.",
        )
    return options.judge(terminal)


def _is_manifest(target: Path, out: Path | None) -> bool:
    """Tell a manifest from a report: by what it says where it is not to be run anyway."""
    suffix = target.suffix.lower()
    if suffix not in {".json", ".toml"} or not target.is_file():
        return False
    if suffix == ".toml" or out is not None:
        return True
    from ..provenance.gate.manifest import SCHEMA
    from ..provenance.gate.manifest_file import read_bytes
    from ..provenance.gate.report import LIMIT
    from ..records.strict_json import parse_object

    return parse_object(read_bytes(target, LIMIT), printable(target.name)).get("schema") == SCHEMA


@dataclass(frozen=True)
class _Options:
    target: Path
    out: Path | None
    predecessor: Path | None
    against: Path | None
    junit: tuple[Path, ...]
    tests: tuple[str, ...]
    merge: tuple[Path, ...]
    manifest: Path | None
    repository: Path | None
    wait: int | None
    force: bool

    def run(
        self,
        terminal: Terminal,
        rank: int | None,
        world_size: int | None,
        quick: bool,
        sizes: dict[str, int],
    ) -> int:
        from ..provenance.gate.kept import note_on_kept
        from ..provenance.gate.manifest import load_manifest
        from ..provenance.gate.model import Topology
        from ..provenance.gate.run import Plan, run_cells
        from ..provenance.gate.topology import rank_and_world

        manifest = load_manifest(self.target)
        if self.out is None or self.manifest is not None:
            raise Unusable(
                "A manifest is run into a folder, and none is named."
                if self.out is None
                else "--manifest is for judging a run.",
                remedy="Give --out DIR alone.",
            )
        self._check_out((self.target,))
        rank, world_size = rank_and_world(rank, world_size, os.environ)
        topology = Topology(**sizes, world_size=world_size)
        plan = Plan(
            manifest=manifest,
            out=self.out,
            topology=topology,
            rank=rank,
            repository=self.repository,
            argv=tuple(sys.argv),
            quick=quick,
            predecessor=self.predecessor,
            force=self.force,
            news=terminal.say,
        )
        note = note_on_kept(run_cells(plan))
        chain = self._complete(plan, terminal)
        if note is not None:
            chain = replace(chain, notes=(note, *chain.notes))
        return self._answer(terminal, chain, self.out)

    def _check_out(self, more: tuple[Path, ...]) -> None:
        """Refuse an --out that is one of the inputs, or lies in one."""
        from ..provenance.gate.out_folder import refuse_inputs

        if self.out is not None:
            given = (self.against, self.predecessor, self.manifest)
            inputs = (*more, *self.merge, *self.junit, *(each for each in given if each))
            refuse_inputs(self.out, inputs)

    def _complete(self, plan: Plan, terminal: Terminal) -> ChainReport:
        """Wait for the other ranks where that was asked for, then judge what is there."""
        from ..provenance.gate.run import complete
        from ..provenance.gate.verdict import judge

        wait = self.wait
        if wait is None:
            wait = _TORCHRUN_WAIT if "TORCHELASTIC_RUN_ID" in os.environ else 0
        end = time.monotonic() + wait
        while (chain := complete(plan)) is None and time.monotonic() < end:
            time.sleep(_POLL)
        return chain or judge(plan.out, manifest=self.target, predecessor=self.predecessor)

    def judge(self, terminal: Terminal) -> int:
        from ..provenance.gate.claims import judge_claim
        from ..provenance.gate.verdict import judge

        self._check_out((self.target,))
        if self.target.suffix.lower() == ".json" and self.target.is_file():
            chain = judge_claim(self.target)
        else:
            chain = judge(self.target, manifest=self.manifest, predecessor=self.predecessor)
        return self._answer(terminal, chain, self.target)

    def _answer(self, terminal: Terminal, chain: ChainReport, run: Path) -> int:
        more: dict[str, object] = {}
        lines: list[str] = []
        passed_tests = 0
        manifest = self.manifest if run == self.target else self.target
        if self.merge:
            from ..provenance.gate.environment_names import environment_names
            from ..provenance.gate.merge import judge_environment, merge

            folders = [run, *self.merge]
            merged = merge(
                [
                    judge_environment(name, folder, manifest=manifest)
                    for name, folder in zip(environment_names(folders), folders, strict=True)
                ]
            )
            chain = merged.chain
            more["environments"] = merged.to_json()["environments"]
            more["passed_in"] = {each: list(names) for each, names in merged.sources.items()}
        if self.junit:
            from ..provenance.gate.junit import join, read_junit
            from ..provenance.gate.manifest_file import read_bytes
            from ..provenance.gate.with_tests import with_tests

            found = [
                read_junit(read_bytes(path, _JUNIT), printable(path.name)) for path in self.junit
            ]
            tests = join(found, self.tests)
            chain = with_tests(chain, tests)
            more["junit"] = tests.to_json()
            passed_tests = tests.counts["passed"]
        if self.against is not None:
            from ..provenance.gate.against import compare_runs, joined

            against = compare_runs(run, self.against, manifest=manifest)
            chain = joined(chain, against)
            more["against"] = against.to_json()
            lines = [against.sentence] if against.holds else []
        document = {**chain.to_json(), **more}
        if self.out is not None and run == self.target:
            from ..provenance.gate.out_folder import write_document

            write_document(self.out, document, force=self.force)
        terminal.document(document)
        if not terminal.as_json:
            from .gate_report import report

            terminal.product(report(chain, lines, passed_tests))
        return int(chain.exit_code)
