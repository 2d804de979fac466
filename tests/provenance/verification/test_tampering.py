"""A signed package, changed in one way at a time: each has its verdict and its kind of finding."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from signed_evidence import put, signed, signer_of, sums_of
from verifiable import FILES, add_signature, key, package, tell, trust, zipped

from reefkit.provenance.finding import FindingKind as Kind
from reefkit.provenance.sign.carriers import SUMS
from reefkit.provenance.sign.key import P256

Change = Callable[[Path], object]
OTHER = {**FILES, "a.bin": b"other\n"}


def edit(name: str, change: Callable[[bytes], bytes]) -> Change:
    def apply(folder: Path) -> None:
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return apply


def bit(data: bytes, at: int = 2) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def swap(folder: Path) -> None:
    first, second = folder / "logs/rank0.log", folder / "logs/rank1.log"
    first.rename(folder / "x")
    second.rename(first)
    (folder / "x").rename(second)


def relist(folder: Path) -> None:
    put(folder, {**OTHER, SUMS: sums_of(OTHER)})


def resign(folder: Path) -> None:
    put(folder, signed(signer_of(P256, "somebody else"), OTHER))


def from_other_package(*names: str) -> Change:
    def apply(folder: Path) -> None:
        other = signed(key(), OTHER)
        put(folder, {name: other[name] for name in names})

    return apply


def statement_of_another_type(folder: Path) -> None:
    path = folder / "model.sig"
    import base64

    bundle = json.loads(path.read_bytes())
    payload = json.loads(base64.b64decode(bundle["dsseEnvelope"]["payload"]))
    payload["predicateType"] = "https://example.org/other"
    bundle["dsseEnvelope"]["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
    path.write_text(json.dumps(bundle))


def link(folder: Path) -> None:
    (folder / "a.bin").unlink()
    (folder / "a.bin").symlink_to("logs/rank0.log")


def remove_signatures(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name.startswith((SUMS + ".", "model")):
            path.unlink()


SIGNED = "SHA256SUMS.sig"
CASES: dict[str, tuple[Change, str, Kind]] = {
    "one bit of a file": (edit("a.bin", bit), "FAILED", Kind.MISMATCH),
    "a file that ends early": (edit("a.bin", lambda d: d[:-1]), "FAILED", Kind.MISMATCH),
    "a file with CRLF": (
        edit("logs/rank0.log", lambda d: d.replace(b"\n", b"\r\n")), "FAILED", Kind.MISMATCH,
    ),
    "a file emptied": (edit("a.bin", lambda _d: b""), "FAILED", Kind.MISMATCH),
    "two files swapped": (swap, "FAILED", Kind.MISMATCH),
    "a file removed": (lambda f: (f / "a.bin").unlink(), "INCOMPLETE", Kind.MISSING),
    "a file renamed": (lambda f: (f / "a.bin").rename(f / "b.bin"), "FAILED", Kind.EXTRA),
    "another case": (lambda f: (f / "a.bin").rename(f / "A.bin"), "FAILED", Kind.MISSING),
    "a file added": (lambda f: put(f, {"evil.py": b""}), "FAILED", Kind.EXTRA),
    "a file added under .git": (lambda f: put(f, {".git/x": b""}), "FAILED", Kind.EXTRA),
    "a file added under .github": (lambda f: put(f, {".github/x": b""}), "FAILED", Kind.EXTRA),
    "a .gitattributes added": (lambda f: put(f, {".gitattributes": b""}), "FAILED", Kind.EXTRA),
    "a folder added": (lambda f: (f / "empty").mkdir(), "FAILED", Kind.EMPTY_FOLDER),
    "a link added": (lambda f: (f / "l").symlink_to("a.bin"), "FAILED", Kind.LINK),
    "a file made a link": (link, "FAILED", Kind.LINK),
    "a pipe added": (lambda f: os.mkfifo(f / "p"), "FAILED", Kind.SPECIAL_FILE),
    "a twin by case": (lambda f: put(f, {"A.BIN": b"hello\n"}), "FAILED", Kind.TWIN_NAMES),
    "a line removed": (
        edit(SUMS, lambda d: d.split(b"\n", 1)[1]), "FAILED", Kind.INVALID_SIGNATURE,
    ),
    "a line added": (
        edit(SUMS, lambda d: d + b"0" * 64 + b"  z\n"), "FAILED", Kind.INVALID_SIGNATURE,
    ),
    "a digest edited": (edit(SUMS, bit), "FAILED", Kind.INVALID_SIGNATURE),
    "the list with CRLF": (
        edit(SUMS, lambda d: d.replace(b"\n", b"\r\n")), "FAILED", Kind.INVALID_SIGNATURE,
    ),
    "the list emptied": (edit(SUMS, lambda _d: b""), "FAILED", Kind.INVALID_SIGNATURE),
    "the list made garbage": (edit(SUMS, lambda _d: b"\0\1"), "FAILED", Kind.INVALID_SIGNATURE),
    "the list removed": (lambda f: (f / SUMS).unlink(), "FAILED", Kind.INVALID_SIGNATURE),
    "file and list changed": (relist, "FAILED", Kind.INVALID_SIGNATURE),
    "everything signed anew": (resign, "UNTRUSTED", Kind.UNKNOWN_SIGNER),
    "a signature cut short": (edit(SIGNED, lambda d: d[:99]), "FAILED", Kind.INVALID_SIGNATURE),
    "a signature emptied": (edit(SIGNED, lambda _d: b""), "FAILED", Kind.INVALID_SIGNATURE),
    "a raw signature flipped": (
        edit("SHA256SUMS.p256.der", lambda d: bit(d, 12)), "FAILED", Kind.INVALID_SIGNATURE,
    ),
    "a bundle edited": (
        edit("SHA256SUMS.sigstore.json", lambda d: d.replace(b"SHA2_256", b"SHA2_512")),
        "FAILED", Kind.INVALID_SIGNATURE,
    ),
    "SSH signature of another package": (
        from_other_package(SIGNED), "FAILED", Kind.INVALID_SIGNATURE,
    ),
    "OMS signature of another package": (
        from_other_package("model.sig"), "FAILED", Kind.OTHER_FILES_SIGNED,
    ),
    "list and signatures of another package": (
        from_other_package(SUMS, SIGNED, "SHA256SUMS.p256.der", "SHA256SUMS.sigstore.json"),
        "FAILED", Kind.OTHER_FILES_SIGNED,
    ),
    "another type of statement": (statement_of_another_type, "FAILED", Kind.PREDICATE_TYPE),
    "all signatures removed": (
        remove_signatures,
        "UNTRUSTED", Kind.UNSIGNED,
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CASES)
def test_a_change_is_found(change: str, tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    signers = trust(tmp_path, key())
    assert tell(folder, signers).verdict == "VERIFIED"
    apply, verdict, kind = CASES[change]
    apply(folder)
    told = tell(folder, signers)
    assert (told.verdict, kind.value in told.kinds) == (verdict, True), told.result.findings
    expected = {"VERIFIED": 0, "UNTRUSTED": 3}.get(verdict, 1)
    assert int(told.result.exit_code) == expected


def test_a_changed_list_is_no_mismatch_of_files(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    CASES["a digest edited"][0](folder)
    told = tell(folder, trust(tmp_path, key()))
    assert Kind.MISMATCH.value not in told.kinds
    assert "not the list that was signed" in told.said_of(SUMS)


def test_what_edited_the_list_is_told_where_it_can_be_proven(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    CASES["the list with CRLF"][0](folder)
    assert "with LF at the ends of its lines" in tell(folder, trust(tmp_path, key())).said_of(SUMS)


@pytest.mark.parametrize(
    "name", ["SHA256SUMS.sig", "SHA256SUMS.p256.der", "SHA256SUMS.sigstore.json", "model.sig"]
)
def test_a_second_signer_does_not_excuse_a_broken_signature(name: str, tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    second = signer_of(P256, "second")
    add_signature(folder, second, 2)
    signers = trust(tmp_path, key(), second)
    assert tell(folder, signers).verdict == "VERIFIED"
    edit(name, lambda data: data[: len(data) // 2])(folder)
    assert tell(folder, signers).verdict == "FAILED"


def test_a_zip_is_as_good_as_its_folder(tmp_path: Path) -> None:
    target = zipped(tmp_path / "e.zip", signed(key(), FILES))
    told = tell(target, trust(tmp_path, key()))
    assert (told.verdict, told.result.checked) == ("VERIFIED", len(FILES))


def test_a_file_more_in_a_zip_is_found(tmp_path: Path) -> None:
    target = zipped(tmp_path / "e.zip", {**signed(key(), FILES), "evil": b""})
    told = tell(target, trust(tmp_path, key()))
    assert (told.verdict, Kind.EXTRA.value in told.kinds) == ("FAILED", True)


def test_bytes_hidden_in_a_zip_are_found(tmp_path: Path) -> None:
    target = zipped(tmp_path / "e.zip", signed(key(), FILES))
    with open(target, "ab") as file:
        file.write(b"hidden")
    told = tell(target, trust(tmp_path, key()))
    assert (told.verdict, Kind.HIDDEN_BYTES.value in told.kinds) == ("FAILED", True)


def test_renaming_the_whole_changes_nothing(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    shutil.move(folder, tmp_path / "f")
    assert tell(tmp_path / "f", trust(tmp_path, key())).verdict == "VERIFIED"
