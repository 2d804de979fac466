"""The command line as a person and a program meet it: help, exit codes, errors, JSON, pipes."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from victims import Answer, lost, mapping, reef, running, unsafe_for_a_terminal, write_checkpoint

import reefkit
from reefkit import errors
from reefkit.cli import ARCHIVE, RECOVER, archive, recover, run

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="it takes capabilities: run as root")
ABSENT = 1 << 22  # no process has an id as high as the largest limit
WAITING = 'import sys; print("{}", flush=True); sys.stdin.read()'


def python(script: str, *arguments: str) -> Answer:
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, check=False, timeout=60
    )
    return Answer(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr))


HELP = """
import sys
from reefkit.cli import archive, recover, run
sys.exit(run({"recover": recover, "archive": archive}[sys.argv[1]], sys.argv[2:]))
"""


# --- help ----------------------------------------------------------------------------------------


COMMANDS = {"recover": (recover, RECOVER), "archive": (archive, ARCHIVE)}
NAMED = [(group, name) for group, (_, table) in COMMANDS.items() for name in table]


def help_of(group: str, *words: str) -> str:
    answer = python(HELP, group, *words, "--help")
    assert (answer.code, answer.err) == (0, "")
    return answer.out


def command_of(group: str, name: str) -> click.Command:
    commands, _ = COMMANDS[group]
    command = commands.get_command(click.Context(commands), name)
    assert command is not None
    return command


@pytest.mark.parametrize("group", COMMANDS)
def test_the_help_lists_every_command_with_what_it_does(group: str) -> None:
    commands = help_of(group).partition("Commands:\n")[2].split("\n\n")[0]
    listed = [line.split(maxsplit=1) for line in commands.splitlines() if line.strip()]
    assert listed == [[name, text] for name, text in COMMANDS[group][1].items()]


@pytest.mark.parametrize(("group", "name"), NAMED)
def test_the_help_of_each_command_loads_and_has_examples(group: str, name: str) -> None:
    text = help_of(group, name)
    assert text.startswith("Usage: ")
    assert f"  reef-{group} {name}" in text.partition("Examples:\n")[2]
    for option in ("--json", "--quiet", "--debug"):
        assert option in text


def examples(text: str, group: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line[line.index(f"reef-{group} ") :] for line in lines if f"reef-{group} " in line]


@pytest.mark.parametrize(("group", "name"), NAMED)
def test_every_example_is_a_command_line_that_is_understood(group: str, name: str) -> None:
    epilog = help_of(group, name).partition("Examples:\n")[2]
    lines = examples(epilog, group)
    assert len(lines) >= 2
    for line in lines:
        understood(group, line)


@pytest.mark.parametrize("group", COMMANDS)
def test_the_examples_of_the_whole_are_understood(group: str) -> None:
    lines = examples(help_of(group).partition("Options:")[0].partition("\n\n")[2], group)
    assert len(lines) >= 3
    for line in lines:
        understood(group, line)


def understood(group: str, line: str) -> None:
    _, name, *arguments = shlex.split(line.partition(" | ")[0].partition("  ")[0])
    command = command_of(group, name)
    command.make_parser(click.Context(command)).parse_args(arguments)


@pytest.mark.parametrize(("group", "name"), NAMED)
def test_every_option_says_what_it_does(group: str, name: str) -> None:
    for parameter in command_of(group, name).params:
        assert isinstance(parameter, click.Argument) or getattr(parameter, "help", None)


MODULES = """
import json, sys
from reefkit.cli import archive, recover, run
code = run({"recover": recover, "archive": archive}[sys.argv[1]], sys.argv[2:])
print(json.dumps({"code": int(code), "modules": sorted(sys.modules)}), file=sys.stderr)
"""


@pytest.mark.parametrize("group", ["recover", "archive"])
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_import_nothing_heavy(group: str, option: str) -> None:
    answer = python(MODULES, group, option)
    told = json.loads(answer.err)
    heavy = (
        "numpy",
        "rich",
        "torch",
        "safetensors",
        "ctypes",
        "reefkit.recover",
        "reefkit.commands",
    )
    assert told["code"] == 0
    assert [m for m in told["modules"] if m.startswith(heavy)] == []


@pytest.mark.parametrize("name", ["scan", "pin", "dump"])
def test_commands_of_an_incident_import_no_numpy(name: str) -> None:
    told = json.loads(python(MODULES, "recover", name, "--help").err)
    assert [m for m in told["modules"] if m.startswith(("numpy", "rich", "torch"))] == []


def test_the_version_is_the_packages() -> None:
    answer = reef("--version")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.split()[:2] == ["reefkit", reefkit.__version__]


def test_no_argument_at_all_shows_the_help_and_is_wrong_usage() -> None:
    answer = reef()
    assert (answer.code, answer.err) == (2, "")
    assert answer.out.startswith("Usage: ")


def test_a_command_that_is_not_there_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(archive, ["burn", "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["code"] == "Usage"


# --- exit codes ----------------------------------------------------------------------------------

CODES = {
    errors.Unusable: 2,
    errors.HeaderError: 2,
    errors.NotPermitted: 2,
    errors.ProcessGone: 2,
    errors.DestinationExists: 2,
    errors.NothingFound: 1,
    errors.DoesNotHold: 1,
    errors.Untrusted: 3,
    errors.Blocked: 4,
    errors.NotFinished: 5,
}


def failing(error: BaseException) -> click.Group:
    def fail() -> None:
        raise error

    options = [
        click.Option([name], is_flag=True, expose_value=False) for name in ("--json", "--debug")
    ]
    command = click.Command("fail", callback=fail, params=[*options])
    return click.Group("group", commands={"fail": command})


def test_every_error_has_its_exit_code() -> None:
    known = {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.ReefError)
    }
    assert known == {errors.ReefError, *CODES}


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_an_error_is_one_sentence_and_what_to_do(
    kind: type[errors.ReefError], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    group = failing(kind("This is so.", remedy="Do that."))
    assert run(group, ["fail"]) == code
    assert capsys.readouterr() == ("", "Error: This is so.\n  Do that.\n")
    assert run(group, ["fail", "--json"]) == code
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out) == {
        "schema": "reefkit.error/1",
        "code": kind.__name__,
        "exit_code": code,
        "message": "This is so.",
        "remedy": "Do that.",
    }


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (KeyboardInterrupt(), 130, "Interrupted."),
        (click.Abort(), 130, "Interrupted."),
        (
            OSError(28, "No space left on device", "/a\x1b\n"),
            2,
            r"No space left on device: /a\x1b\x0a.",
        ),
        (ZeroDivisionError("a\x1b\u202e"), 2, r"ZeroDivisionError: a\x1b\u202e"),
        (RecursionError(), 2, "RecursionError"),
        (MemoryError(), 2, "MemoryError"),
    ],
    ids=repr,
)
def test_no_failure_shows_a_traceback(
    error: BaseException, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(failing(error), ["fail"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert len(err.strip().splitlines()) == 2
    assert run(failing(error), ["fail", "--json"]) == code
    assert message in json.loads(capsys.readouterr().out)["message"]


FAULT = """
import sys
from reefkit.commands import scan
from reefkit.errors import NotPermitted
errors = {"fault": ZeroDivisionError("\\x1b[31m\\n\\u202e"), "refused": NotPermitted("no")}
def fault():
    raise errors[sys.argv[1]]
