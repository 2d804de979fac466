"""No single byte of a header can change unseen: detected, or proven to mean the same."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from broken_adapters import adapter, copy, header_of, lora
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import HeaderError, ReefError
from reefkit.recover.formats.safetensors import Header, parse_header
from reefkit.recover.repair.header_candidate import HeaderCandidate
from reefkit.recover.repair.stage import Request, plan

WHOLE = adapter(lora(rank=4, layers=1, modules=("self_attn.q_proj", "mlp.down_proj")))
HEADER = header_of(WHOLE)
RAW = HEADER.raw
SPACE = b" \t\n\r"


def changed(place: int, value: int) -> bytes:
    return WHOLE[:place] + bytes([value]) + WHOLE[place + 1 :]


def read(file: bytes) -> Header | None:
    """Read a header as `validate` does: every rule of the format, and the size of the file."""
    try:
        header = parse_header(file)
    except HeaderError:
        return None
    return header if header.file_size == len(file) else None


def means_the_same(header: Header) -> bool:
    """Compare the names, dtypes, shapes and offsets with those expected, and the metadata."""
    return (header.tensors, header.metadata) == (HEADER.tensors, HEADER.metadata)


def is_other_spelling(place: int, value: int) -> bool:
    """Tell the changes that JSON itself calls equal: white space for the padding's spaces."""
    return RAW[place] in SPACE and value in SPACE and not RAW[place:].strip(SPACE)


def every_change() -> Iterator[tuple[int, int]]:
    return ((place, value) for place in range(len(RAW)) for value in range(256))


def test_every_change_of_one_byte_is_seen_or_means_the_same() -> None:
    unseen = 0
    for place, value in every_change():
        if RAW[place] == value:
            continue
        header = read(changed(place, value))
        if header is not None and means_the_same(header):
            assert is_other_spelling(place, value), (place, value)
            unseen += 1
    padding = len(RAW) - len(RAW.rstrip(b" "))
    assert unseen == padding * (len(SPACE) - 1)


def test_what_reads_the_same_takes_the_same_bytes_of_the_file() -> None:
    padding = range(len(RAW.rstrip(b" ")), len(RAW))
    for place in padding:
        for value in SPACE:
            header = read(changed(place, value))
            assert header is not None and means_the_same(header)
            assert [header.span(t) for t in header.tensors] == [
                HEADER.span(t) for t in HEADER.tensors
            ]


SAMPLE = random.Random(8).sample([c for c in every_change() if RAW[c[0]] != c[1]], 400)


@pytest.mark.parametrize("start", range(0, len(SAMPLE), 100))
def test_repair_with_the_expected_header_sees_every_change(start: int) -> None:
    expected = HeaderCandidate(HEADER, "the sibling")
    for place, value in SAMPLE[start : start + 100]:
        broken = copy(changed(place, value))
        try:
            worked_out = plan(Request((broken,), lambda _: [expected]))
        except ReefError as error:
            assert f"{place}:{place + 1}" in error.message  # refuted, and the byte is named
            continue
        found = worked_out.result.header
        if is_other_spelling(place, value) or (found is not None and found.other_metadata):
            continue
        (change,) = worked_out.result.changes
        assert change.range.start <= place < change.range.stop
        composed = worked_out.composed
        assert composed is not None and composed.read(0, composed.size) == WHOLE


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_changes_of_several_bytes_are_seen_too(data: st.DataObject) -> None:
    file = bytearray(WHOLE)
    places = data.draw(st.lists(st.integers(0, len(RAW) - 1), min_size=2, max_size=4, unique=True))
    for place in places:
        file[place] = data.draw(st.sampled_from(b'0123456789 "{}[],:\0abF') | st.integers(0, 255))
    header = read(bytes(file))
    if header is not None and means_the_same(header):
        before = [HEADER.span(t) for t in HEADER.tensors]
        assert [header.span(t) for t in header.tensors] == before
