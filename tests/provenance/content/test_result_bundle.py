"""Result bundles: originals are rebuilt where possible, and nothing else counts as proof."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import ReefError, Unusable
from reefkit.provenance.content.result_bundle import is_result_bundle, read_result_bundle
from reefkit.provenance.finding import FindingKind
from reefkit.records.strict_json import parse_object

VALUE: dict[str, Any] = {"z": [1, 2.5, None], "a": {"ü": "é\u2028", "n": -0.0}, "big": 10**30}


def artifact(kind: str, original: bytes, content: object) -> dict[str, object]:
    digest = hashlib.sha256(original).hexdigest()
    return {"format": kind, "original_sha256": digest, "content": content}


def bundle(**artifacts: dict[str, object]) -> bytes:
    document = {
        "schema_version": 1,
        "gpu": "NVIDIA H100",
        "description": "timesteps",
        "artifacts": artifacts,
    }
    return json.dumps(document, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("original", "rule"),
    [
        (b"one\ntwo\n", "as it is"),
        (b"one\ntwo", "without its final newline"),
        (b"one\ntwo\n\n", "with a final newline"),
        (b"one\r\ntwo\r\n", "as it is, with CRLF line ends"),
        (b"\xef\xbb\xbfone\ntwo\n", "as it is, after a byte order mark"),
    ],
)
def test_texts_are_rebuilt(original: bytes, rule: str) -> None:
    found = read_result_bundle(bundle(log=artifact("text", original, "one\ntwo\n")), "bundle")
    assert (found.gpu, found.description, found.findings) == ("NVIDIA H100", "timesteps", ())
    (one,) = found.artifacts
    assert (one.rule, one.data) == (rule, original)


@pytest.mark.parametrize("newline", ["", "\n"])
@pytest.mark.parametrize("sort", [True, False])
@pytest.mark.parametrize("escape", [True, False])
@pytest.mark.parametrize(
    "layout",
    [{}, {"separators": (",", ":")}, {"indent": 1}, {"indent": 2}, {"indent": 4}, {"indent": "\t"}],
)
def test_values_are_rebuilt_in_every_usual_way(
    layout: dict[str, Any], escape: bool, sort: bool, newline: str
) -> None:
    text = json.dumps(VALUE, sort_keys=sort, ensure_ascii=escape, **layout) + newline
    found = read_result_bundle(bundle(r=artifact("json", text.encode(), VALUE)), "bundle")
    assert found.artifacts[0].data == text.encode()
    assert found.findings == ()


def test_an_original_that_is_not_there_is_neither_pass_nor_failure() -> None:
    original = b'{"a":   1.50}'
    found = read_result_bundle(bundle(r=artifact("json", original, {"a": 1.5})), "bundle")
    assert found.artifacts[0].rule is None and found.artifacts[0].data is None
    assert [each.kind for each in found.findings] == [FindingKind.NOT_CHECKED]
    assert "not in the bundle" in found.findings[0].diagnosis


def test_a_text_that_was_changed_is_a_mismatch() -> None:
    found = read_result_bundle(bundle(log=artifact("text", b"175.69", "275.69")), "bundle")
    assert [(each.kind, each.path) for each in found.findings] == [(FindingKind.MISMATCH, "log")]


def test_artifacts_come_sorted() -> None:
    data = bundle(b=artifact("text", b"", ""), a=artifact("text", b"", ""))
    assert [each.name for each in read_result_bundle(data, "x").artifacts] == ["a", "b"]


@pytest.mark.parametrize(
    "broken",
    [
        {"format": "pickle", "original_sha256": "0" * 64, "content": ""},
        {"format": "text", "original_sha256": "0" * 63, "content": ""},
        {"format": "text", "original_sha256": "0" * 64, "content": 5},
        {"format": ["text"], "original_sha256": "0" * 64, "content": ""},
        {"format": "text", "content": ""},
    ],
)
def test_broken_artifacts_are_refused(broken: dict[str, object]) -> None:
    with pytest.raises(Unusable):
        read_result_bundle(bundle(**{"a\x1b": broken}), "bundle")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"schema_version": 2, "artifacts": {}},
        {"schema_version": 1, "artifacts": []},
        {"schema_version": 1, "artifacts": {"a": 1}},
        {"artifacts": {}},
        {"schema_version": True, "artifacts": {}},
    ],
)
def test_other_documents_are_none(document: dict[str, Any]) -> None:
    assert not is_result_bundle(document)
    with pytest.raises(Unusable, match="no result bundle"):
        read_result_bundle(json.dumps(document).encode(), "x")


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
        max_leaves=8,
    ),
    st.sampled_from(["json", "text", "other"]),
)
def test_no_content_raises_anything_else(content: object, kind: str) -> None:
    data = bundle(a=artifact(kind, b"original", content)).decode().encode("utf-8", "replace")
    try:
        found = read_result_bundle(data, "bundle")
    except ReefError:
        return
    assert all(bool(each.finding) != bool(each.rule) for each in found.artifacts)


def test_what_is_written_here_is_recognised() -> None:
    assert is_result_bundle(parse_object(bundle(a=artifact("text", b"", "")), "x"))
