"""The strict header reader and writer against the rules, the library, and arbitrary bytes."""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import safetensors
from hypothesis import assume, given
from hypothesis import strategies as st

from reefkit.errors import HeaderError
from reefkit.recover.formats import safetensors_errors as errors
from reefkit.recover.formats.safetensors import (
    DTYPE_BITS,
    MAX_HEADER,
    CutTensor,
    coverage,
    header_length,
    looks_like,
    parse_header,
    read_header,
    write_header,
)
from reefkit.recover.ranges import Range

Spec = tuple[str, str, tuple[int, ...]]

LIBRARY_DTYPES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
ONE = '{"dtype":"U8","shape":[1],"data_offsets":[0,1]}'
SMALL = (
    '{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},'
    '"b":{"dtype":"F16","shape":[2,0],"data_offsets":[4,4]},'
    '"c":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}}'
)


def raw(text: str | bytes) -> bytes:
    packed = text.encode() if isinstance(text, str) else text
    return len(packed).to_bytes(8, "little") + packed


def entry(**fields: object) -> bytes:
    """A header of one tensor `t` with some fields changed, or left out by `...`."""
    whole = {"dtype": "U8", "shape": [1], "data_offsets": [0, 1], **fields}
    return raw(json.dumps({"t": {key: value for key, value in whole.items() if value is not ...}}))


def qwen3_8b_adapter(rank: int = 32) -> Iterator[Spec]:
    """The 504 tensors of a LoRA over all linear layers of Qwen3-8B."""
    linear = {
        "self_attn.q_proj": (4096, 4096),
        "self_attn.k_proj": (4096, 1024),
        "self_attn.v_proj": (4096, 1024),
        "self_attn.o_proj": (4096, 4096),
        "mlp.gate_proj": (4096, 12288),
        "mlp.up_proj": (4096, 12288),
        "mlp.down_proj": (12288, 4096),
    }
    for layer in range(36):
        for module, (inputs, outputs) in linear.items():
            name = f"base_model.model.model.layers.{layer}.{module}"
            yield f"{name}.lora_A.weight", "BF16", (rank, inputs)
            yield f"{name}.lora_B.weight", "BF16", (outputs, rank)


