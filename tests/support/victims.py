"""Processes that hold checkpoints as servers do, and the commands run against them."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reefkit.recover.formats.safetensors import parse_header, write_header

PAGE = 4096
WITHOUT_CAPABILITIES = ("setpriv", "--bounding-set", "-all", "--inh-caps", "-all")

# Maps each file as its plan says, closes it, reports, waits; ends when its stdin does.
# Python's own mmap keeps a descriptor; servers have none, so libc is asked.
MAPPER = """
import ctypes, json, mmap, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
held = []
for plan in json.loads(sys.argv[1]):
    fd = os.open(plan["path"], os.O_RDWR if plan["kind"] == "shared" else os.O_RDONLY)
    start = plan.get("offset", 0)
    length = (plan.get("stop") or os.fstat(fd).st_size) - start
    flags, prot = {
        "private": (mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE),
        "readonly": (mmap.MAP_SHARED, mmap.PROT_READ),
        "shared": (mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
    }[plan["kind"]]
    address = libc.mmap(None, length, prot, flags, fd, start)
    assert address != 2**64 - 1, os.strerror(ctypes.get_errno())
    for offset in plan.get("dirty", []):
        byte = ctypes.c_ubyte.from_address(address + offset - start)
        byte.value ^= 0xFF
    if plan.get("descriptor"):
        held.append(fd)
    else:
        os.close(fd)
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint file, and what it held when it was written."""

    path: Path
    data: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


def write_checkpoint(
    path: Path,
    tensors: Sequence[tuple[str, str, tuple[int, ...]]] | None = None,
    *,
    extra: bytes = b"",
    seed: int = 0,
) -> Checkpoint:
    """Write a safetensors file of random bytes without zeros; `extra` follows its end."""
    if tensors is None:
        tensors = [
            (f"base_model.model.layers.{i}.q_proj.lora_{ab}.weight", "BF16", shape)
            for i in range(4)
            for ab, shape in (("A", (8, 1024)), ("B", (1024, 8)))
        ]
    header = write_header(tensors, {"format": "pt"})
    size = parse_header(header).file_size - len(header)
    noise = random.Random(f"{path.name}/{seed}").randbytes(size).replace(b"\0", b"\1")
    data = header + noise + extra
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return Checkpoint(path, data)


@contextmanager
def running(
    script: str, *arguments: str, prefix: Sequence[str] = (), python: str = sys.executable
) -> Generator[dict[str, Any], None, None]:
    """Run a victim script; give the JSON line that it prints once it holds everything."""
    process = subprocess.Popen(
        [*prefix, python, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdin is not None
    try:
        line = process.stdout.readline()
        assert line, "the victim ended before it held anything"
        yield {"process": process, **json.loads(line)}
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()


@contextmanager
def mapping(
    *plans: Mapping[str, object], prefix: Sequence[str] = ()
) -> Generator[dict[str, Any], None, None]:
    """Run a victim that maps files: each plan has `path` and `kind`, and maybe more."""
    text = json.dumps([{**plan, "path": str(plan["path"])} for plan in plans])
    with running(MAPPER, text, prefix=prefix) as victim:
        yield victim


@contextmanager
def lost(
    *checkpoints: Checkpoint, kind: str = "private", **plan: object
) -> Generator[dict[str, Any], None, None]:
    """Run a victim that maps checkpoints whose folders are deleted afterwards."""
    plans = [{"path": c.path, "kind": kind, **plan} for c in checkpoints]
    with mapping(*plans) as victim:
        for folder in {c.path.parent for c in checkpoints}:
            shutil.rmtree(folder)
        yield victim


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


def reef(*arguments: str | Path | int, prefix: Sequence[str] = ()) -> Answer:
    """Run `reef-recover` and give its exit code and output."""
    done = subprocess.run(
        [*prefix, sys.executable, "-m", "reefkit.cli", *map(str, arguments)],
        capture_output=True,
        check=False,
        timeout=300,
    )
    return Answer(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr))


def dump_json(pid: int, out: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Dump into a folder; give the exit code and the document."""
    answer = reef("dump", "--pid", pid, "--out", out, "--json", *arguments)
    return answer.code, answer.json


# --- names, waiting, and what a terminal must never get ------------------------------------------

HOSTILE_NAMES = (
    b"new\nline.safetensors",
    b"carriage\rreturn.safetensors",
    rb"back\012slash.safetensors",
    b"\x1b]0;owned\x07\x1b[31mred.safetensors",
    b"\xc2\x9b31mcontrol.safetensors",
    b"\x9b31mraw.safetensors",
    "safe\u202esrosnetefas.\u2066gpj".encode(),
    "line\u2028separator\u2029.safetensors".encode(),
    b"  spaces   .safetensors  ",
    b"really (deleted)",
    b"a (deleted).safetensors",
    b"not-utf-8-\xff\xfe.safetensors",
    b"n" * 238 + b".safetensors",
)


def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.005)


def unsafe_for_a_terminal(text: str) -> list[str]:
    """Give the characters that must not reach a terminal; line ends may."""
    unsafe = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return [char for char in text if char != "\n" and unicodedata.category(char) in unsafe]
