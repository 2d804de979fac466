from __future__ import annotations

import hashlib
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reefkit.errors import ReefError, Unusable
from reefkit.provenance.finding import FindingKind
from reefkit.provenance.sums.model import Sums
from reefkit.provenance.sums.names import is_portable
from reefkit.provenance.sums.read import read_sums
from reefkit.provenance.sums.text import MAX_SUMS
from reefkit.provenance.sums.write import write_sums

A, B = hashlib.sha256(b"a").hexdigest(), hashlib.sha256(b"b").hexdigest()


def said(sums: Sums, kind: FindingKind = FindingKind.DIALECT) -> list[str]:
    return [finding.diagnosis for finding in sums.findings if finding.kind is kind]


def named(sums: Sums) -> dict[str, str]:
    return {line.name: line.digest for line in sums.lines}


def test_the_portable_profile_has_no_findings() -> None:
    sums = read_sums(f"{A}  a/x.json\n{B}  é\n".encode(), "S", strict=True)
    assert named(sums) == {"a/x.json": A, "é": B}
    assert [line.line for line in sums.lines] == [1, 2]
    assert sums.findings == ()


@pytest.mark.parametrize(
    ("text", "name", "dialects"),
    [
        (f"{A}  a\r\n", "a", ["CR LF"]),
        (f"\ufeff{A}  a\n", "a", ["byte order mark"]),
        (f"{A} a\n", "a", ["one space"]),
        (f"{A}\ta\n", "a", ["a tab"]),
        (f"{A} *a\n", "a", ["binary"]),
        (f"{A.upper()}  a\n", "a", ["upper-case"]),
        (f"{A}  ./a\n", "a", ["`./`"]),
        (f"  {A}  a\n", "a", ["begins with spaces"]),
        (f"SHA256 (a) = {A}\n", "a", ["--tag"]),
        (f"SHA256 (a) (b) = {A}\n", "a) (b", ["--tag"]),
        (f"SHA256(a)= {A}\n", "a", ["openssl"]),
        (f"SHA2-256(a)= {A}\n", "a", ["openssl"]),
        (f"\\{A}  a\\nb\\\\c\\rd\n", "a\nb\\c\rd", ["escapes"]),
        (f"\\SHA256 (a\\nb) = {A}\n", "a\nb", ["--tag", "escapes"]),
        (f"# made by hand\n{A}  a\n", "a", ["a comment"]),
        (f"{A}  a\n\n", "a", ["is blank"]),
        (f"{A}  a", "a", ["no newline at its end"]),
        (f"{A}  a\n{A}  a\n", "a", ["repeats"]),
        (f"{A}  a \n", "a ", ["some tools misread"]),
        (f"{A}  a\\b\n", "a\\b", ["some tools misread"]),
        (f"\ufeff {A.upper()} *./a\r\n\r\n", "a",
         ["byte order mark", "CR LF", "begins with", "binary", "`./`", "upper-case", "is blank"]),
    ],
)  # fmt: skip
def test_every_dialect_is_read_and_reported_once(text: str, name: str, dialects: list[str]) -> None:
    data = text.encode()
    sums = read_sums(data, "S")
    assert named(sums) == {name: A}
    found = said(sums)
    assert len(found) == len(dialects)
    assert all(any(dialect in each for each in found) for dialect in dialects)
    with pytest.raises(Unusable, match="not in the portable profile"):
        read_sums(data, "S", strict=True)


def test_a_dialect_is_counted_with_its_first_line() -> None:
    sums = read_sums(f"{A}  a\n{A}  b\r\n{A}  c\r\n".encode(), "S")
    assert said(sums)[0].startswith("Line 2 of S, and 1 more: it ends with CR LF")


def test_lines_out_of_order_are_a_dialect() -> None:
    sums = read_sums(f"{A}  b\n{B}  a\n".encode(), "S")
    assert [line.name for line in sums.lines] == ["b", "a"]
    assert "order" in said(sums)[0]