def library_file(tensors: list[Spec], metadata: dict[str, str] | None) -> bytes:
    """Let the library write zeros of these shapes."""
    specs: dict[str, safetensors.TensorSpec] = {}
    elements = {name: math.prod(shape) for name, _, shape in tensors}
    size = max((elements[name] * DTYPE_BITS[dtype] // 8 for name, dtype, _ in tensors), default=0)
    zeros = ctypes.create_string_buffer(size + 1)
    for name, dtype, shape in tensors:
        specs[name] = safetensors.TensorSpec(
            dtype=LIBRARY_DTYPES[dtype],
            shape=list(shape),
            data_ptr=ctypes.addressof(zeros),
            data_len=elements[name] * DTYPE_BITS[dtype] // 8,
        )
    return bytes(safetensors.serialize(specs, metadata))


def library_reads(file: bytes) -> dict[str, tuple[str, list[int], int]] | None:
    try:
        read = cast("list[Any]", safetensors.deserialize(file))  # pyright: ignore[reportUnknownMemberType]
    except safetensors.SafetensorError:
        return None
    return {name: (t["dtype"], t["shape"], len(t["data"])) for name, t in read}


def reefkit_reads(file: bytes) -> dict[str, tuple[str, list[int], int]] | None:
    try:
        length = header_length(file)
        header = parse_header(file, buffer_size=len(file) - 8 - length)
    except errors.DuplicateName:
        raise
    except HeaderError:
        return None
    return {t.name: (t.dtype, list(t.shape), t.nbytes) for t in header.tensors}


shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
metadatas = st.none() | st.dictionaries(st.text(), st.text(), max_size=3)


@st.composite
def specs(draw: st.DrawFn, dtypes: tuple[str, ...] = tuple(DTYPE_BITS)) -> list[Spec]:
    names = draw(st.lists(st.text().filter(lambda n: n != "__metadata__"), unique=True, max_size=8))
    chosen = [(name, draw(st.sampled_from(dtypes)), draw(shapes)) for name in names]
    return [
        (name, dtype, shape if math.prod(shape) * DTYPE_BITS[dtype] % 8 == 0 else (*shape, 4))
        for name, dtype, shape in chosen
    ]


# --- the case that everything is measured by ------------------------------------------------------


def test_the_qwen3_8b_adapter_has_the_known_sizes() -> None:
    written = write_header(qwen3_8b_adapter(), {"format": "pt"})
    header = parse_header(written)
    assert (len(header.tensors), header.data_start, header.file_size) == (504, 68_136, 174_656_040)
    assert header.metadata == {"format": "pt"}
    assert written == library_file(list(qwen3_8b_adapter()), {"format": "pt"})[:68_136]


# --- reading what is right ------------------------------------------------------------------------


@given(specs(), metadatas)
def test_what_is_written_is_read_back(tensors: list[Spec], metadata: dict[str, str] | None) -> None:
    header = parse_header(write_header(tensors, metadata))
    assert sorted((t.name, t.dtype, t.shape) for t in header.tensors) == sorted(tensors)
    assert (None if header.metadata is None else dict(header.metadata)) == metadata
    again = write_header([(t.name, t.dtype, t.shape) for t in header.tensors], header.metadata)
    assert again == header.raw


@given(specs(tuple(LIBRARY_DTYPES)), st.none() | st.dictionaries(st.text(), st.text(), max_size=1))
def test_the_writer_makes_the_bytes_of_the_library(
    tensors: list[Spec], metadata: dict[str, str] | None
) -> None:
    assume(tensors or metadata != {})  # here the library writes `{},"__metadata__":{}}`
    written = write_header(tensors, metadata)
    assert library_file(tensors, metadata)[: len(written)] == written


def test_all_dtypes_of_the_library_are_known_with_their_width() -> None:
    assert len(DTYPE_BITS) == 22
    for dtype, bits in DTYPE_BITS.items():
        file = entry(dtype=dtype, shape=[4], data_offsets=[0, bits // 2]) + bytes(bits // 2)
        assert library_reads(file) == reefkit_reads(file) == {"t": (dtype, [4], bits // 2)}


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        " \t\r\n {} \t\r\n ",
        '{"__metadata__":null}',
        '{"__metadata__":{}}',
        '{"__metadata__":{"a":"b","a":"c","d":"\\ud83d\\ude00"}}',
        '{"\\u005f_metadata__":{"a":"b"}}',
        f'{{"":{ONE}}}',
        f'{{"a/../\\n\\u0000\\u202e":{ONE}}}',
        '{"t":{"data_offsets":[0,1],"dtype":"U\\u0038","shape":[1]}}',
        '{"t":{"x":{"a":[1,null,{"b":[]}]},"dtype":"U8","shape":[1],"data_offsets":[0,1],"y":0}}',
        f'{{"t":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[{10**308},1e-999,-0]}}}}',
        '{"t":{"dtype":"U8","shape":[0,18446744073709551615,2],"data_offsets":[0,0]}}',
        '{"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1,"x":2}}',
        f'{{"t":{{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{"[" * 125}{"]" * 125}}}}}',
        '{"z":{"dtype":"F32","shape":[0],"data_offsets":[1,1]},'
        '"y":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
        '"x":{"dtype":"F32","shape":[0],"data_offsets":[1,1]}}',
        '{"t":["U8",[1],[0,1]]}',
        '{"t":{"dtype":{"F4":null},"shape":[2],"data_offsets":[0,1]}}',
        SMALL,
    ],
)
def test_odd_but_legal_headers_read_as_in_the_library(text: str) -> None:
    file = raw(text) + bytes(parse_header(raw(text)).file_size - len(raw(text)))
    expected = library_reads(file)
    assert expected is not None
    assert reefkit_reads(file) == expected


def test_metadata_is_what_the_library_gives(tmp_path: Path) -> None:
    file = raw('{"__metadata__":{"a":"b","a":"\\ud83d\\ude00","d":"\\""}}')
    (tmp_path / "m.safetensors").write_bytes(file)
    file_handle = safetensors.safe_open(tmp_path / "m.safetensors", framework="numpy")
    with cast("Any", file_handle) as opened:
        assert opened.metadata() == dict(parse_header(file).metadata or {})


def test_bytes_behind_the_header_are_not_part_of_it() -> None:
    assert parse_header(raw(SMALL) + b"data").raw == raw(SMALL)


@pytest.mark.parametrize("size", [None, len(raw(SMALL)) + 8, len(raw(SMALL))])
@pytest.mark.parametrize("step", [1, 7, 10**6])
def test_short_reads_are_continued(step: int, size: int | None) -> None:
    file = raw(SMALL) + bytes(8)
    assert read_header(lambda at, n: file[at : at + min(n, step)], size) == parse_header(raw(SMALL))


# --- refusing what is wrong -----------------------------------------------------------------------


def pair(first: tuple[int, int], second: tuple[int, int]) -> bytes:
    """Two tensors of bytes, `a` and `b`, at these offsets; the data begins at 113."""
    form = '"%s":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}'
    entries = [form % (n, e - b, b, e) for n, (b, e) in zip("ab", (first, second), strict=True)]
    return raw("{" + ",".join(entries) + "}")


def unknown(value: str) -> bytes:
    """A field that nobody reads; its value begins at offset 18."""
    return raw(f'{{"a":{{"x":{value}}}}}')


REFUSED: list[tuple[bytes, type[HeaderError], dict[str, object]]] = [
    (b"1234567", errors.HeaderTooSmall, {"present": 7, "length": None}),
    (bytes(64), errors.HeaderTooSmall, {"length": 0, "looks_like": "zeros"}),
    (raw("{"), errors.HeaderTooSmall, {"length": 1}),
    (
        (MAX_HEADER + 1).to_bytes(8, "little"),
        errors.HeaderTooLarge,
        {"length": 100_000_001, "limit": 100_000_000, "looks_like": "nothing known"},
    ),
    (raw("{}  ")[:-1], errors.HeaderCutShort, {"length": 4, "present": 11, "missing": 1}),
    (raw(b'{"\xff"'), errors.HeaderNotUtf8, {"offset": 10, "reason": "invalid start byte"}),
    (raw("[]"), errors.HeaderNotJson, {"offset": 8, "reason": "it is not an object"}),
    (raw("\ufeff{}"), errors.HeaderNotJson, {"offset": 8, "reason": "it is not an object"}),
    (raw("\v{}"), errors.HeaderNotJson, {"offset": 8, "reason": "it is not an object"}),
    (raw('{"é":5é'), errors.BadEntry, {"tensor": "é", "field": None}),
    (raw('{"é" 5}'), errors.HeaderNotJson, {"offset": 14, "reason": "`:` is missing"}),
    (raw("{}\0\0\0"), errors.HeaderNotJson, {"offset": 10, "reason": "3 NUL bytes pad it"}),
    (raw("{} {}"), errors.HeaderNotJson, {"offset": 11}),
    (raw(f'{{"a":{ONE},}}'), errors.HeaderNotJson, {"reason": "a name in quotes is missing"}),
    (unknown("[1 2]"), errors.HeaderNotJson, {"offset": 21, "reason": "`,` or `]` is missing"}),
    (unknown("[1,]"), errors.HeaderNotJson, {"offset": 21, "reason": "expecting value"}),
    (unknown("NaN"), errors.HeaderNotJson, {"offset": 18, "reason": "NaN is not a JSON value"}),
    (unknown("-Infinity"), errors.HeaderNotJson, {"offset": 18}),
    (unknown("1e999"), errors.HeaderNotJson, {"offset": 18, "reason": "a number is out of range"}),
    (unknown("-" + "9" * 5000), errors.HeaderNotJson, {"reason": "a number is out of range"}),
    (unknown('"\\ud800"'), errors.HeaderNotJson, {"offset": 18}),
    (raw('{"\\udc00\\ud800":{}}'), errors.HeaderNotJson, {"offset": 9}),
    (unknown("[" * 99_999), errors.HeaderNotJson, {"offset": 18 + 125}),
    (unknown(f"[{'0,' * 10**6}0]"), errors.HeaderNotJson, {"offset": 18 + 2 * 10**6 - 1}),
    (raw(f'{{"a":{ONE},"a":{ONE}}}'), errors.DuplicateName, {"name": "a", "offset": 61}),
    (raw(f'{{"a":{ONE},"\\u0061":5}}'), errors.DuplicateName, {"name": "a", "offset": 61}),
    (
        raw('{"__metadata__":null,"__metadata__":{}}'),
        errors.DuplicateName,
        {"name": "__metadata__", "offset": 29},
    ),
    (raw('{"__metadata__": []}'), errors.BadMetadata, {"offset": 25, "key": None}),
    (raw(f'{{"__metadata__":{ONE}}}'), errors.BadMetadata, {"offset": 46, "key": "shape"}),
    (raw('{"__metadata__":{"k": null}}'), errors.BadMetadata, {"offset": 30, "key": "k"}),
    (raw('{"t":null}'), errors.BadEntry, {"tensor": "t", "field": None}),
    (raw('{"t":{"shape":[],"shape":[]}}'), errors.BadEntry, {"reason": "is there twice"}),
    (entry(dtype=...), errors.BadEntry, {"field": "dtype", "reason": "is missing"}),
    (entry(shape=...), errors.BadEntry, {"field": "shape", "reason": "is missing"}),
    (entry(data_offsets=...), errors.BadEntry, {"field": "data_offsets", "reason": "is missing"}),
    (raw('{"t":["U8",[1],[0,1],0]}'), errors.BadEntry, {"tensor": "t", "field": None}),
    (raw('{"t":["U8",[1]]}'), errors.BadEntry, {"field": "data_offsets", "reason": "is missing"}),
    (entry(dtype={"U8": 0}), errors.BadEntry, {"field": "dtype", "reason": "is not a string"}),
    (entry(dtype=None), errors.BadEntry, {"field": "dtype", "reason": "is not a string"}),
    (entry(shape=None), errors.BadEntry, {"field": "shape", "reason": "is not a list"}),
    (entry(data_offsets=[0]), errors.BadEntry, {"reason": "has length 1, not 2"}),
    (entry(data_offsets=[0, 1, 2]), errors.BadEntry, {"reason": "has length 3, not 2"}),
    (entry(dtype="f32"), errors.UnknownDtype, {"tensor": "t", "dtype": "f32"}),
    (entry(dtype="F128"), errors.UnknownDtype, {"tensor": "t", "dtype": "F128"}),
    (
        entry(dtype="F16", shape=[3, 2], data_offsets=[0, 11]),
        errors.SizeMismatch,
        {"tensor": "t", "dtype": "F16", "shape": (3, 2), "needed": 12, "given": 11},
    ),
    (
        entry(dtype="F4", shape=[3], data_offsets=[0, 2]),
        errors.MisalignedTensor,
        {"tensor": "t", "dtype": "F4", "shape": (3,), "bits": 12},
    ),
    (
        entry(shape=[2**63, 2, 0], data_offsets=[0, 0]),
        errors.SizeOverflow,
        {"tensor": "t", "dtype": "U8", "shape": (2**63, 2, 0)},
    ),
    (entry(dtype="U64", shape=[2**58]), errors.SizeOverflow, {"dtype": "U64"}),
    (entry(data_offsets=[1, 0]), errors.OffsetReversed, {"tensor": "t", "offset": 69, "end": 68}),
    (entry(data_offsets=[3, 4]), errors.OffsetGap, {"previous": None, "offset": 68, "size": 3}),
    (
        pair((0, 4), (6, 8)),
        errors.OffsetGap,
        {"tensor": "b", "previous": "a", "offset": 113 + 4, "size": 2},
    ),
    (
        pair((0, 4), (1, 8)),
        errors.OffsetOverlap,
        {"tensor": "b", "previous": "a", "offset": 113 + 1, "size": 3},
    ),
    (pair((0, 4), (0, 4)), errors.OffsetOverlap, {"tensor": "b", "previous": "a", "size": 4}),
    (pair((0, 4), (2, 2)), errors.OffsetOverlap, {"tensor": "b", "previous": "a", "size": 0}),
]


@pytest.mark.parametrize(
    ("file", "kind", "facts"),
    REFUSED,
    ids=[f"{kind.__name__}{number}" for number, (_, kind, _) in enumerate(REFUSED)],
)
def test_each_fault_has_its_class_and_its_numbers(
    file: bytes, kind: type[HeaderError], facts: dict[str, object]
) -> None:
    with pytest.raises(HeaderError) as caught:
        parse_header(file)
    assert type(caught.value) is kind
    assert {name: getattr(caught.value, name) for name in facts} == facts
    said = [f"{fact:,}" if isinstance(fact, int) else fact for fact in facts.values()]
    assert all(fact in caught.value.message for fact in said if isinstance(fact, str))
    assert caught.value.remedy


@pytest.mark.parametrize("field", ["shape", "data_offsets"])
@pytest.mark.parametrize(
    "wrong", ["true", "1.0", "1e0", "-0", "-1", '"1"', "null", "[1]", "{}", str(2**64), "9" * 300]
)
def test_only_whole_numbers_up_to_64_bits_count(field: str, wrong: str) -> None:
    fields = {"dtype": '"U8"', "shape": "[1]", "data_offsets": "[0,1]", field: f"[0,{wrong}]"}
    file = raw('{"t":{' + ",".join(f'"{key}":{value}' for key, value in fields.items()) + "}}")
    with pytest.raises(errors.BadEntry) as caught:
        parse_header(file)
    assert (caught.value.tensor, caught.value.field) == ("t", field)
    assert wrong[:160] in caught.value.message


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (b"version https://git-lfs", "a git-lfs pointer"),
        (b"<!DOCTYPE html>", "an HTML or XML page"),
        (b"PK\x03\x04\x00\x00\x08\x08", "a zip archive"),
        (b"\x80\x02\x8a\nl\xfc\x9cF", "a pickle"),
        (b"GGUF\x03\x00\x00\x00\x01", "a GGUF model"),
        (b"\x7fELF\x02\x01\x01\x00", "an ELF program"),
        (b'{"weight": 1}', "JSON without the 8 bytes of length"),
        (b"step 8 of 16", "text"),
    ],
)
def test_what_is_no_header_at_all_is_named(first: bytes, words: str) -> None:
    with pytest.raises(errors.HeaderTooLarge, match=words):
        header_length(first.ljust(8))


def test_the_data_must_be_what_the_tensors_take() -> None:
    with pytest.raises(errors.BufferMismatch, match="8 bytes and the data has 5: 3 missing"):
        parse_header(raw(SMALL), buffer_size=5)
    with pytest.raises(errors.BufferMismatch, match="8 bytes and the data has 10: 2 too many"):
        parse_header(raw(SMALL), buffer_size=10)


@pytest.mark.parametrize("size", [None, 60])
def test_a_file_that_ends_in_its_header_lacks_a_known_number_of_bytes(size: int | None) -> None:
    file = raw(SMALL)[:60]
    with pytest.raises(errors.HeaderCutShort) as caught:
        read_header(lambda at, n: file[at : at + n], size)
    assert caught.value.missing == len(raw(SMALL)) - 60


def test_names_in_messages_are_escaped_and_cut() -> None:
    with pytest.raises(errors.BadEntry) as caught:
        parse_header(raw('{"\u202e\\n' + "x" * 10**6 + '":1}'))
    assert caught.value.tensor == "\u202e\n" + "x" * 10**6
    assert caught.value.message.startswith("Tensor `\\u202e\\x0axxx")
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    ("tensors", "kind"),
    [
        ([("a", "U8", (1,)), ("a", "F32", (2,))], errors.DuplicateName),
        ([("__metadata__", "U8", (1,))], errors.DuplicateName),
        ([("a", "uint8", (1,))], errors.UnknownDtype),
        ([("a", "F4", (3,))], errors.MisalignedTensor),
        ([("a", "U8", (-1,))], errors.BadEntry),
        ([("a", "U8", (2**40, 2**40))], errors.SizeOverflow),
        ([("\udc80", "U8", (1,))], errors.HeaderNotUtf8),
    ],
)
def test_nothing_is_written_that_could_not_be_read(
    tensors: list[Spec], kind: type[HeaderError]
) -> None:
    with pytest.raises(kind):
        write_header(tensors)


# --- arbitrary and mutated bytes ------------------------------------------------------------------


def header_texts() -> st.SearchStrategy[str]:
    """JSON that looks like a header, with any value in any place."""
    numbers = st.integers(-1, 5) | st.sampled_from([2**63, 2**64 - 1, 2**64, 10**309]) | st.floats()
    scalars = numbers | st.none() | st.booleans() | st.text(max_size=3)
    keys = st.sampled_from(["dtype", "shape", "data_offsets", "a"])
    values = st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    )
    fields = st.fixed_dictionaries(
        {
            "dtype": st.sampled_from(["U8", "F4", "F16"]) | scalars,
            "shape": st.lists(st.integers(0, 3), max_size=3) | values,
            "data_offsets": st.tuples(st.integers(0, 4), st.integers(0, 4)) | values,
        },
        optional={"x": values},
    )
    names = st.sampled_from(["a", "b", "c", "__metadata__"])
    headers = st.dictionaries(names, fields | st.dictionaries(names, st.text(max_size=2)) | scalars)
    return st.builds(json.dumps, headers, ensure_ascii=st.booleans())


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A header that the library wrote, with a few bytes replaced, removed, inserted or copied."""
    tensors = draw(specs(tuple(LIBRARY_DTYPES)))
    file = library_file(tensors, draw(st.sampled_from([None, {"format": "pt"}])))
    end = 8 + header_length(file)
    text, data = bytearray(file[8:end]), file[end:]
    for _ in range(draw(st.integers(1, 3))):
        at, stop = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        stop = min(stop, at + draw(st.integers(0, 60)))
        old = bytes(text[at:stop])
        pieces = (
            b'" , : { } [ ] 0 1 -1 .5 e9 null true \\ \\u00e9 \\ud800 "dtype" \x00 \xff \n'.split(
                b" "
            )
        )
        text[at:stop] = draw(st.sampled_from([b"", old * 2, *pieces]))
    return raw(bytes(text)) + data


@given(
    st.binary(max_size=200) | st.binary().map(raw) | st.text().map(raw) | header_texts().map(raw)
)
def test_arbitrary_bytes_raise_nothing_but_header_errors(file: bytes) -> None:
    try:
        header = parse_header(file)
    except HeaderError as error:
        assert error.message.endswith(".")
    else:
        assert looks_like(file[:64], len(file)) or file[8:64].isspace()
        assert parse_header(header.raw) == header


@given(mutated())
def test_mutated_headers_are_accepted_as_by_the_library(file: bytes) -> None:
    with contextlib.suppress(errors.DuplicateName):
        assert reefkit_reads(file) == library_reads(file)


@given(header_texts(), st.integers(0, 8))
def test_any_values_are_accepted_as_by_the_library(text: str, data: int) -> None:
    file = raw(text) + bytes(data)
    assert reefkit_reads(file) == library_reads(file)


@pytest.mark.parametrize("repeated", ["[],", "{},", "1234,", '"ab",', "0.5,", "[", '{"a":'])
def test_a_hostile_value_takes_little_more_memory_than_its_text(repeated: str) -> None:
    file = unknown("[" + repeated * (200_000 // len(repeated)))
    tracemalloc.start()
    try:
        with pytest.raises(errors.HeaderNotJson):
            parse_header(file)
        assert tracemalloc.get_traced_memory()[1] < 2 * len(file)
    finally:
        tracemalloc.stop()


# --- what lies where ------------------------------------------------------------------------------


def sniffs() -> list[tuple[bytes, bool]]:
    real = write_header(qwen3_8b_adapter(), {"format": "pt"})[:64]
    return [
        (real, True),
        (raw("{}"), True),
        (raw(' \n\t\r{ "a":{}}'), True),
        (real[:10], True),
        (real[:9], False),
        (b"", False),
        (bytes(64), False),
        (b"\x7fELF\x02\x01\x01".ljust(64, b"\0"), False),
        (b"PK\x03\x04" + bytes(60), False),
        (b'{"a":{"dtype":"F32"}}', False),
        (b"2026-01-02 step 8\n" * 4, False),
        (b"<!DOCTYPE html><html>", False),
        (b"version https://git-lfs.github.com/spec/v1\n", False),
        ((64).to_bytes(8, "little") + b"[1, 2]", False),
        ((64).to_bytes(8, "little") + b"{1: 2}", False),
        ((2).to_bytes(8, "little") + b'  {"a', False),
        ((MAX_HEADER + 1).to_bytes(8, "little") + b'{"a', False),
    ]


@pytest.mark.parametrize(("prefix", "expected"), sniffs())
def test_a_header_is_told_by_its_first_bytes(prefix: bytes, expected: bool) -> None:
    assert looks_like(prefix, None) is looks_like(prefix, max(20, len(prefix))) is expected


def test_a_file_too_small_for_any_header_is_none() -> None:
    assert not looks_like(raw('{"'), 9)


@given(specs(), st.lists(st.tuples(st.integers(0, 900), st.integers(0, 90)), max_size=6))
def test_touched_names_what_a_plain_comparison_names(
    tensors: list[Spec], places: list[tuple[int, int]]
) -> None:
    header = parse_header(write_header(tensors))
    ranges = [Range(start, start + size) for start, size in places]
    expected = tuple(
        tensor.name
        for tensor in header.tensors
        if any(
            max(span.start, piece.start) < min(span.stop, piece.stop)
            for span in [header.span(tensor)]
            for piece in ranges
        )
    )
    assert header.touched(ranges) == expected


@pytest.mark.parametrize(
    ("size", "whole", "cut", "absent", "short_by", "trailing"),
    [
        (10, ("b",), (), ("a", "c"), len(raw(SMALL)) - 2, 0),
        (len(raw(SMALL)), ("b",), (), ("a", "c"), 8, 0),
        (len(raw(SMALL)) + 1, ("b",), (CutTensor("a", 1, 4),), ("c",), 7, 0),
        (len(raw(SMALL)) + 4, ("a", "b"), (), ("c",), 4, 0),
        (len(raw(SMALL)) + 7, ("a", "b"), (CutTensor("c", 3, 4),), (), 1, 0),
        (len(raw(SMALL)) + 8, ("a", "b", "c"), (), (), 0, 0),
        (len(raw(SMALL)) + 9, ("a", "b", "c"), (), (), 0, 1),
    ],
)
def test_coverage_tells_what_a_cut_file_still_holds(
    size: int,
    whole: tuple[str, ...],
    cut: tuple[CutTensor, ...],
    absent: tuple[str, ...],
    short_by: int,
    trailing: int,
) -> None:
    found = coverage(parse_header(raw(SMALL)), size)
    assert (found.whole, found.cut, found.absent) == (whole, cut, absent)
    assert found.to_json() == {
        "declared": len(raw(SMALL)) + 8,
        "actual": size,
        "short_by": short_by,
        "trailing": trailing,
        "whole": len(whole),
        "cut": [{"name": c.name, "present": c.present, "nbytes": c.nbytes} for c in cut],
        "absent": list(absent),
    }
