"""The same lists before sha256sum, busybox and shasum: what they accept, we read."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from reefkit.errors import Unusable
from reefkit.provenance.finding import Finding, FindingKind
from reefkit.provenance.sums.read import read_sums
from reefkit.provenance.sums.write import write_sums

TOOLS = (("sha256sum",), ("sha256sum", "--strict"), ("busybox", "sha256sum"), ("shasum", "-a256"))
FILES = {"a": b"one", "b": b"two", "sub/c": b"three", "d e": b"four", "*f": b"five", "#g": b"six"}
H = {name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()}
A, B = H["a"], H["b"]


def accepted(folder: Path, data: bytes, tool: tuple[str, ...]) -> bool:
    (folder / "S").write_bytes(data)
    nothing = subprocess.DEVNULL
    done = subprocess.run([*tool, "-c", "S"], cwd=folder, stdin=nothing, capture_output=True)
    return done.returncode == 0


def ours(folder: Path, data: bytes) -> tuple[Finding, ...] | None:
    """Give the findings, or None when it is refused or a file does not match."""
    try:
        sums = read_sums(data, "S")
    except Unusable:
        return None
    for line in sums.lines:
        path = folder / line.name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != line.digest:
            return None
    return sums.findings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.fixture(autouse=True)
def installed() -> None:
    missing = [tool[0] for tool in TOOLS if shutil.which(tool[0]) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.mark.parametrize("tool", TOOLS, ids=" ".join)
def test_every_tool_accepts_what_is_written(folder: Path, tool: tuple[str, ...]) -> None:
    data = write_sums(H)
    assert accepted(folder, data, tool)
    assert ours(folder, data) == ()
    (folder / "sub/c").write_bytes(b"other")
    assert not accepted(folder, data, tool)
    assert ours(folder, data) is None


# What the four say of a list, in the order of TOOLS, and whether we accept it.
MATRIX = {
    "plain": (f"{A}  a\n", "1111", True),
    "binary": (f"{A} *a\n", "1111", True),
    "one space": (f"{A} a\n", "1100", True),
    "tab": (f"{A}\ta\n", "1100", True),
    "CR LF": (f"{A}  a\r\n", "1100", True),
    "byte order mark": (f"\ufeff{A}  a\n", "0000", True),
    "upper case": (f"{A.upper()}  a\n", "1101", True),
    "dot slash": (f"{A}  ./a\n", "1111", True),
    "leading spaces": (f"  {A}  a\n", "1101", True),
    "BSD tag": (f"SHA256 (a) = {A}\n", "1101", True),
    "OpenSSL 3": (f"SHA2-256(a)= {A}\n", "0000", True),
    "OpenSSL 1": (f"SHA256(a)= {A}\n", "1100", True),
    "comment": (f"# x\n{A}  a\n", "1101", True),
    "blank": (f"{A}  a\n\n", "1101", True),
    "empty": ("", "0000", False),
    "garbage": (f"{A}  a\ngarbage\n", "1001", False),
    "missing": (f"{A}  nowhere\n", "0000", False),
    "twice": (f"{A}  a\n{A}  a\n", "1111", True),
    "conflict": (f"{A}  a\n{B}  a\n", "0000", True),
    "no final newline": (f"{A}  a", "1111", True),
    "trailing space": (f"{A}  a \n", "0000", False),
    "a folder": (f"{A}  sub\n", "0000", False),
    "leads out": (f"{A}  ../" + "{0}/a\n", "1111", False),
    "absolute": (f"{A}  " + "{1}/a\n", "1111", False),
    "a device": (f"{hashlib.sha256().hexdigest()}  /dev/null\n", "1111", False),
    "standard input": (f"{hashlib.sha256().hexdigest()}  -\n", "1111", False),
}


@pytest.mark.parametrize("case", MATRIX)
def test_the_matrix_of_dialects(folder: Path, case: str) -> None:
    text, tools, accept = MATRIX[case]
    data = text.replace("{0}", folder.name).replace("{1}", str(folder)).encode()
    for tool, expected in zip(TOOLS, tools, strict=True):
        assert accepted(folder, data, tool) == (expected == "1"), tool
    found = ours(folder, data)
    assert (found is not None) == accept
    if found is not None and case == "conflict":
        assert FindingKind.CONFLICTING_DIGESTS in {finding.kind for finding in found}
    elif found is not None:
        assert {finding.kind for finding in found} <= {FindingKind.DIALECT}
        assert bool(found) == (case != "plain")


@pytest.mark.parametrize("name", ["new\nline", "back\\slash", "carriage\rreturn", "a\\n", "é\n"])
@pytest.mark.parametrize("options", [(), ("--tag",)], ids=["plain", "tag"])
def test_names_that_coreutils_escapes_are_read(
    tmp_path: Path, name: str, options: tuple[str, ...]
) -> None:
    (tmp_path / name).write_bytes(b"x")
    command = ["sha256sum", *options, name]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
    assert [line.name for line in read_sums(made, "S").lines] == [name]


@pytest.mark.parametrize(
    ("command", "algorithm"),
    [
        (("md5sum", "--tag"), "md5"),
        (("sha512sum",), "sha512"),
        (("b2sum", "--tag"), "blake2b"),
        (("openssl", "dgst", "-sha256"), "sha256"),
        (("openssl", "dgst", "-sha3-256"), "sha3_256"),
        (("openssl", "dgst", "-sha512-256"), "sha512_256"),
        (("openssl", "dgst", "-blake2b512"), "blake2b"),
        (("shasum", "-a", "384", "-b"), "sha384"),
    ],
)
def test_what_other_tools_print_is_read(
    folder: Path, command: tuple[str, ...], algorithm: str
) -> None:
    made = subprocess.run([*command, "a", "b"], cwd=folder, capture_output=True, check=True).stdout
    lines = read_sums(made, "S").lines
    assert [(line.name, line.algorithm) for line in lines] == [("a", algorithm), ("b", algorithm)]
    assert lines[0].digest == hashlib.new(algorithm, FILES["a"]).hexdigest()
