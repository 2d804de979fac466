"""`reef-recover demo`."""

from __future__ import annotations

import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import click

from ..errors import DoesNotHold, ExitCode
from ..recover.rehearsal import has_torch, start_server, write_adapter, write_base_and_recipe
from .frame import Terminal, declare, with_options

SCHEMA = "reefkit.demo/1"
_IDENTITY = "evidence@lab"
_COMMAND = {
    "reef-recover": "from reefkit.cli import recover_main; recover_main()",
    "reef-archive": "from reefkit.cli import archive_main; archive_main()",
}
_FLIPPED = 12_345_678
_ADAPTER = Path("runs", "qwen3-8b-grpo", "step_8", "adapter_model.safetensors")


@declare(
    "demo",
    help_text="""Rehearse an incident on this machine, from deletion to proof.

    Makes a Qwen3-8B-shaped LoRA adapter (504 tensors, 174 MB, random values), starts a process
    that maps it as an inference server does, deletes the directory, and gets the bytes back with
    the commands that a person would type; each is shown. Then every tensor is held against the
    base model, and the lost adapter_config.json is rebuilt from the run's recipe. Needs neither
    torch nor a network, 800 MB of disk and a few seconds, and leaves nothing behind.

    At last the evidence is packed, signed, checked with sha256sum and ssh-keygen where they are
    there, and a copy in which one bit is flipped is refused, with the reason.""",
    examples="""
reef-recover demo
reef-recover demo --dir /scratch    # where to put the files meanwhile
""",
)
@with_options(
    click.option(
        "--dir",
        "directory",
        type=click.Path(exists=True, file_okay=False),
        help="Where the files go meanwhile.  [default: the system's temporary folder]",
    )
)
def command(terminal: Terminal, directory: str | None) -> int:
    """Play the story and judge its end."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="reefkit-demo-", dir=directory) as folder:
        story = _Story(terminal, Path(folder))
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            digest = story.play()
        finally:
            story.clean_up()
    seconds = time.monotonic() - began
    document = {
        "schema": SCHEMA,
        "ok": True,
        "seconds": round(seconds, 3),
        "sha256": digest,
        "steps": story.steps,
    }
    terminal.document(document)
    story.tell(
        f"\nRecovered byte for byte, fit to load, signed: sha256 {digest}; {seconds:.1f} s in all."
    )
    return ExitCode.HOLDS


def _flip_a_bit(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(_FLIPPED)
        (value,) = file.read(1)
        file.seek(_FLIPPED)
        file.write(bytes([value ^ 8]))


@dataclass
class _Story:
    """The rehearsal: what runs, and what has to be ended whatever happens."""

    terminal: Terminal
    folder: Path
    steps: list[dict[str, object]] = field(default_factory=list["dict[str, object]"])
    _server: subprocess.Popen[str] | None = None
    _pinned: bool = False

    def play(self) -> str:
        """Lose the adapter and get it back; give its sha256. Raises DoesNotHold."""
        path = self.folder / _ADAPTER
        path.parent.mkdir(parents=True)
        self.tell("# A trainer writes step 8: a Qwen3-8B LoRA adapter, rank 32, 504 tensors.")
        digest = write_adapter(path)
        loader = "safetensors.torch.load_file" if has_torch() else "a private mapping"
        self.tell(f"# A server loads it ({loader}).")
        self._server = start_server(path)
        pid = str(self._server.pid)
        self.tell("# A follow-on job deletes the work directory.")
        self.tell(f"$ rm -rf {shlex.quote(str(self.folder / 'runs'))}")
        shutil.rmtree(self.folder / "runs")

        self.run("scan", "--pid", pid)
        self._pinned = True
        pinned = self.run("pin", "--pid", pid, may_be_refused=True) == ExitCode.HOLDS
        self._pinned = pinned
        first, second = str(self.folder / "first"), str(self.folder / "second")
        self.run("dump", "--pid", pid, "--out", first)
        if pinned:
            self.tell("# The server is killed. What is pinned stays.")
            self.end_server()
        self.run("dump", "--pid", pid, "--out", second, "--expect-sha256", digest)
        self.end_server()
        self.run("compare", first, second)
        self.tell("# Is it whole, and does it fit its base? And adapter_config.json, which nobody")
        self.tell("# mapped, went with its directory: what is proven, and who states the rest?")
        base, recipe = (str(path) for path in write_base_and_recipe(self.folder))
        self.run("validate", first, "--base", base)
        self.run("rebuild-config", first, "--recipe", recipe, "--base", base)
        if pinned:
            self.run("unpin", "--pid", pid)
            self._pinned = False
        shutil.rmtree(second)
        self.publish(first)
        return digest

    def publish(self, recovered: str) -> None:
        """Pack and sign what was recovered, and check it as a stranger would."""
        key, package = str(self.folder / "lab"), str(self.folder / "evidence.zip")
        signers = f"{key}.allowed_signers"
        self.tell("# Others shall be able to check it: pack the evidence, and sign it.")
        self.run("keygen", "--out", key, "--identity", _IDENTITY, group="reef-archive")
        packing = ("pack", recovered, "--out", package, "--key", key, "--no-redact")
        self.run(*packing, group="reef-archive")
        self.run("verify", package, "--signers", signers, group="reef-archive")
        self.tell(
            "# A reviewer without reefkit unpacks it, and checks it with what is there anyway."
        )
        unpacked = self.folder / "unpacked"
        self.tell(f"$ unzip {shlex.quote(package)} -d {shlex.quote(str(unpacked))}")
        with zipfile.ZipFile(package) as archive:
            archive.extractall(unpacked)
        self.stock("sha256sum", "--strict", "--quiet", "-c", "SHA256SUMS", folder=unpacked)
        named = ("-f", signers, "-I", _IDENTITY, "-n", "reefkit-sums", "-s", "SHA256SUMS.sig")
        self.stock("ssh-keygen", "-Y", "verify", *named, folder=unpacked, stdin="SHA256SUMS")
        self.tell("# And somebody whose disk, or whose hand, flipped one bit of a tensor?")
        _flip_a_bit(next(unpacked.rglob(_ADAPTER.name)))
        tampered = ("verify", str(unpacked), "--signers", signers)
        self.run(*tampered, group="reef-archive", expected=ExitCode.DOES_NOT_HOLD)

    def run(
        self,
        *arguments: str,
        group: str = "reef-recover",
        expected: int = ExitCode.HOLDS,
        may_be_refused: bool = False,
    ) -> int:
        """Run one command as a person would and show it. Raises DoesNotHold when it fails."""
        shown = shlex.join([group, *arguments])
        self.tell(f"\n$ {shown}")
        quiet = ["--quiet"] if self.terminal.quiet else []
        done = subprocess.run(
            [sys.executable, "-c", _COMMAND[group], *arguments, *quiet],
            stdout=self._stdout(),
            check=False,
        )
        self.steps.append({"command": shown, "exit_code": done.returncode})
        if may_be_refused and done.returncode == ExitCode.CANNOT_JUDGE:
            self.tell("# Without that right the file is read from the server's memory instead.")
        elif done.returncode != expected:
            raise DoesNotHold(f"The rehearsal failed at `{shown}` (exit code {done.returncode}).")
        return done.returncode

    def stock(self, *words: str, folder: Path, stdin: str | None = None) -> None:
        """Run a tool that is no part of this project, where there is one. Raises DoesNotHold."""
        shown = shlex.join(words) + (f" < {stdin}" if stdin else "")
        self.tell(f"\n$ {shown}")
        if shutil.which(words[0]) is None:
            self.tell(f"# {words[0]} is not installed here: not run.")
            return
        done = subprocess.run(
            words,
            cwd=folder,
            input=None if stdin is None else (folder / stdin).read_bytes(),
            stdout=self._stdout(),
            check=False,
        )
        self.steps.append({"command": shown, "exit_code": done.returncode})
        if done.returncode:
            raise DoesNotHold(f"The rehearsal failed at `{shown}` (exit code {done.returncode}).")

    def _stdout(self) -> TextIO | int | None:
        if self.terminal.quiet:
            return subprocess.DEVNULL
        return sys.stderr if self.terminal.as_json else None

    def tell(self, text: str) -> None:
        """Print a line of the story; on stderr where stdout is for JSON."""
        if not self.terminal.quiet:
            click.echo(text, err=self.terminal.as_json)
            sys.stdout.flush()

    def end_server(self) -> None:
        """End the server that this rehearsal started."""
        if self._server is not None:
            self._server.kill()
            self._server.wait()
            if self._server.stdout is not None:
                self._server.stdout.close()

    def clean_up(self) -> None:
        """Leave nothing behind."""
        self.end_server()
        if self._pinned and self._server is not None:
            self.run("unpin", "--pid", str(self._server.pid), may_be_refused=True)
