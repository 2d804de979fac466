"""Failures that users of other tools reported in public, each with the address of its report."""

from __future__ import annotations

import io
import os
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest
from signed_evidence import put, signed, signer_of, sums_of
from verifiable import FILES, digest, key, listed, package, tell, trust, zipped

from reefkit.errors import Unusable
from reefkit.provenance.finding import FindingKind as Kind
from reefkit.provenance.sign.carriers import SUMS
from reefkit.provenance.sign.key import P256

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize 6\n"
Case = Callable[[Path], object]
LINES = sums_of(FILES)


def with_list(data: bytes) -> Case:
    return lambda folder: put(folder, {**FILES, SUMS: data})


def with_files(changed: dict[str, bytes]) -> Case:
    return lambda folder: put(folder, {**FILES, SUMS: LINES, **changed})


def utf16(folder: Path) -> None:
    put(folder, {**FILES, SUMS: LINES.decode().encode("utf-16")})


def lfs_pointer(folder: Path) -> None:
    put(folder, {**FILES, SUMS: LINES, "a.bin": LFS % digest(FILES["a.bin"]).encode()})


def absent(*names: str) -> Case:
    def make(folder: Path) -> None:
        listed(folder)
        for name in names:
            (folder / name).unlink()

    return make


def trailing_space(folder: Path) -> None:
    name = "a "
    put(folder, {name: b"x", SUMS: f"{digest(b'x')}  {name}\n".encode()})


def newline_in_name(folder: Path) -> None:
    put(folder, {"a\nb": b"x", SUMS: f"\\{digest(b'x')}  a\\nb\n".encode()})


def decomposed(folder: Path) -> None:
    name = unicodedata.normalize("NFD", "größe.txt")
    listed_name = unicodedata.normalize("NFC", name)
    put(folder, {name: b"x", SUMS: f"{digest(b'x')}  {listed_name}\n".encode()})


def both_forms(folder: Path) -> None:
    names = [unicodedata.normalize(form, "größe.txt") for form in ("NFC", "NFD")]
    listed(folder, dict.fromkeys(names, b"x"))


def continued(folder: Path) -> None:
    put(folder, {"data/a.bin": b"x"})
    put(folder, {"manifest-sha256.txt": f"{digest(b'x')} data/a.bin\n".encode()})


# What is expected: a verdict with a kind, or UNUSABLE with a word of the sentence.
CASES: dict[str, tuple[Case, str, str]] = {
    "actions/runner-images#32 CRLF": (
        with_list(LINES.replace(b"\n", b"\r\n")), "VERIFIED", "dialect",
    ),
    "erikdarlingdata/PerformanceMonitor#2383 CRLF": (
        with_list(LINES.replace(b"\n", b"\r\n")), "VERIFIED", "dialect",
    ),
    "openziti/desktop-edge-win#645 BOM": (
        with_list(b"\xef\xbb\xbf" + LINES), "VERIFIED", "dialect",
    ),
    "openziti/desktop-edge-win#645 UTF-16": (utf16, "UNUSABLE", "UTF-16"),
    "dotnet/core#9958 one space and CRLF": (
        with_list(LINES.replace(b"  ", b" ").replace(b"\n", b"\r\n")), "VERIFIED", "dialect",
    ),
    "kubernetes/release#3222 absolute path": (
        with_list(b"%s  /etc/passwd\n" % (b"0" * 64)), "UNUSABLE", "absolute",
    ),
    "devices": (with_list(b"%s  /dev/null\n" % (b"0" * 64)), "UNUSABLE", "/dev/null"),
    "standard input": (with_list(b"%s  -\n" % (b"0" * 64)), "UNUSABLE", "-"),
    "out of the folder": (with_list(b"%s  ../x\n" % (b"0" * 64)), "UNUSABLE", ".."),
    "Mindburn-Labs/helm-ai-kernel#511 unindexed": (with_files({"x": b""}), "FAILED", "extra"),
    "githubnext/ado-aw#46 nothing relevant": (absent(*FILES), "INCOMPLETE", "nothing-verified"),
    "Dicklesworthstone/frankensearch#12 skipped": (absent("a.bin"), "INCOMPLETE", "missing"),
    "fagemx/edda#873 CRLF checkout": (
        with_files({"a.bin": b"hello\r\n"}), "FAILED", "mismatch",
    ),
    "rhel-lightspeed/docs2db#15 final newline": (
        with_files({"a.bin": b"hello"}), "FAILED", "mismatch",
    ),
    "LibraryOfCongress/bagit-python#51 NFC": (decomposed, "VERIFIED", "normal-form"),
    "bagitspec#13 both forms": (both_forms, "FAILED", "twin-names"),
    "bagit-python#143 trailing space": (trailing_space, "VERIFIED", "dialect"),
    "jkunze/bagitspec#2 newline in a name": (newline_in_name, "VERIFIED", "dialect"),
    "model-transparency#374 .gitattributes": (
        with_files({".gitattributes": b"* -text\n"}), "FAILED", "extra",
    ),
    "huggingface_hub#3643 same size": (with_files({"a.bin": b"hellO\n"}), "FAILED", "mismatch"),
    "huggingface_hub#2364 offline": (listed, "VERIFIED", ""),
    "git-lfs#4852 pointer": (lfs_pointer, "FAILED", "mismatch"),
    "a garbage line": (with_list(LINES + b"garbage\n"), "UNUSABLE", "Line 4"),
    "conflicting digests": (
        with_list(LINES + b"%s  a.bin\n" % (b"0" * 64)), "FAILED", "conflicting-digests",
    ),
    "an empty list": (with_list(b""), "UNUSABLE", SUMS),
    "BagIt": (continued, "VERIFIED", "dialect"),
}  # fmt: skip


