# torch, peft and transformers leave much untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import re
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peft.tuners.tuners_utils import check_target_module_exists
from peft.utils.other import get_pattern_key

from reefkit.errors import Unusable
from reefkit.recover.adapter.patterns import by_pattern, full_match, pattern_key

_SEGMENTS = st.sampled_from(
    ["model", "layers", "0", "1", "10", "q_proj", "qxproj", "mlp", "q", "a-b"]
)
_NAMES = st.lists(_SEGMENTS, min_size=1, max_size=5).map(".".join)
_KEYS = st.one_of(
    _NAMES,
    _NAMES.map(re.escape),
    _NAMES.map(lambda name: "^" + re.escape(name)),
    _NAMES.map(lambda name: "^" + name + "$"),
    _NAMES.map(lambda name: name.replace("_", ".")),
    _NAMES.map(lambda name: r".*\." + name),
    st.sampled_from([r"q_proj|mlp", r"layers\.\d+\.q_proj", "(q|mlp)", r"^model\.|q", "[qm].*"]),
)


@given(st.lists(_KEYS, unique=True, max_size=6), _NAMES)
def test_the_same_key_is_found_as_by_peft(keys: list[str], name: str) -> None:
    found = pattern_key(keys)(name)

    assert (name if found is None else found) == get_pattern_key(keys, name)


def test_a_dot_that_is_not_escaped_stands_for_any_letter_as_in_peft() -> None:
    assert by_pattern({"q.proj": 4})("layers.0.q_proj") == 4
    assert by_pattern({r"q\.proj": 4})("layers.0.q_proj") is None


def test_thousands_of_full_names_as_keys_are_looked_up_at_once() -> None:
    names = [f"model.layers.{i}.mlp.experts.{j}.up_proj" for i in range(48) for j in range(128)]
    started = time.monotonic()

    ranks = by_pattern({name: number for number, name in enumerate(names)})

    assert [ranks(name) for name in names] == list(range(len(names)))
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("pattern", ["(", "[", "(?P<a>x)(?P<a>y)" + "(", "a" * 70_000])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(Unusable):
        full_match(pattern)


def test_a_pattern_that_would_never_end_is_stopped() -> None:
    matches = full_match(r"(?:a|a|aa)*b")

    started = time.monotonic()
    try:
        assert not matches("a" * 60)
    except Unusable as error:
        assert "takes longer" in error.message
    assert time.monotonic() - started < 10


_TARGETS = st.one_of(
    st.lists(_NAMES, min_size=1, max_size=4),
    st.sampled_from([r".*q_proj", r"model\..*\.(q|mlp)", r".*\.1\..*", "q"]),
)


@given(
    name=_NAMES,
    targets=_TARGETS,
    excluded=st.one_of(st.none(), st.just([]), _TARGETS),
    saved=st.one_of(st.none(), st.lists(_NAMES, max_size=2), st.just(["q|mlp"])),
    layers=st.one_of(st.none(), st.just([]), st.integers(0, 2), st.lists(st.integers(0, 10))),
    pattern=st.sampled_from([None, [], "", "layers", ["mlp", "layers"], "model|layers", r"\w+"]),
)
def test_the_same_modules_are_targeted_as_by_peft(
    name: str,
    targets: list[str] | str,
    excluded: list[str] | str | None,
    saved: list[str] | None,
    layers: int | list[int] | None,
    pattern: str | list[str] | None,
) -> None:
    from reefkit.recover.adapter.targets import selects

    config: dict[str, object] = {
        "target_modules": targets,
        "exclude_modules": excluded,
        "modules_to_save": saved,
        "layers_to_transform": layers if isinstance(targets, list) else None,
        "layers_pattern": pattern,
        "target_parameters": None,
    }

    expected = bool(check_target_module_exists(SimpleNamespace(**config), name))

    assert selects(config)(name) is expected