@pytest.mark.parametrize(
    ("line", "algorithm"),
    [
        (f"{'0' * 56}  a", "sha224"),
        (f"{'0' * 96}  a", "sha384"),
        (f"{'0' * 128}  a", "sha512"),
        (f"SHA512 (a) = {'0' * 128}", "sha512"),
        (f"SHA2-512/256(a)= {'0' * 64}", "sha512_256"),
        (f"BLAKE2b (a) = {'0' * 128}", "blake2b"),
        (f"BLAKE2B-512(a)= {'0' * 128}", "blake2b"),
        (f"SHA3-256(a)= {'0' * 64}", "sha3_256"),
    ],
)
def test_other_strong_digests_are_read(line: str, algorithm: str) -> None:
    sums = read_sums(f"{line}\n".encode(), "S")
    assert sums.lines[0].algorithm == algorithm
    assert "another digest" in "".join(said(sums))
    assert not said(sums, FindingKind.NOT_CHECKED)


@pytest.mark.parametrize("label", ["B2SUMS", "dist/b2sums.txt", "model.b2"])
def test_a_list_named_as_of_b2sum_holds_blake2b(label: str) -> None:
    assert read_sums(f"{'0' * 128}  a\n".encode(), label).lines[0].algorithm == "blake2b"


@pytest.mark.parametrize(("digits", "called"), [(32, "MD5"), (40, "SHA1")])
def test_a_weak_digest_alone_is_no_check(digits: int, called: str) -> None:
    sums = read_sums(f"{'0' * digits}  a\n".encode(), "S")
    assert len(sums.lines) == 1
    assert called in said(sums, FindingKind.NOT_CHECKED)[0]


def test_of_several_digests_the_preferred_one_is_kept() -> None:
    text = f"MD5 (a) = {'0' * 32}\nSHA512 (a) = {'0' * 128}\nSHA256 (a) = {A}\n"
    sums = read_sums(text.encode(), "S")
    assert [(line.algorithm, line.line) for line in sums.lines] == [("sha256", 3)]
    assert not said(sums, FindingKind.NOT_CHECKED)
    assert "further digest" in "".join(said(sums))


@pytest.mark.parametrize("second", ["a", "./a"])
def test_two_digests_of_one_kind_for_a_name_conflict(second: str) -> None:
    sums = read_sums(f"{A}  a\n{B}  {second}\n".encode(), "S")
    assert named(sums) == {"a": A}
    assert "Lines 1 and 2" in said(sums, FindingKind.CONFLICTING_DIGESTS)[0]


@pytest.mark.parametrize(
    ("one", "other"), [("A", "a"), ("\u00e9", "e\u0301"), ("x/A", "X/b"), ("a", "a/b")]
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_twins_are_reported(one: str, other: str, ending: str) -> None:
    first, second = sorted((one, other))
    sums = read_sums(f"{A}  {first}{ending}{B}  {second}{ending}".encode(), "S")
    assert len(sums.lines) == 2
    assert len(said(sums, FindingKind.TWIN_NAMES)) == 1


@pytest.mark.parametrize(
    "name",
    [
        "/a",
        "../a",
        "a/../b",
        "/dev/null",
        "-",
        "C:\\a",
        "c:a",
        "\\\\h\\s\\a",
        "a//b",
        "a/./b",
        "a/",
    ],
)
@pytest.mark.parametrize("form", ["{1}  {0}", "{1} *{0}", "SHA256 ({0}) = {1}"])
def test_names_that_lead_elsewhere_cannot_be_judged(name: str, form: str) -> None:
    text = f"{A}  ok\n{form.format(name, A)}\n"
    with pytest.raises(Unusable, match="Line 2 of S names"):
        read_sums(text.encode(), "S")


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        A,
        f"{A}  ",
        f"{A[:-1]}  a",
        f"{A[:-1]}g  a",
        f"RMD160 (a) = {'0' * 40}",
        f"SHA256 (a) = {A[:-1]}",
        f"SHA256 (a) {A}",
        f"\\{A}  a\\tb",
        f"\\{A}  a\\",
        f"{A}  a\rb",
        "-----BEGIN PGP SIGNATURE-----",
        "-----BEGIN PGP SIGNED MESSAGE-----",
    ],
)
def test_a_line_that_is_not_understood_is_never_passed_over(line: str) -> None:
    with pytest.raises(Unusable, match="Line 2 of S"):
        read_sums(f"{A}  ok\n{line}\n".encode(), "S")