@pytest.mark.parametrize("report", CASES)
def test_a_reported_failure_is_none_here(report: str, tmp_path: Path) -> None:
    make, verdict, word = CASES[report]
    folder = tmp_path / "e"
    make(folder)
    if verdict == "UNUSABLE":
        with pytest.raises(Unusable, match=word):
            tell(folder, integrity_only=True)
        return
    told = tell(folder, integrity_only=True)
    assert (told.verdict, word in told.kinds or not word) == (verdict, True), told.result.findings


def test_a_checkout_that_changed_line_ends_is_told(tmp_path: Path) -> None:
    with_files({"a.bin": b"hello\r\n"})(tmp_path)
    assert "line end" in tell(tmp_path, integrity_only=True).said_of("a.bin").lower()


def test_a_pointer_of_git_lfs_is_told(tmp_path: Path) -> None:
    lfs_pointer(tmp_path)
    assert "git lfs pull" in tell(tmp_path, integrity_only=True).said_of("a.bin")


def test_reddcoin_509_a_list_of_other_entries_than_the_signed_one(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    (folder / SUMS).write_bytes(LINES.split(b"\n", 1)[1])
    (folder / "a.bin").unlink()
    told = tell(folder, trust(tmp_path, key()))
    assert told.result.findings[0].kind is Kind.INVALID_SIGNATURE
    assert Kind.MISMATCH.value not in told.kinds


def test_helm_ai_kernel_520_statement_and_list_differ(tmp_path: Path) -> None:
    folder = package(tmp_path / "e")
    fewer = {name: data for name, data in FILES.items() if name != "a.bin"}
    (folder / "model.sig").write_bytes(signed(key(), fewer)["model.sig"])
    told = tell(folder, trust(tmp_path, key()))
    assert told.verdict == "FAILED" and "a.bin" in told.said_of("model.sig")


def test_couchside_477_a_key_that_comes_with_it_proves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    own = trust(tmp_path, key()).read_bytes()
    package(folder, {**FILES, "allowed_signers": own})
    told = tell(folder, trust(tmp_path, signer_of(P256, "another")))
    assert (told.verdict, int(told.result.exit_code)) == ("UNTRUSTED", 3)


def test_huggingface_hub_3706_folders_are_no_files(tmp_path: Path) -> None:
    put(tmp_path, {"logs/a": b"x", SUMS: f"{digest(b'x')}  logs\n".encode()})
    told = tell(tmp_path, integrity_only=True)
    assert "folder" in told.said_of("logs") and told.verdict == "FAILED"


def test_dvc_9641_nothing_is_remembered(tmp_path: Path) -> None:
    listed(tmp_path)
    before = os.stat(tmp_path / "a.bin")
    assert tell(tmp_path, integrity_only=True).verdict == "VERIFIED"
    (tmp_path / "a.bin").write_bytes(b"hellO\n")
    os.utime(tmp_path / "a.bin", ns=(before.st_atime_ns, before.st_mtime_ns))
    assert tell(tmp_path, integrity_only=True).verdict == "FAILED"


def test_cpython_117779_two_members_of_one_name(tmp_path: Path) -> None:
    import warnings
    import zipfile

    target = zipped(tmp_path / "e.zip", signed(key(), FILES))
    data = io.BytesIO(target.read_bytes())
    with warnings.catch_warnings(), zipfile.ZipFile(data, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("a.bin", b"evil")
    target.write_bytes(data.getvalue())
    told = tell(target, trust(tmp_path, key()))
    assert (told.verdict, "duplicate-member" in told.kinds) == ("FAILED", True)


@pytest.mark.parametrize(
    ("required", "verdict"), [("a.bin", "VERIFIED"), ("logs/rank0.log", "INCOMPLETE")]
)
def test_nym_vpn_client_6064_a_part_is_verified_by_name(
    required: str, verdict: str, tmp_path: Path
) -> None:
    absent("logs/rank0.log", "logs/rank1.log")(tmp_path)
    told = tell(tmp_path, integrity_only=True, required=(required,))
    assert told.verdict == verdict
    assert Kind.NOT_REQUIRED.value in told.kinds


def test_a_required_name_must_be_listed(tmp_path: Path) -> None:
    listed(tmp_path)
    told = tell(tmp_path, integrity_only=True, required=("other.json",))
    assert (told.verdict, told.said_of("other.json")) == (
        "INCOMPLETE",
        "It is required, and nothing lists it.",
    )


def test_md5_proves_nothing(tmp_path: Path) -> None:
    import hashlib

    line = f"{hashlib.md5(b'x', usedforsecurity=False).hexdigest()}  a\n"
    put(tmp_path, {"a": b"x", "MD5SUMS": line.encode()})
    assert tell(tmp_path, integrity_only=True).verdict == "INCOMPLETE"


@pytest.mark.parametrize(
    "dialect", [LINES.replace(b"\n", b"\r\n"), LINES.replace(b"  ", b" *"), LINES.upper()]
)
def test_strict_refuses_dialects(dialect: bytes, tmp_path: Path) -> None:
    with_list(dialect)(tmp_path)
    with pytest.raises(Unusable):
        tell(tmp_path, integrity_only=True, strict=True)
