"""Every explanation with a real file, and the plain sentence where there is none."""

from __future__ import annotations

import base64
import gzip
import hashlib
import random
import time
import unicodedata
import zlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import BinaryIO

import pytest
from contents import adapter, serialise
from hypothesis import given, settings
from hypothesis import strategies as st
from plain_content import FilesInMemory

from reefkit.errors import Unusable
from reefkit.provenance.content.members import Member
from reefkit.provenance.diagnosis.diagnose import diagnose
from reefkit.provenance.diagnosis.known import Known
from reefkit.provenance.diagnosis.placement import found_elsewhere
from reefkit.provenance.manifest import build_manifest
from reefkit.provenance.sums.model import SumsLine
from reefkit.records.strict_json import Json, parse_object
from reefkit.recover.formats.safetensors import parse_header, write_header

PLAIN = "no simple change explains it"
TEXT = b"one\ntwo  \nthree\n"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def said(here: bytes, listed: bytes, name: str = "notes.txt", known: Known | None = None) -> str:
    content = FilesInMemory({name: here})
    line = SumsLine(name, "sha256", sha(listed), 1)
    found = diagnose(content, content.members[0], line, known or Known())
    assert found.isprintable() and found.endswith(".")
    return found


@pytest.mark.parametrize(
    ("here", "listed", "parts"),
    [
        (b"a\r\nb\r\n", b"a\nb\n", ["endings are CR LF", "has LF", ".gitattributes"]),
        (b"a\nb\n", b"a\r\nb\r\n", ["endings are LF", "has CR LF", ".gitattributes"]),
        (b"a\rb\r", b"a\nb\n", ["endings are CR", "has LF"]),
        (b"a\rb\r", b"a\r\nb\r\n", ["endings are CR", "has CR LF"]),
        (b"a\nb\n", b"a\rb\r", ["endings are LF", "has CR"]),
        (b"a\r\nb\nc\n", b"a\nb\nc\n", ["endings are mixed", "has LF"]),
        (b"a\r\nb\nc\n", b"a\r\nb\r\nc\r\n", ["endings are mixed", "has CR LF"]),
        (b"a\nb\n", b"a\nb", ["a newline at its end that the listed file has not", "hook"]),
        (b"a\nb", b"a\nb\n", ["lacks the newline at the end", "hook"]),
        (b"a\nb\n", b"a\nb\n\n\n", ["lacks 2 newlines", "hook"]),
        (b"a\n\n\n\n\n\n", b"a\n", ["5 newlines more", "hook"]),
        (b"a\nb\n", b"a\r\nb", ["endings are LF", "a newline at its end", ".gitattributes"]),
        (b"\xef\xbb\xbfa\n", b"a\n", ["has a byte order mark"]),
        (b"a\n", b"\xef\xbb\xbfa\n", ["lacks the byte order mark"]),
        (b"\xef\xbb\xbfa\r\n", b"a\n", ["has a byte order mark", "endings are CR LF"]),
        ("\ufeffé\r\n".encode("utf-16-le"), "é\n".encode(), ["it is UTF-16", "PowerShell"]),
        ("é\n".encode(), "\ufeffé\n".encode("utf-16-be"), ["it is UTF-8", "UTF-16"]),
        (b"a  \nb\t\n", b"a\nb\n", ["spaces at the ends of lines"]),
        (b"a  \r\nb\r\n\r\n", b"a\nb\n", ["spaces at the ends", "endings are CR LF", "newline"]),
        (b"a \nb ", b"a\nb\n", ["spaces at the ends of lines", "lacks the newline"]),
    ],
)
def test_changes_of_text_are_undone_until_the_digest_is_right(
    here: bytes, listed: bytes, parts: list[str]
) -> None:
    found = said(here, listed)
    assert found.startswith("Nothing else differs")
    assert [part for part in parts if part not in found] == []


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.sampled_from([b"a", b" ", b"\n", b"\r\n", b"\xc3\xa9"]), min_size=1, max_size=20)
)
def test_a_checkout_with_other_line_endings_is_always_found(parts: list[bytes]) -> None:
    listed = b"".join(parts).replace(b"\r\n", b"\n") + b"x\n"
    here = listed.replace(b"\n", b"\r\n")
    assert "line endings" in said(here, listed) and "line endings" in said(listed, here)


@pytest.mark.parametrize("listed", [b"a\nb \nc\n", TEXT])
def test_what_cannot_be_undone_is_not_claimed(listed: bytes) -> None:
    stripped = b"\n".join(line.rstrip() for line in listed.split(b"\n"))
    assert PLAIN in said(stripped + b"and more words, so that no bit explains it", listed)