@pytest.mark.parametrize("order", [(" ", "  "), ("  ", " "), ("  ", "\t"), (" ", " *")])
def test_one_space_and_two_are_not_mixed(order: tuple[str, str]) -> None:
    text = f"{A}{order[0]}a\n{B}{order[1]}b\n"
    with pytest.raises(Unusable, match="mixes"):
        read_sums(text.encode(), "S")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "lists nothing"),
        (b"\n\n", "lists nothing"),
        (b"# nothing\n", "lists nothing"),
        (f"{A}  a\n".encode("utf-16"), "encoding"),
        (f"{A}  a\n".encode("utf-16-be"), "encoding"),
        (f"\ufeff{A}  a\n".encode("utf-16-be"), "encoding"),
        (f"{A}  a\n".encode("utf-32"), "encoding"),
        (f"{A}  a\0{B}  b\0".encode(), "NUL"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "an HTML page"),
        (b'<?xml version="1.0"?><Error/>', "an XML document"),
        (b'{"message": "Not Found"}', "a JSON document"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "LFS pointer"),
        (b"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n", "clearsigned"),
        (b"-----BEGIN SSH SIGNATURE-----\nU1NI\n", "a signature"),
        (b"\x1f\x8b\x08\0\0\0", "gzip"),
        (b"PK\x03\x04\x14\0", "zip"),
    ],
)
def test_what_is_no_list_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(Unusable, match=reason) as caught:
        read_sums(data, "S")
    assert caught.value.remedy


def test_names_that_are_no_utf8_are_kept_as_they_are() -> None:
    sums = read_sums(A.encode() + b"  a\xff\n", "S")
    assert sums.lines[0].name == "a\udcff"


def test_a_diagnosis_is_fit_to_print() -> None:
    with pytest.raises(Unusable) as caught:
        read_sums(f"{A}  /\x1b[31m\u202e\n".encode(), "S")
    assert caught.value.message.isprintable()


def test_a_list_that_is_too_large_is_refused() -> None:
    with pytest.raises(Unusable, match="larger than"):
        read_sums(bytes(MAX_SUMS + 1), "S")


def line_of(part: str, around: tuple[str, str]) -> bytes:
    return (around[0] + part * ((1 << 20) // len(part)) + around[1] + "\n").encode()


@pytest.mark.parametrize(
    "data",
    [
        line_of("f", ("", "")),
        line_of("a/", (f"{A}  ", "")),
        line_of(") ", ("SHA256 (", "")),
        line_of(" ", ("", "x")),
        line_of("\\", ("", "")),
        line_of("\\n", (f"\\{A}  ", "")),
    ],
    ids=["digits", "folders", "brackets", "spaces", "backslashes", "escapes"],
)
def test_hostile_lines_take_no_more_than_their_length(data: bytes) -> None:
    began = time.perf_counter()
    with pytest.raises(Unusable):
        read_sums(data, "S")
    assert time.perf_counter() - began < 2


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=300),
        st.lists(
            st.sampled_from(
                [A, B, "  ", " *", " ", "\t", "\n", "\r\n", "\\", "/", "..", "a", "SHA256 (",
                 ") = ", "#", "\ufeff", "é", "\udc80", "0" * 32]
            ),
            max_size=20,
        ).map(lambda parts: "".join(parts).encode("utf-8", "surrogateescape")),
    )
)  # fmt: skip
@example(b"\xff\xfe")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        sums = read_sums(data, "S")
    except ReefError:
        return
    names = [line.name for line in sums.lines]
    assert names and len(set(names)) == len(names)
    strict = all(finding.kind is not FindingKind.DIALECT for finding in sums.findings)
    if strict:
        assert write_sums(named(sums)) == data


NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="\\"), min_size=1
).filter(is_portable)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(NAMES, st.binary(min_size=32, max_size=32).map(bytes.hex), min_size=1))
def test_what_is_written_is_read_back(digests: dict[str, str]) -> None:
    sums = read_sums(write_sums(digests), "S", strict=True)
    assert named(sums) == digests
    assert not said(sums)