scan.all_pids = fault
from reefkit.cli import recover, run
sys.exit(run(recover, sys.argv[2:]))
"""


def test_a_fault_of_reefkit_is_one_harmless_sentence_and_says_how_to_see_more() -> None:
    answer = python(FAULT, "fault", "scan")
    assert (answer.code, answer.out) == (2, "")
    sentence, remedy = answer.err.splitlines()
    assert sentence.startswith("Error: This is a fault of reefkit: ZeroDivisionError: ")
    assert "--debug" in remedy
    assert unsafe_for_a_terminal(answer.err) == []


@pytest.mark.parametrize("kind", ["fault", "refused"])
def test_debug_shows_where_it_failed(kind: str) -> None:
    answer = python(FAULT, kind, "scan", "--debug")
    assert answer.code != 0
    assert "Traceback (most recent call last)" in answer.err
    assert "in fault" in answer.err


@pytest.mark.parametrize("kind", ["fault", "refused"])
def test_debug_changes_no_exit_code(kind: str) -> None:
    plain, debug = python(FAULT, kind, "scan"), python(FAULT, kind, "scan", "--debug")
    assert (plain.code, debug.code) == (2, 2)


def test_debug_with_json_is_still_one_document() -> None:
    answer = reef("scan", "--pid", ABSENT, "--json", "--debug")
    assert answer.json["code"] == "ProcessGone"


# --- JSON ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """What command lines can name: processes, files and folders in every state."""

    folder: Path
    idle: int
    live: int
    holder: int


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Generator[Place, None, None]:
    """A process that holds nothing, one with a live file, and one that lost two files."""
    folder = tmp_path_factory.mktemp("place")
    live = write_checkpoint(folder / "live.safetensors", seed=1)
    gone = [write_checkpoint(folder / "run" / f"{n}.safetensors", seed=n) for n in (2, 3)]
    (folder / "empty").mkdir()
    (folder / "file").write_text("text")
    with ExitStack() as stack:
        idle = stack.enter_context(running(WAITING))["process"].pid
        holds_live = stack.enter_context(mapping({"path": live.path, "kind": "private"}))["pid"]
        holder = stack.enter_context(lost(*gone))["pid"]
        yield Place(folder, idle, holds_live, holder)


def filled(place: Place, line: str) -> list[str]:
    return [
        word.format(
            folder=place.folder,
            idle=place.idle,
            live=place.live,
            holder=place.holder,
            absent=ABSENT,
        )
        for word in line.split()
    ]


FAILING = [
    (2, "Usage", ""),
    (2, "Usage", "nothing-like-this"),
    *[(2, "Usage", f"{name} --no-such-option") for name in RECOVER],
    *[(2, "Usage", f"{name} a b c") for name in RECOVER],
    *[(2, "Usage", f"scan --pid {pid}") for pid in ("abc", "0", "-1", "4194305", "9" * 30, "")],
    *[(2, "ProcessGone", f"{n} --pid {{absent}}") for n in ("scan", "dump", "pin", "doctor")],
    *[(2, "Unusable", name) for name in ("dump", "pin", "unpin")],
    (2, "Unusable", "scan --all --pid 1"),
    (2, "Unusable", "scan --cgroup"),
    (2, "Unusable", "dump --pid {holder} --expect-sha256 abc"),
    (2, "Usage", "dump --pid {holder} --source elsewhere"),
    (2, "Unusable", "dump --pid {holder} --out -"),
    (2, "Unusable", "dump --pid {holder} --out {folder}/file"),
    (1, "NothingFound", "dump --pid {idle}"),
    (1, "NothingFound", "dump --pid {live}"),
    (1, "NothingFound", "dump --pid {holder} --match nothing"),
    (1, "NothingFound", "pin --pid {idle}"),
    (1, "NothingFound", "pin --pid {holder} --match nothing"),
    (2, "Usage", "pin --pid {holder} --timeout 0"),
    (1, "NothingFound", "unpin --pid {absent}"),
    (2, "Unusable", "unpin --all --pid 1"),
    (2, "Usage", "compare"),
    (2, "Usage", "compare {folder}/live.safetensors"),
    (2, "Usage", "compare a b --level c"),
    (2, "Unusable", "compare {folder}/live.safetensors /nowhere"),
    (2, "Unusable", "compare /nowhere /nowhere"),
    (2, "Unusable", "compare {folder}/empty {folder}/live.safetensors"),
    (2, "ProcessGone", "compare {absent}:* {folder}/live.safetensors"),
    (1, "NothingFound", "compare {holder}:nothing {folder}/live.safetensors"),
    (2, "Unusable", "compare {holder}:* {folder}/live.safetensors"),
    (2, "Usage", "demo --dir /nowhere"),
]


@root_only
@pytest.mark.parametrize(("code", "kind", "line"), FAILING, ids=[row[2] for row in FAILING])
def test_json_is_one_document_on_failure(
    place: Place, code: int, kind: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answered = run(recover, [*filled(place, line), "--json"])
    out = capsys.readouterr().out
    document = json.loads(out)  # all of it
    assert (answered, document["code"], document["exit_code"]) == (code, kind, code)
    assert document["schema"] == "reefkit.error/1"
    assert len(document["message"].splitlines()) == 1
    assert document["remedy"] is None or document["remedy"].strip()
    assert unsafe_for_a_terminal(out) == []


STORY = [
    (0, "scan", "scan --pid {holder}"),
    (0, "scan", "scan --all --quiet"),
    (1, "scan", "scan --pid {idle}"),
    (1, "scan", "scan --name reefkit-no-such-thing"),
    (0, "doctor", "doctor --pid {holder}"),
    (0, "doctor", "doctor"),
    (0, "pin", "pin --pid {holder}"),
    (0, "pins", "pins"),
    (0, "recovery", "dump --pid {holder} --out {folder}/out"),
    (0, "pins", "unpin --pid {holder}"),
    (2, "error", "dump --pid {holder} --out {folder}/out"),
    (0, "recovery", "dump --pid {holder} --out {folder}/out --force"),
    (1, "recovery", "dump --pid {holder} --out {folder}/x --expect-sha256 " + "0" * 64),
    (0, "comparison", "compare {folder}/out {folder}/out"),
    (1, "comparison", "compare {folder}/live.safetensors {holder}:*2.safetensors"),
]


@root_only
def test_json_is_one_document_all_through_an_incident(place: Place) -> None:
    try:
        for code, schema, line in STORY:
            answer = reef(*filled(place, line), "--json")
            told = (answer.code, answer.json["schema"])
            assert told == (code, f"reefkit.{schema}/1"), (line, answer)
            assert unsafe_for_a_terminal(answer.out) == []
    finally:
        reef("unpin", "--pid", place.holder)


@root_only
def test_json_is_one_document_of_a_rehearsal() -> None:
    answer = reef("demo", "--json")
    assert (answer.code, answer.json["schema"], answer.json["ok"]) == (0, "reefkit.demo/1", True)


@pytest.mark.parametrize(
    "line", ["compare /nowhere -- --json", "scan --pid {absent} --name --json"]
)
def test_json_as_an_operand_or_a_value_is_no_option(place: Place, line: str) -> None:
    answer = reef(*filled(place, line))
    assert (answer.code, answer.out) == (2, "")


# --- pipes and odd terminals ---------------------------------------------------------------------

TO_A_CLOSED_PIPE = [
    "--help",
    "--version",
    "scan --help",
    "scan --pid {holder}",
    "scan --pid {holder} --json",
    "scan",
    "doctor --json",
    "pins --json",
    "",
    "scan --pid {absent} --json",
    "dump --json",
    "scan --no-such-option --json",
]


@root_only
@pytest.mark.parametrize("line", TO_A_CLOSED_PIPE)
def test_a_reader_that_has_gone_causes_no_traceback(place: Place, line: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "reefkit.cli", *filled(place, line)]
    with os.fdopen(writer, "wb") as stdout:
        done = subprocess.run(
            command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
        )
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode in (0, 1, 2)


@root_only
def test_head_may_close_the_pipe(place: Place) -> None:
    command = f"{sys.executable} -m reefkit.cli scan | head -0"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@root_only
@pytest.mark.parametrize(
    "line",
    [
        "--help",
        "scan --pid {holder}",
        "scan --pid {holder} --json",
    ],
)
def test_a_full_disk_behind_stdout_is_one_sentence(place: Place, line: str) -> None:
    command = [sys.executable, "-m", "reefkit.cli", *filled(place, line)]
    with open("/dev/full", "wb") as stdout:
        done = subprocess.run(
            command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith("Error: No space left on device.")
    assert "Exception ignored" not in done.stderr


@root_only
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("command", ["scan", "dump", "dump --help"])
def test_a_terminal_of_any_encoding_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, command: str
) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    checkpoint = write_checkpoint(tmp_path / "run" / "\u6a21\u578b.safetensors")
    with lost(checkpoint) as victim:
        arguments: list[Any] = [*command.split(), "--pid", victim["pid"]]
        arguments += ["--out", tmp_path / "out"] if command == "dump" else []
        answer = reef(*arguments)
    assert answer.code == 0, answer.err
    assert "fault of reefkit" not in answer.err


@root_only
@pytest.mark.parametrize("line", ["--version", "scan --pid {holder}", "scan --pid {absent} --json"])
@pytest.mark.parametrize("closed", ["1", "2"], ids=["stdout", "stderr"])
def test_a_closed_stream_causes_no_traceback(place: Place, line: str, closed: str) -> None:
    command = shlex.join([sys.executable, "-m", "reefkit.cli", *filled(place, line)])
    done = subprocess.run(
        ["sh", "-c", f"{command} {closed}>&-"], capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