def test_binary_data_that_git_took_for_text_are_recognised() -> None:
    listed = b"\x89PNG\n\0\1\2\n\xff" * 50
    assert "line endings" in said(listed.replace(b"\n", b"\r\n"), listed, "a.png")


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 12\n"


def test_a_pointer_to_the_listed_file() -> None:
    found = said(POINTER.format(sha(b"weights")).encode(), b"weights", "a.bin")
    assert "pointer to the listed file" in found and "`git lfs pull`" in found


def test_a_pointer_to_another_file() -> None:
    other = sha(b"others")
    found = said(POINTER.format(other).encode(), b"weights", "a.bin")
    assert "pointer to another file" in found and other[:16] in found


def test_a_pointer_without_an_identity() -> None:
    assert "damaged git LFS pointer" in said(POINTER.format("?").encode(), b"weights")


def test_a_pointer_beside_a_listed_digest_of_another_kind() -> None:
    content = FilesInMemory({"a": POINTER.format(sha(b"x")).encode()})
    line = SumsLine("a", "sha512", hashlib.sha512(b"x").hexdigest(), 1)
    assert "git lfs pull" in diagnose(content, content.members[0], line, Known())


def test_an_empty_file_and_one_that_should_be() -> None:
    assert "It is empty" in said(b"", b"a")
    assert "listed file is empty" in said(b"abc", b"")


@pytest.mark.parametrize(
    ("page", "what"),
    [
        (b"<!DOCTYPE html>\n<html><body>Not Found</body></html>", "an HTML page"),
        (b'<?xml version="1.0"?><Error><Code>NoSuchKey</Code></Error>', "an XML document"),
        (b'{"error": "Repository not found"}', "a JSON document"),
    ],
)
def test_the_page_of_an_error(page: bytes, what: str) -> None:
    assert what in said(page, bytes(5000), "model.safetensors")
    name = {"an HTML page": "a.html", "an XML document": "a.xml"}.get(what, "a.json")
    assert PLAIN in said(page, bytes(5000), name)


def test_gzip_around_the_listed_file() -> None:
    listed = b"text\n" * 10_000
    packed = gzip.compress(listed[:20_000]) + gzip.compress(listed[20_000:])
    assert "compressed with gzip" in said(packed, listed)
    assert PLAIN in said(gzip.compress(b"other"), listed)
    assert PLAIN in said(packed[:-9], listed)


def test_a_download_that_unpacked_gzip() -> None:
    assert "not gzip-compressed" in said(b"text and more", gzip.compress(b"text"), "a.txt.gz")


def test_gzip_that_expands_without_end_is_given_up() -> None:
    packed = gzip.compress(bytes(64 << 20), 1) * 100
    began = time.perf_counter()
    said(packed, b"listed")
    assert time.perf_counter() - began < 4


def located(files: Mapping[str, bytes], listed: Mapping[str, bytes]) -> Known:
    names: dict[str, tuple[str, ...]] = {}
    for name, data in listed.items():
        names[sha(data)] = (*names.get(sha(data), ()), name)
    return Known(names, {name: sha(data) for name, data in files.items()})


@pytest.mark.parametrize(
    ("files", "listed", "part"),
    [
        ({"a": b"2", "b": b"1"}, {"a": b"1", "b": b"2"}, "`b` have each other's content"),
        ({"a": b"2", "b": b"2"}, {"a": b"1", "b": b"2"}, "listed for `b`"),
        ({"a": b"2", "b": b"2", "c": b"1"}, {"a": b"1", "b": b"2"}, "listed for it is in `c`"),
        ({"a": b"3", "x": b"1"}, {"a": b"1"}, "under another name, `x`"),
        ({"a": b"3", "A": b"1", "0": b"1"}, {"a": b"1"}, "`A`, a name that differs only in case"),
    ],
)
def test_content_under_another_name(
    files: dict[str, bytes], listed: dict[str, bytes], part: str
) -> None:
    assert part in said(files["a"], listed["a"], "a", located(files, listed))


def test_a_missing_file_whose_content_lies_under_another_form_of_the_name() -> None:
    name, other = (unicodedata.normalize(form, "é.txt") for form in ("NFC", "NFD"))
    line = SumsLine(name, "sha256", sha(b"1"), 1)
    found = found_elsewhere(line, located({other: b"1"}, {name: b"1"}))
    assert found is not None and "another normal form" in found
    assert found_elsewhere(line, located({other: b"2"}, {name: b"1"})) is None


# --- checkpoints ---------------------------------------------------------------------------------

