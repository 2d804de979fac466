"""What a manifest says of files, and what it refuses."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from victims import Answer, write_checkpoint

from reefkit.errors import Unusable
from reefkit.provenance.content.folder import FolderContent
from reefkit.provenance.manifest import build_manifest
from reefkit.records.manifest import Anchor, TensorEntry, read_manifest
from reefkit.recover.fingerprint import Fingerprint, fingerprint
from reefkit.recover.formats.safetensors import parse_header, write_header
from reefkit.recover.repair.known_headers import from_manifest


def archive(*arguments: str | Path) -> Answer:
    code = "import sys; from reefkit.cli import archive_main; archive_main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Answer(done.returncode, os.fsdecode(done.stdout), os.fsdecode(done.stderr))


def test_a_folder_is_recorded_file_by_file_and_tensor_by_tensor(tmp_path: Path) -> None:
    run, out = tmp_path / "run", tmp_path / "manifest.json"
    weights = write_checkpoint(run / "step_8" / "adapter_model.safetensors")
    (run / "notes.txt").write_bytes(b"notes")
    answer = archive("manifest", run, "--out", out)
    assert (answer.code, answer.err.count("Wrote")) == (0, 1)
    document = json.loads(out.read_bytes())
    assert document["schema"] == "reefkit.manifest/1"
    notes, entry = document["files"]
    digest = hashlib.sha256(b"notes").hexdigest()
    assert notes == {"path": "notes.txt", "size": 5, "sha256": digest}
    assert (entry["path"], entry["size"], entry["sha256"]) == (
        "step_8/adapter_model.safetensors",
        len(weights.data),
        weights.sha256,
    )
    header = parse_header(weights.data)
    assert base64.b64decode(entry["header"]) == header.raw
    assert [tensor["name"] for tensor in entry["tensors"]] == [t.name for t in header.tensors]
    for found, tensor in zip(entry["tensors"], header.tensors, strict=True):
        span = header.span(tensor)
        data = weights.data[span.start : span.stop]
        assert (found["dtype"], found["shape"]) == (tensor.dtype, list(tensor.shape))
        assert found["offsets"] == [tensor.begin, tensor.end]
        assert found["sha256"] == hashlib.sha256(data).hexdigest()
        assert found["crc32"] == f"{zlib.crc32(data):08x}"
        assert len(found["anchors"]) == 3
        for anchor in found["anchors"]:
            assert anchor["offset"] % 64 == 0
            sample = data[anchor["offset"] :][:64]
            assert bytes.fromhex(anchor["hex"]) == sample


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run" / "a.safetensors")
    manifests = [build_manifest(FolderContent(tmp_path / "run")).to_bytes() for _ in range(2)]
    assert manifests[0] == manifests[1]
    read = read_manifest(manifests[0], "manifest.json")
    assert read.to_bytes() == manifests[0]
    assert json.loads(manifests[0]) == read.to_json()


def test_a_lost_header_comes_back_from_the_manifest(tmp_path: Path) -> None:
    weights = write_checkpoint(tmp_path / "run" / "adapter_model.safetensors")
    out = tmp_path / "manifest.json"
    assert archive("manifest", tmp_path / "run", "--out", out).code == 0
    (candidate,) = from_manifest(out, "adapter_model.safetensors", len(weights.data))
    assert candidate.header.raw == parse_header(weights.data).raw
    assert candidate.digests == {weights.sha256}


DAMAGE: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda data: data[:-100], "100 of"),
    (lambda data: data + b"more", "4 bytes more"),
    (lambda data: bytes(4096) + data[4096:], ""),
    (lambda data: data[:30], ""),
    (lambda data: b"", ""),
]


@pytest.mark.parametrize(("damage", "says"), DAMAGE)
def test_a_damaged_file_is_listed_with_its_fault(
    tmp_path: Path, damage: Callable[[bytes], bytes], says: str
) -> None:
    run = tmp_path / "run"
    data = damage(write_checkpoint(run / "a.safetensors").data)
    (run / "a.safetensors").write_bytes(data)
    answer = archive("manifest", run, "--json")
    assert answer.code == 1
    assert "DAMAGED  a.safetensors" in answer.err
    (entry,) = answer.json["files"]
    assert (entry["size"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert entry["fault"] and says in entry["fault"]
    assert "header" not in entry and "tensors" not in entry


def test_a_file_that_is_no_safetensors_has_no_fault(tmp_path: Path) -> None:
    data = (16).to_bytes(8, "little") + b'{"a": 1}' * 9
    (tmp_path / "like.bin").write_bytes(data)
    (entry,) = build_manifest(FolderContent(tmp_path)).files
    assert (entry.fault, entry.header) == (None, None)


def test_weights_under_another_name_are_known_by_their_header(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "weights.bin")
    (entry,) = build_manifest(FolderContent(tmp_path)).files
    assert len(entry.tensors) == 8


def test_a_manifest_is_not_listed_in_itself(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "a.safetensors")
    out = tmp_path / "manifest.json"
    assert archive("manifest", tmp_path, "--out", out).code == 0
    first = out.read_bytes()
    assert archive("manifest", tmp_path, "--out", out).code == 2
    again = archive("manifest", tmp_path, "--out", out, "--force")
    assert (again.code, out.read_bytes()) == (0, first)
    assert "manifest.json is the manifest itself" in again.err


def link(path: Path) -> None:
    path.symlink_to("a.safetensors")


@pytest.mark.parametrize("make", [link, os.mkfifo])
def test_links_and_special_files_are_refused(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    write_checkpoint(tmp_path / "a.safetensors")
    make(tmp_path / "odd")
    answer = archive("manifest", tmp_path, "--json")
    assert (answer.code, answer.json["code"]) == (2, "Unusable")
    assert "odd" in answer.json["message"]


def test_without_a_place_to_write_nothing_is_read(tmp_path: Path) -> None:
    assert archive("manifest", tmp_path / "nowhere").code == 2


def read(data: bytes, *, block: int = 1 << 20, threads_from: int = 1 << 40) -> Fingerprint:
    def read_into(buffer: memoryview, offset: int) -> int:
        part = data[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    return fingerprint(
        read_into, len(data), named_safetensors=True, block=block, threads_from=threads_from
    )


SHAPES = st.lists(
    st.tuples(st.sampled_from(["BF16", "F32", "U8"]), st.integers(0, 700)), max_size=6
)


@given(SHAPES, st.integers(1, 300), st.booleans(), st.integers(0, 9), st.randoms())
@settings(max_examples=120, deadline=None)
def test_digests_do_not_depend_on_how_the_file_is_read(
    shapes: list[tuple[str, int]], block: int, threads: bool, cut: int, random: object
) -> None:
    header = write_header([(f"t{i}", dtype, (n,)) for i, (dtype, n) in enumerate(shapes)])
    parsed = parse_header(header)
    data = header + bytes(i * 7 % 251 for i in range(parsed.file_size - len(header)))
    data = data[: max(len(header), len(data) - cut * 50)]
    found = read(data, block=block, threads_from=0 if threads else 1 << 40)
    assert found.sha256 == hashlib.sha256(data).hexdigest()
    assert found == read(data)
    whole = [t for t in parsed.tensors if not t.nbytes or parsed.span(t).stop <= len(data)]
    assert [entry.name for entry in found.tensors] == [t.name for t in whole]
    for entry, tensor in zip(found.tensors, whole, strict=True):
        part = data[parsed.span(tensor).start : parsed.span(tensor).stop]
        assert (entry.sha256, entry.crc32) == (
            hashlib.sha256(part).hexdigest(),
            f"{zlib.crc32(part):08x}",
        )
        offsets = [anchor.offset for anchor in entry.anchors]
        assert offsets == sorted(set(offsets)) and len(offsets) <= 3
        assert all(part[a.offset : a.offset + 64] == a.data for a in entry.anchors)
        assert (len(entry.anchors) > 0) == (len(part) >= 64)


@pytest.mark.parametrize("pattern", [b"\0", b"\x80\x3f", b"\0\0\x80\x3f", bytes(8) + b"\1" * 8])
def test_no_anchor_is_a_constant(pattern: bytes) -> None:
    header = write_header([("t", "U8", (16 * 2000,))])
    data = header + pattern * (16 * 2000 // len(pattern))
    assert read(data).tensors[0].anchors == ()


def test_an_anchor_is_found_behind_zeros() -> None:
    header = write_header([("t", "U8", (8192,))])
    (tensor,) = read(header + bytes(640) + bytes(range(64)) + bytes(8192 - 704)).tensors
    assert [(a.offset, a.data) for a in tensor.anchors] == [(640, bytes(range(64)))]


GOOD = json.loads(b'{"schema": "reefkit.manifest/1", "files": []}')


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(Unusable):
        read_manifest(data, "manifest.json")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 99) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
FILE = {"path": "a", "size": 1, "sha256": "a" * 64}
TENSOR = {
    "name": "t",
    "dtype": "U8",
    "shape": [1],
    "offsets": [0, 1],
    "sha256": "a" * 64,
    "crc32": "0" * 8,
    "anchors": [{"offset": 0, "hex": "00" * 64}],
}


@given(st.sampled_from([*FILE, *TENSOR, "header", "tensors", "fault", "files", "tool"]), VALUES)
@settings(max_examples=200, deadline=None)
def test_a_manifest_with_any_value_is_read_or_refused(key: str, value: object) -> None:
    tensor = {**TENSOR, key: value} if key in TENSOR else TENSOR
    file = {**FILE, "tensors": [tensor], "header": "AAAA"}
    if key in (*FILE, "header", "tensors", "fault"):
        file |= {key: value}
    document = {**GOOD, "files": [file]} | ({key: value} if key in ("files", "tool") else {})
    try:
        read_manifest(json.dumps(document).encode(), "manifest.json")
    except Unusable as error:
        assert error.message.startswith("manifest.json ")


@given(st.text(max_size=20), st.lists(st.integers(0, 1 << 40), max_size=4), st.integers(0, 2))
@settings(max_examples=60, deadline=None)
def test_a_tensor_is_written_as_its_json(name: str, shape: list[int], anchors: int) -> None:
    kept = tuple(Anchor(64 * i, bytes(range(64))) for i in range(anchors))
    entry = TensorEntry(name, "BF16", tuple(shape), 0, 9, "a" * 64, "0" * 8, kept)
    expected = json.dumps(entry.to_json(), sort_keys=True, separators=(",", ":"))
    assert entry.to_text() == expected
