"""Kinds are told by content alone."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sqlite3
import sys
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reefkit.recover.formats.safetensors import write_header
from reefkit.recover.formats.sniff import Kind, kind_of


def archive(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as opened:
        for name in names:
            opened.writestr(name, b"content")
    return buffer.getvalue()


def database(folder: Path) -> bytes:
    with sqlite3.connect(folder / "db") as connection:
        connection.execute("create table t (x)")
    connection.close()
    return (folder / "db").read_bytes()


# The first bytes that torch.save of 2.13 writes: sizes follow the member, padding precedes it.
TORCH_2_13 = (
    b"PK\x03\x04\0\0\x08\x08" + bytes(18) + b"\x10\0\x12\0archive/data.pklFB\x0e\0" + b"Z" * 14
)
FILES: list[tuple[Kind, bytes]] = [
    (Kind.SAFETENSORS, write_header([("a", "F32", (2,))], {"format": "pt"}) + bytes(8)),
    (Kind.SAFETENSORS, (4).to_bytes(8, "little") + b"\n {}"),
    (Kind.GGUF, b"GGUF\x03\0\0\0" + bytes(16)),
    (Kind.GGUF, b"GGUF\0\0\0\x03" + bytes(16)),
    (Kind.TEXT, b"GGUF is a format\n"),
    (Kind.TORCH_ZIP, TORCH_2_13),
    (Kind.TORCH_ZIP, archive("archive/data.pkl", "archive/data/0")),
    (Kind.TORCH_ZIP, archive("step_8/.format_version")),
    (Kind.TORCH_ZIP, archive("a/byteorder")),
    (Kind.TORCH_ZIP, archive("a/.data/serialization_id")),
    (Kind.ZIP, archive("data.pkl")),
    (Kind.ZIP, archive("logs/run.log", "archive/data.pkl")),
    (Kind.ZIP, archive()),
    (Kind.NPY, b"\x93NUMPY\x01\0v\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"),
    (Kind.PICKLE, b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."),
    (Kind.OTHER, b"\x80\x02\0\0\0\0"),
    (Kind.HDF5, b"\x89HDF\r\n\x1a\n" + bytes(8)),
    (Kind.ELF, Path(sys.executable).read_bytes()[:512]),
    (Kind.GZIP, gzip.compress(b"text")),
    (Kind.ZSTD, b"\x28\xb5\x2f\xfd\x04\x00\x01"),
    (Kind.JSON, json.dumps({"r": 32, "lora_alpha": 32}, indent=2).encode()),
    (Kind.JSON, b'[\n  {"a": 1}]'),
    (Kind.JSON, b'["a", "b"]'),
    (Kind.JSON, b"[1.5e-3, 2]"),
    (Kind.JSON, b"[[1], [2]]"),
    (Kind.JSON, b" [] "),
    (Kind.JSON, b'{"step": 1}\n{"step": 2}\n'),
    (Kind.TEXT, b"{not json}"),
    (Kind.TEXT, b"[2026-01-02 10:00:00] step 8\n"),
    (Kind.TEXT, b"[INFO] reward 175.69\r\n"),
    (Kind.TEXT, b"[    0.000000] Linux version\n"),
    (Kind.TEXT, b"\x1b[32mok\x1b[0m\tdone\n"),
    (Kind.TEXT, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 174656040\n"),
    (Kind.TEXT, b"<!DOCTYPE html><html></html>"),
    (Kind.TEXT, b"175.69"),
    (Kind.OTHER, b"caf\xe9 in Latin-1"),
    (Kind.OTHER, "UTF-16".encode("utf-16")),
    (Kind.OTHER, bytes(4096)),
    (Kind.EMPTY, b""),
]


@pytest.mark.parametrize(
    ("kind", "content"), FILES, ids=[f"{kind.value}{i}" for i, (kind, _) in enumerate(FILES)]
)
def test_content_tells_the_kind(kind: Kind, content: bytes) -> None:
    assert kind_of(content, len(content)) is kind
    assert kind_of(content[:4096], None) is kind


def test_a_database_is_told(tmp_path: Path) -> None:
    assert kind_of(database(tmp_path)[:512], None) is Kind.SQLITE


def test_nothing_read_of_a_file_with_bytes_is_not_empty() -> None:
    assert kind_of(b"", 4096) is Kind.OTHER


def test_a_character_cut_by_the_prefix_is_still_text() -> None:
    content = "récompense ".encode() * 100
    assert kind_of(content[:513], len(content)) is Kind.TEXT
    assert kind_of(content[:2], 2) is Kind.OTHER


def test_a_json_document_cut_by_the_prefix_is_still_json() -> None:
    content = json.dumps(["x" * 5000]).encode()
    assert kind_of(content[:512], len(content)) is Kind.JSON


simple = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
documents = st.recursive(
    simple, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10
)


@given(
    documents | st.binary() | st.sets(st.integers()) | st.tuples(documents),
    st.integers(2, pickle.HIGHEST_PROTOCOL),
)
def test_every_pickle_of_protocol_2_and_later_is_told(value: object, protocol: int) -> None:
    assert kind_of(pickle.dumps(value, protocol), None) is Kind.PICKLE


@given(st.lists(documents) | st.dictionaries(st.text(), documents), st.sampled_from([None, 1]))
def test_every_json_object_and_list_is_told(value: object, indent: int | None) -> None:
    content = json.dumps(value, indent=indent).encode()
    assert kind_of(content, len(content)) is Kind.JSON


@given(st.binary(max_size=600), st.none() | st.integers(0, 2000))
def test_any_bytes_have_a_kind(prefix: bytes, size: int | None) -> None:
    assert isinstance(kind_of(prefix, size), Kind)


def test_checkpoints_are_the_formats_that_weights_are_saved_in() -> None:
    kinds = {kind.value for kind in Kind if kind.is_checkpoint}
    assert kinds == {"safetensors", "gguf", "torch-zip", "npy", "pickle", "hdf5"}