NAME = "adapter_model.safetensors"
CHECKPOINT = serialise(adapter(2))
HEADER = parse_header(CHECKPOINT)


def entry_of(data: bytes, *, crc: bool = True) -> dict[str, Json]:
    header = parse_header(data)
    tensors: list[Json] = []
    for tensor in header.tensors:
        span = header.span(tensor)
        part = data[span.start : span.stop]
        made: dict[str, Json] = {
            "name": tensor.name,
            "dtype": tensor.dtype,
            "shape": list(tensor.shape),
            "offsets": [tensor.begin, tensor.end],
            "sha256": sha(part),
        }
        tensors.append({**made, "crc32": f"{zlib.crc32(part):08x}"} if crc else made)
    return {
        "path": NAME,
        "size": len(data),
        "sha256": sha(data),
        "header": base64.b64encode(header.raw).decode(),
        "tensors": tensors,
    }


def manifest(*entries: Json) -> Known:
    return Known(manifest={"schema": "reefkit.manifest/1", "files": list(entries)})


KNOWN = manifest(entry_of(CHECKPOINT))


def changed(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + bytes((data[at] ^ value,)) + data[at + 1 :]


@pytest.mark.parametrize("crc", [False, True])
def test_one_bit_of_a_tensor(crc: bool) -> None:
    tensor = HEADER.tensors[3]
    at = HEADER.span(tensor).start + 1234
    known = manifest(entry_of(CHECKPOINT, crc=crc))
    found = said(changed(CHECKPOINT, at, 32), CHECKPOINT, NAME, known)
    assert f"bit 5 of byte {at:,} of the file, in tensor {tensor.name}" in found


def test_one_bit_is_found_by_a_manifest_as_it_is_written() -> None:
    written = build_manifest(FilesInMemory({NAME: CHECKPOINT})).to_bytes()
    known = Known(manifest=parse_object(written, "manifest.json"))
    at = len(CHECKPOINT) - 3
    found = said(changed(CHECKPOINT, at, 64), CHECKPOINT, NAME, known)
    assert f"bit 6 of byte {at:,} of the file" in found


def test_one_bit_in_each_of_two_tensors() -> None:
    first, last = HEADER.span(HEADER.tensors[0]).start, len(CHECKPOINT) - 1
    found = said(changed(changed(CHECKPOINT, first, 1), last, 128), CHECKPOINT, NAME, KNOWN)
    assert f"bit 0 of byte {first:,}" in found and f"bit 7 of byte {last:,}" in found


def test_more_than_a_bit_names_the_tensor() -> None:
    at = HEADER.span(HEADER.tensors[2]).start
    found = said(changed(CHECKPOINT, at, 3), CHECKPOINT, NAME, KNOWN)
    assert found.startswith(f"1 of {len(HEADER.tensors)} tensors differs")
    assert HEADER.tensors[2].name in found


def test_many_tensors_are_counted_and_some_are_named() -> None:
    here = CHECKPOINT[: HEADER.data_start] + random.Random(1).randbytes(
        len(CHECKPOINT) - HEADER.data_start
    )
    found = said(here, CHECKPOINT, NAME, KNOWN)
    count = len(HEADER.tensors)
    assert found.startswith(f"{count} of {count} tensors differ") and "9 more" in found


def test_one_bit_of_the_header() -> None:
    at = CHECKPOINT.index(b"lora_A")
    assert f"bit 1 of byte {at:,}" in said(changed(CHECKPOINT, at, 2), CHECKPOINT, NAME, KNOWN)
    assert "bit 7 of byte 7" in said(changed(CHECKPOINT, 7, 128), CHECKPOINT, NAME, KNOWN)


def test_a_damaged_header_says_what_is_wrong() -> None:
    found = said(b"\xff" * 8 + CHECKPOINT[8:], CHECKPOINT, NAME, KNOWN)
    assert found.startswith("Its header is damaged")


def test_the_same_tensors_written_again() -> None:
    shapes = [(tensor.name, tensor.dtype, tensor.shape) for tensor in HEADER.tensors]
    again = write_header(shapes, {"format": "pt", "by": "another"})
    found = said(again + CHECKPOINT[HEADER.data_start :], CHECKPOINT, NAME, KNOWN)
    assert "tensors are the same, byte for byte" in found and "other metadata" in found


def test_other_tensors_are_named() -> None:
    tensors = adapter(2)
    gone = min(tensors)
    less = dict(tensors)
    dtype, shape, data = less.pop(gone)
    less["new.weight"] = dtype, shape, data
    other = max(tensors)
    less[other] = dtype, shape, data
    found = said(serialise(less), CHECKPOINT, NAME, KNOWN)
    assert "1 missing" in found
    assert "1 not known to the manifest" in found
    assert gone in found and "new.weight" in found


def test_a_file_that_is_cut_off() -> None:
    cut = CHECKPOINT[:-5000]
    size = f"{len(CHECKPOINT):,} should be"
    assert f"{size}, as the manifest says" in said(cut, CHECKPOINT, NAME, KNOWN)
    assert f"{size}, as the manifest says" in said(cut[:100], CHECKPOINT, NAME, KNOWN)
    assert f"{size}, as its header says" in said(cut, CHECKPOINT, NAME)


def test_a_file_to_which_something_was_appended() -> None:
    assert "100 were appended" in said(CHECKPOINT + b"x" * 100, CHECKPOINT, NAME, KNOWN)
    assert "100 were appended" in said(CHECKPOINT + b"x" * 100, CHECKPOINT, NAME)
    longer = changed(CHECKPOINT, 50_000, 7) + b"x" * 100
    assert f"and {len(CHECKPOINT):,} should be there" in said(longer, CHECKPOINT, NAME)
    assert "tensors differs" in said(longer, CHECKPOINT, NAME, KNOWN)


def test_zeros_at_the_end_of_a_checkpoint_come_with_its_tensors() -> None:
    found = said(CHECKPOINT[:-20_000] + bytes(20_000), CHECKPOINT, NAME, KNOWN)
    assert "Its last 20," in found and "tensors differ" in found
    assert "consists of" in said(bytes(len(CHECKPOINT)), CHECKPOINT, NAME, KNOWN)


def test_zeros_at_the_end() -> None:
    listed = random.Random(2).randbytes(50_000)
    assert "last 8,000 bytes are zeros" in said(listed[:-8000] + bytes(8000), listed, "a.bin")
    assert "consists of 50,000 zeros" in said(bytes(50_000), listed, "a.bin")
    assert PLAIN in said(listed[:-8000] + b"x" * 4000 + bytes(4000), listed, "a.bin")


def test_one_bit_of_a_small_file() -> None:
    listed = random.Random(3).randbytes(3000)
    assert "bit 4 of byte 2,000" in said(changed(listed, 2000, 16), listed, "a.bin")


def test_a_manifest_of_another_version_explains_nothing() -> None:
    at = HEADER.span(HEADER.tensors[0]).start
    entry = entry_of(CHECKPOINT) | {"sha256": "0" * 64}
    assert PLAIN in said(changed(CHECKPOINT, at, 3), CHECKPOINT, NAME, manifest(entry))


@pytest.mark.parametrize("seed", range(3))
def test_an_unexplained_difference_gets_a_plain_sentence(seed: int) -> None:
    made = random.Random(seed)
    assert PLAIN in said(made.randbytes(20_000), made.randbytes(20_000), "a.bin")
    assert PLAIN in said(b"some words\n", b"other words\n")


class Broken(FilesInMemory):
    """A content that cannot be opened any more."""

    def open(self, member: Member) -> AbstractContextManager[BinaryIO]:
        raise Unusable("It is gone.")


def test_a_file_that_cannot_be_read_any_more_gets_a_plain_sentence() -> None:
    content = Broken({"a": b"x"})
    line = SumsLine("a", "sha256", sha(b"y"), 1)
    assert PLAIN in diagnose(content, content.members[0], line, Known())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just(NAME),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["path", "size", "sha256", "header", "tensors", "name", "crc32"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["path", "size", "sha256", "header", "tensors"]), JSON))
def test_any_manifest_is_survived(entry: dict[str, Json]) -> None:
    told = {**entry_of(CHECKPOINT), **entry, "path": NAME}
    said(changed(CHECKPOINT, 90_000, 255), CHECKPOINT, NAME, manifest(told, entry))


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=100), st.sampled_from(["a.txt", NAME, "a.gz", "a\x1b\udcff"]))
def test_any_bytes_are_survived(data: bytes, name: str) -> None:
    said(data, b"listed and much longer than what is here", name, KNOWN)


def test_large_text_is_given_up_in_time() -> None:
    data = b"word \r\n" * (9 << 20)
    began = time.perf_counter()
    assert PLAIN in said(data, b"other")
    assert time.perf_counter() - began < 8


@pytest.mark.parametrize("data", [b" " * (8 << 20), b"\n" * (8 << 20), b"\r\n" * (4 << 20)])
def test_text_made_to_be_slow_is_not(data: bytes) -> None:
    began = time.perf_counter()
    said(data + b"x", b"other")
    said(data, b"other")
    assert time.perf_counter() - began < 8
