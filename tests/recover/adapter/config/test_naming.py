from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reefkit.recover.adapter.config.naming import shortest_endings, shortest_tails
from reefkit.recover.adapter.patterns import ends_with_any

_NAMES = st.lists(
    st.sampled_from(["model", "layers", "0", "1", "mlp", "up_proj", "q_proj", "proj", "head"]),
    min_size=1,
    max_size=4,
).map(".".join)
_SETS = st.sets(_NAMES, max_size=12)


@given(wanted=_SETS, others=_SETS)
def test_endings_select_the_wanted_names_and_no_others(wanted: set[str], others: set[str]) -> None:
    others = others - wanted
    endings = frozenset(shortest_endings(wanted, wanted | others))

    assert all(ends_with_any(name, endings) for name in wanted)
    # A name that is itself the end of another can only be told from it by its whole.
    for name in others:
        if ends_with_any(name, endings):
            assert any(name.endswith(f".{whole}") for whole in wanted)


@given(wanted=_SETS, others=_SETS)
def test_tails_select_the_wanted_names_and_no_others(wanted: set[str], others: set[str]) -> None:
    others = others - wanted
    tails = tuple(shortest_tails(wanted, wanted | others))

    assert all(name.endswith(tails) for name in wanted) or not wanted
    for name in others:
        if tails and name.endswith(tails):
            assert any(name.endswith(whole) for whole in wanted)


def test_endings_are_as_short_as_can_be() -> None:
    names = [f"model.layers.{layer}.{leaf}" for layer in (0, 1) for leaf in ("q_proj", "k_proj")]

    assert shortest_endings(names, names) == ["q_proj", "k_proj"]
    assert shortest_endings(names[:1], names) == ["0.q_proj"]


def test_tails_count_letters_as_peft_does() -> None:
    assert shortest_tails(["model.norm"], ["model.norm", "model.layers.0.k_norm"]) == ["model.norm"]
    assert shortest_tails(["lm_head"], ["lm_head", "model.embed_tokens"]) == ["lm_head"]
