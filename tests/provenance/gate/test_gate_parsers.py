"""Manifests and reports come from outside: whatever they hold, the answer is a sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gates import safetensors, simple
from hypothesis import given, settings
from hypothesis import strategies as st

from reefkit.errors import ReefError
from reefkit.provenance.gate.fingerprint import config_fingerprint, ids_sha256
from reefkit.provenance.gate.json_difference import first_difference
from reefkit.provenance.gate.layout import NotLaidOut, layout
from reefkit.provenance.gate.manifest import load_manifest, parse_manifest
from reefkit.provenance.gate.report import parse_chain_report, parse_rank_report
from reefkit.provenance.gate.tensor_bits import compare_bits, count_different

Command = Callable[..., Any]


class Held:
    """Bytes that can be read at an offset."""

    label = "held"
    doubt = None

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.size = len(data)

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    root = tmp_path_factory.mktemp("gate")
    from reefkit.cli import archive, run

    gate = simple(root / "repo")
    path = gate.write(predecessor=None)
    assert run(archive, ["gate", str(path), "--out", str(root / "run"), "--quiet"]) == 0
    names = {"manifest": "gate-manifest.json", "rank": "rank-0.json", "chain": "chain.json"}
    return {kind: json.loads((root / "run" / name).read_bytes()) for kind, name in names.items()}


PARSERS: dict[str, Callable[[bytes, str], object]] = {
    "manifest": parse_manifest,
    "rank": parse_rank_report,
    "chain": parse_chain_report,
}


def paths(document: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [at] if at else []
    keys = getattr(document, "keys", None)
    inside: Any = keys() if keys else range(len(document)) if hasattr(document, "append") else ()
    for key in inside:
        found += paths(document[key], (*at, key))
    return found


@pytest.mark.parametrize("kind", PARSERS)
@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_changed_document_is_read_or_refused_with_a_sentence(
    kind: str, data: st.DataObject, documents: dict[str, dict[str, Any]]
) -> None:
    document = json.loads(json.dumps(documents[kind]))
    path = data.draw(st.sampled_from(paths(document)))
    place = document
    for key in path[:-1]:
        place = place[key]
    if isinstance(path[-1], str) and data.draw(st.booleans()):
        del place[path[-1]]
    else:
        place[path[-1]] = data.draw(JSON)
    raw = json.dumps(document).encode()
    if data.draw(st.integers(0, 4)) == 0:
        raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        PARSERS[kind](raw, "it")
    except ReefError as error:
        assert error.message.endswith(".")


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=80) | st.binary(max_size=80).map(lambda data: b"\x93NUMPY\x01\0" + data))
def test_any_bytes_have_a_layout_or_none(data: bytes) -> None:
    try:
        found = layout(Held(data))
    except NotLaidOut as error:
        assert str(error).startswith("its")
    else:
        assert found is None or all(span.offset + span.nbytes <= len(data) for span in found)


@settings(max_examples=100, deadline=None)
@given(st.binary(min_size=12, max_size=48), st.binary(min_size=12, max_size=48),
       st.sampled_from([4, 6, 8, 16, 32]))  # fmt: skip
def test_differing_elements_are_counted_as_slowly_as_one_could(
    a: bytes, b: bytes, bits: int
) -> None:
    length = min(len(a), len(b)) // 12 * 12
    a, b = a[:length], b[:length]
    one, other = int.from_bytes(a, "little"), int.from_bytes(b, "little")
    mask = (1 << bits) - 1
    differ = [
        i
        for i in range(length * 8 // bits)
        if (one >> i * bits & mask) != (other >> i * bits & mask)
    ]
    assert count_different(a, b, bits) == (len(differ), differ[0] if differ else 0)


@settings(max_examples=100, deadline=None)
@given(JSON, JSON)
def test_two_json_values_differ_somewhere_or_are_the_same(a: Any, b: Any) -> None:
    assert first_difference(a, a) is None
    assert (first_difference([a], [b]) is None) == (
        json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    )


def test_tensors_of_fewer_bits_than_a_byte_are_compared() -> None:
    a, b = ({"w": ("F4", (4,), data)} for data in (b"\x10\x32", b"\x10\x42"))
    (found,) = compare_bits("x", Held(safetensors(a)), Held(safetensors(b))).differences
    assert (found.element, found.different, found.total) == (3, 1, 4)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"more": 1}, "`more`"),
        ({"schema": "reefkit.gate-manifest/2"}, "schema"),
        ({"stage": ""}, "stage"),
        ({"topologies": []}, "no topology"),
        ({"topologies": [{"tp": 2}]}, "world_size"),
        ({"topologies": [{"world_size": 1, "dp": 2}]}, "`dp`"),
        ({"topologies": [{"world_size": 0}]}, "world_size"),
        ({"cells": []}, "cells"),
        ({"config": []}, "config"),
        ({"pinned_ids": 2}, "pinned_ids"),
        ({"predecessor": {"path": "x"}}, "stage"),
        ({"predecessor": {"path": "x", "stage": "y", "commit": "HEAD"}}, "commit"),
    ],
)
def test_a_manifest_is_read_strictly(
    changes: Any, said: str, tmp_path: Path, reef_archive: Command
) -> None:
    manifest = simple(tmp_path).write(**changes)
    answer = reef_archive("gate", manifest, "--out", tmp_path / "runs/a", "--json")
    assert answer.code == 2
    assert said in answer.document["message"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"id": "../x"}, "`id`"),
        ({"id": "a/b"}, "`id`"),
        ({"id": "SECOND"}, "of another cell"),
        ({"command": "cp a b"}, "`command`"),
        ({"command": []}, "`command`"),
        ({"artifacts": ["../x"]}, "leads elsewhere"),
        ({"artifacts": ["/x"]}, "leads elsewhere"),
        ({"artifacts": ["cell.json"]}, "kept for"),
        ({"artifacts": []}, "no `artifacts`"),
        ({"reference": None}, "`reference`"),
        ({"reference": {}}, "names nothing"),
        ({"reference": {"cell": "second"}}, "no earlier cell"),
        ({"reference": {"sha256": {"x": "y"}}}, "64 lowercase"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"fast": True}, "`fast`"),
    ],
)
def test_a_cell_is_read_strictly(
    changes: Any, said: str, tmp_path: Path, reef_archive: Command
) -> None:
    gate = simple(tmp_path)
    gate.cells[0] |= changes
    answer = reef_archive("gate", gate.write(), "--out", tmp_path / "runs/a", "--json")
    assert answer.code == 2
    assert said in answer.document["message"]


def test_a_manifest_may_be_toml(tmp_path: Path, reef_archive: Command) -> None:
    gate = simple(tmp_path, ("first",))
    gate.write()
    manifest = tmp_path / "gate.toml"
    manifest.write_text(
        'schema = "reefkit.gate-manifest/1"\nstage = "moe"\npinned_ids = ["first"]\n'
        '[config]\nmodel = "tiny"\ndtype = "float32"\n[[topologies]]\nworld_size = 1\n'
        '[[cells]]\nid = "first"\ncommand = ["cp", "-r", "given/first/.", "{out}"]\n'
        'artifacts = ["x.safetensors"]\nreference = "want/first"\n'
    )
    gate.commit()
    answer = reef_archive("gate", manifest, "--out", tmp_path / "runs/a", "--json")
    assert answer.code == 0
    as_json = load_manifest(tmp_path / "gate.json")
    assert answer.document["config_fingerprint"] == as_json.config_fingerprint
    assert reef_archive("gate", tmp_path / "runs/a").code == 0


@pytest.mark.parametrize("text", ["a = [", "a = 2020-01-01", "a = nan", "\x00", "a = " + "[" * 500])
def test_toml_that_json_cannot_say_is_refused(
    text: str, tmp_path: Path, reef_archive: Command
) -> None:
    (tmp_path / "gate.toml").write_text(text)
    assert reef_archive("gate", tmp_path / "gate.toml", "--out", tmp_path / "r").code == 2


def test_the_fingerprint_is_that_of_the_canonical_form() -> None:
    import hashlib

    text = '{"a":[1,1.0,"ü"],"b":null}'
    wanted = hashlib.sha256(text.encode()).hexdigest()
    assert config_fingerprint({"b": None, "a": [1, 1.0, "ü"]}) == wanted
    assert ids_sha256(["b", "a"]) == hashlib.sha256(b"a\nb\n").hexdigest()


def test_reports_are_read_as_they_are_written(documents: dict[str, dict[str, Any]]) -> None:
    rank = parse_rank_report(json.dumps(documents["rank"]).encode(), "it")
    chain = parse_chain_report(json.dumps(documents["chain"]).encode(), "it")
    assert (rank.to_json(), chain.to_json()) == (documents["rank"], documents["chain"])


@pytest.mark.parametrize(
    "changes",
    [
        {"cells": []},
        {"reasons": ["no"]},
        {"verdict": "FAILED"},
        {"verdict": "INCOMPLETE"},
        {"first_drift": {"stage": "a", "cell": "b"}},
        {"cells": [{"id": "a", "status": "skipped"}]},
    ],
)
def test_a_chain_report_that_contradicts_itself_is_no_pass(
    changes: Any, documents: dict[str, dict[str, Any]]
) -> None:
    raw = json.dumps(documents["chain"] | changes).encode()
    assert not parse_chain_report(raw, "it").passed
