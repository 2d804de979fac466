from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reefkit.recover.compare import Comparison, Result, compare

Tensors = Mapping[str, tuple[str, list[int], bytes]]


class Memory:
    """Bytes that are in no file."""

    def __init__(self, data: bytes, label: str) -> None:
        self.data = data
        self.label = label
        self.size = len(data)
        self.doubt: str | None = None

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def safetensors(tensors: Tensors, metadata: dict[str, str] | None = None) -> bytes:
    """Lay tensors out in the order given."""
    header: dict[str, object] = {} if metadata is None else {"__metadata__": metadata}
    end = 0
    for name, (dtype, shape, data) in tensors.items():
        offsets = [end, end := end + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    text = json.dumps(header).encode()
    return b"".join([len(text).to_bytes(8, "little"), text, *(t[2] for t in tensors.values())])


def compared(a: bytes, b: bytes) -> Comparison:
    return compare(Memory(a, "A"), Memory(b, "B"))


def f32(*values: float) -> bytes:
    return np.array(values, dtype="<f4").tobytes()


def bf16(*values: float) -> bytes:
    """Cut values that BF16 can hold."""
    return (np.array(values, dtype="<f4").view("<u4") >> 16).astype("<u2").tobytes()


ONE = {"w": ("F32", [4], f32(1, 2, 3, 4)), "b": ("I32", [2], b"12345678")}


def test_the_same_bytes_are_byte_identical() -> None:
    found = compared(safetensors(ONE), safetensors(ONE))
    assert (found.result, found.equal_tensors) == (Result.BYTE_IDENTICAL, 2)
    assert found.first_difference is None


@pytest.mark.parametrize(
    "other",
    [
        safetensors(dict(reversed(ONE.items()))),
        safetensors(ONE, {"format": "pt"}),
        safetensors(ONE) + b"trailing",
    ],
    ids=["order", "metadata", "trailing"],
)
def test_the_same_tensors_laid_out_otherwise_are_re_serialised(other: bytes) -> None:
    for found in (compared(safetensors(ONE), other), compared(other, safetensors(ONE))):
        assert found.result is Result.RE_SERIALISED
        assert (found.re_serialised, found.equal_tensors, found.different_elements) == (True, 2, 0)
        assert found.first_difference is None


@pytest.mark.parametrize(
    ("step", "trailing", "other_file"), [("1", b"", False), ("2", b"", True), ("1", b"more", True)]
)
def test_zeros_and_nans_of_other_bits_are_value_identical(
    step: str, trailing: bytes, other_file: bool
) -> None:
    quiet, signalling = b"\x00\x00\xc0\x7f", b"\x01\x00\x80\xff"
    a = safetensors({"w": ("F32", [3], f32(0.0, 5) + quiet)}, {"step": "1"})
    b = safetensors({"w": ("F32", [3], f32(-0.0, 5) + signalling)}, {"step": step})
    found = compared(a, b + trailing)
    assert (found.result, found.re_serialised) == (Result.VALUE_IDENTICAL, other_file)
    assert (found.different_elements, found.equal_tensors) == (0, 1)


@pytest.mark.parametrize(
    ("wide", "narrow", "original", "cast"),
    [
        ("F32", "BF16", f32(1 + 2**-8, 1 + 3 * 2**-8, 3.4e38), bf16(1, 1 + 2**-6, np.inf)),
        ("F32", "F16", f32(2049, 2051, 1e6), np.array([2048, 2052, np.inf], "<f2").tobytes()),
        ("F64", "F32", np.array([0.1, 1e-46, 1e39]).tobytes(), f32(0.1, 0, np.inf)),
        ("F16", "BF16", np.array([257, 259, 1], "<f2").tobytes(), bf16(256, 260, 1)),
        ("BF16", "F16", bf16(2.0**-25, 3 * 2.0**-25, 65536), b"\x00\x00\x02\x00\x00\x7c"),
    ],
)
def test_a_rounded_copy_is_a_cast_from_the_side_that_holds_the_original(
    wide: str, narrow: str, original: bytes, cast: bytes
) -> None:
    b = safetensors({"w": (narrow, [3], cast), "b": ONE["b"]})
    a = safetensors({"w": (wide, [3], original), "b": ONE["b"]})
    expected = {"from": wide, "to": narrow, "tensors": 1}
    forward, backward = compared(a, b), compared(b, a)
    assert forward.to_json()["casts"] == [{**expected, "source": "a"}]
    assert backward.to_json()["casts"] == [{**expected, "source": "b"}]
    for found in (forward, backward):
        assert (found.result, found.equal_tensors, found.different_elements) == (Result.CAST, 2, 0)


def test_a_widened_copy_is_a_cast_from_either_side() -> None:
    nan = b"\xff\x7f"
    a = safetensors({"w": ("BF16", [3], bf16(0.5, -3) + nan)})
    b = safetensors({"w": ("F32", [3], f32(0.5, -3, np.nan))})
    assert compared(a, b).to_json()["casts"] == [
        {"from": "BF16", "to": "F32", "source": "either", "tensors": 1}
    ]


def test_a_copy_that_was_cut_instead_of_rounded_is_different() -> None:
    values = (1.0, 1 + 3 * 2**-8, 2.0)
    a = safetensors({"w": ("F32", [3], f32(*values))})
    b = safetensors({"w": ("BF16", [3], bf16(*values))})
    found = compared(a, b)
    assert found.result is Result.DIFFERENT
    assert found.different_tensors[0].to_json() == {
        "tensor": "w",
        "dtype": "F32",
        "elements": 3,
        "different_elements": 3,
        "first_element": 1,
        "max_ulp": 1,
        "reason": "dtype F32 against BF16",
        "not_cast": 1,
    }


def test_a_changed_element_is_named_with_its_place_and_distance() -> None:
    a = safetensors(ONE)
    b = bytearray(a)
    offset = a.index(f32(3))
    b[offset] += 5
    document = compared(a, bytes(b)).to_json()
    assert document == {
        "schema": "reefkit.comparison/1",
        "result": "different",
        "note": None,
        "re_serialised": False,
        "first_difference": {"tensor": "w", "element": 2, "offset": offset},
        "different_elements": 1,
        "max_ulp": 5,
        "tensors": {
            "equal": 1,
            "different": [
                {
                    "tensor": "w",
                    "dtype": "F32",
                    "elements": 4,
                    "different_elements": 1,
                    "first_element": 2,
                    "max_ulp": 5,
                    "reason": None,
                    "not_cast": None,
                }
            ],
        },
        "casts": [],
        "only_in_a": [],
        "only_in_b": [],
    }


def test_a_nan_against_a_number_has_no_distance() -> None:
    a = safetensors({"w": ("F32", [2], f32(1, 2))})
    b = safetensors({"w": ("F32", [2], f32(1, np.nan))})
    found = compared(a, b)
    assert (found.result, found.different_elements, found.max_ulp) == (Result.DIFFERENT, 1, None)


@pytest.mark.parametrize(
    ("other", "reason", "count"),
    [
        (("F32", [2, 2], f32(1, 2, 3, 4)), "shape [4] against [2, 2]", 4),
        (("F32", [5], f32(1, 2, 3, 4, 5)), "shape [4] against [5]", 5),
        (("I32", [4], f32(1, 2, 3, 4)), "dtype F32 against I32", 4),
        (("F8_E4M3", [4], b"8888"), "dtype F32 against F8_E4M3", 4),
    ],
)
def test_another_shape_or_dtype_differs_in_all_elements(
    other: tuple[str, list[int], bytes], reason: str, count: int
) -> None:
    found = compared(safetensors(ONE), safetensors({**ONE, "w": other}))
    [difference] = found.different_tensors
    assert found.result is Result.DIFFERENT
    assert (difference.reason, difference.elements) == (reason, count)
    assert found.different_elements == difference.different_elements == count


def test_tensors_of_one_side_are_listed_and_their_elements_count() -> None:
    found = compared(
        safetensors({"w": ONE["w"], "a\n": ("U8", [3], b"abc")}),
        safetensors({"w": ONE["w"], "\u202eb": ("U8", [5], b"abcde")}),
    )
    assert (found.only_in_a, found.only_in_b) == (("a\n",), ("\u202eb",))
    assert (found.result, found.different_elements) == (Result.DIFFERENT, 8)
    assert found.first_difference is not None
    assert (found.first_difference.tensor, found.first_difference.element) == ("a\n", None)


def test_a_tensor_of_b_alone_has_no_offset_in_a() -> None:
    found = compared(safetensors({"w": ONE["w"]}), safetensors(ONE))
    assert found.first_difference is not None
    assert found.first_difference.to_json() == {"tensor": "b", "element": None, "offset": None}


@pytest.mark.parametrize("both", [False, True])
def test_what_is_cut_off_is_different_and_named(both: bool) -> None:
    whole = safetensors({**ONE, "c": ("U8", [4], b"abcd"), "d": ("U8", [9], b"abcdefghi")})
    cut = whole[: -4 - 9 - 5]  # `b` keeps three bytes of its eight: no whole element
    other = whole if not both else cut + b"?"
    found = compared(cut, other)
    assert found.result is Result.DIFFERENT
    assert found.note is not None
    assert found.note.startswith("A ends before the end of `b`, `c`, `d`.")
    assert ("B ends" in found.note) == both
    assert [(one.tensor, one.first_element) for one in found.different_tensors] == [
        ("b", 0),
        ("c", 0),
        ("d", 0),
    ]
    assert found.different_elements == 2 + 4 + 9
    assert found.equal_tensors == 1


def test_elements_before_the_cut_are_compared() -> None:
    whole = safetensors({"w": ("F32", [4], f32(1, 2, 3, 4))})
    cut = safetensors({"w": ("F32", [4], f32(1, 9, 3, 4))})[:-3]
    [difference] = compared(whole, cut).different_tensors
    assert (difference.different_elements, difference.first_element) == (2, 1)
    assert difference.reason == "1 element missing"


def test_a_cut_cast_is_different_from_the_cut_on() -> None:
    a = safetensors({"w": ("F32", [4], f32(1, 2, 3, 4))})
    b = safetensors({"w": ("BF16", [4], bf16(1, 2, 3, 4))})[:-3]
    [difference] = compared(a, b).different_tensors
    assert (difference.different_elements, difference.first_element) == (4, 2)
    assert difference.not_cast == 2


def test_six_bit_elements_before_a_cut_count_in_whole_bytes() -> None:
    whole = safetensors({"w": ("F6_E2M3", [8], b"abcdef")})
    [difference] = compared(whole, whole[:-2]).different_tensors
    assert (difference.different_elements, difference.first_element) == (4, 4)


def test_files_cut_at_the_same_place_are_byte_identical_with_a_note() -> None:
    cut = safetensors(ONE)[:-5]
    found = compared(cut, cut)
    assert (found.result, found.note) == (
        Result.BYTE_IDENTICAL,
        "A ends before the end of `b`.",
    )


@pytest.mark.parametrize(
    ("a", "b", "offset"),
    [
        (b"abc" * 99, b"abc" * 98 + b"abd", 296),
        (b"abc", b"abcdef", 3),
        (b"", b"x", 0),
        (safetensors(ONE), b'{"not": "safetensors"}', 0),
        (safetensors(ONE), safetensors(ONE).replace(b"F32", b"F99"), 26),
        (safetensors(ONE), safetensors(ONE)[:40], 40),
    ],
    ids=["text", "prefix", "empty", "other format", "bad dtype", "cut header"],
)
def test_what_is_not_safetensors_is_compared_byte_by_byte(a: bytes, b: bytes, offset: int) -> None:
    document = compared(a, b).to_json()
    assert document["result"] == "different"
    assert str(document["note"]).startswith("Compared byte by byte.")
    assert document["first_difference"] == {"tensor": None, "element": None, "offset": offset}


@pytest.mark.parametrize(
    "hostile",
    [
        b"\xff" * 8 + b'{"',
        (10**6).to_bytes(8, "little") + b'{"a":' + b"[" * 10**6,
        safetensors({"w": ("F32", [4], b"")}),
        safetensors({"w": ("U8", [1 << 62], b"")}).replace(b"[0, 0]", b"[0,%d]" % (1 << 62)),
    ],
    ids=["length", "nesting", "size mismatch", "header text"],
)
def test_a_hostile_header_is_different_and_said_to_be(hostile: bytes) -> None:
    found = compared(safetensors(ONE), hostile)
    assert found.result is Result.DIFFERENT
    assert found.note


def test_a_tensor_declared_beyond_all_memory_is_counted_without_being_read() -> None:
    shape = 1 << 60
    entry = {"w": {"dtype": "U8", "shape": [shape], "data_offsets": [0, shape]}}
    text = json.dumps(entry).encode()
    head = len(text).to_bytes(8, "little") + text
    found = compared(head + b"abc", head + b"abd")
    assert (found.different_elements, found.equal_tensors) == (shape - 2, 0)


tensors = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.binary(max_size=6).map(lambda data: ("U8", [len(data)], data)),
)


@given(tensors, tensors)
def test_integer_tensors_are_judged_as_their_bytes_are(a: Tensors, b: Tensors) -> None:
    found = compared(safetensors(a), safetensors(b))
    if a != b:
        assert found.result is Result.DIFFERENT
        assert found.first_difference is not None
    elif list(a) == list(b):
        assert found.result is Result.BYTE_IDENTICAL
    else:
        assert found.result in (Result.BYTE_IDENTICAL, Result.RE_SERIALISED)


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, 400),
)
def test_damage_anywhere_gives_a_result_and_valid_json(
    changes: list[tuple[int, int]], length: int
) -> None:
    whole = safetensors({**ONE, "x": ("BF16", [2, 2], bf16(1, 2, 3, 4))}, {"k": "v"})
    damaged = bytearray(whole)
    for offset, value in changes:
        damaged[offset % len(whole)] = value
    other = bytes(damaged[: min(len(whole), length + 20)])
    found = compared(whole, other)
    assert (found.result is Result.BYTE_IDENTICAL) == (whole == other)
    assert json.loads(json.dumps(found.to_json()))["result"] == found.result.value
