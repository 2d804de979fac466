"""The parsers of recipes: what they make of any text, and where they say that things stand."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reefkit.errors import Unusable
from reefkit.recover.adapter.recipes.document import Unresolved, flatten
from reefkit.recover.adapter.recipes.json_text import parse_json
from reefkit.recover.adapter.recipes.python_text import parse_python
from reefkit.recover.adapter.recipes.read import read_recipe_text
from reefkit.recover.adapter.recipes.registry import TRAINERS
from reefkit.recover.adapter.recipes.shell_text import parse_shell
from reefkit.recover.adapter.recipes.shell_words import split_commands
from reefkit.recover.adapter.recipes.yaml_text import parse_yaml
from reefkit.recover.adapter.statement import Recipe, Source

KEYS = sorted(
    {
        f"{prefix}{key.key}"
        for trainer in TRAINERS
        for section in trainer.sections
        for prefix in section.prefixes
        for key in section.keys
    }
    | {key.key for trainer in TRAINERS for key in trainer.keys}
)
NAMES = ["a.yaml", "a.json", "a.toml", "a.py", "a.sh", "README.md", "a.txt", "a"]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1000, 10**12),
    st.floats(),
    st.text(string.printable, max_size=12),
    st.sampled_from(["32", "all-linear", "${a}", "q_proj,v_proj", "lora", "None", "true", "1e3"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), st.text(max_size=6)), inner, max_size=4),
    ),
    max_leaves=12,
)


def judged(text: str, name: str, trainer: str | None = None) -> None:
    """Any text gives a recipe that can be printed and stored, or Unusable."""
    try:
        recipe = read_recipe_text(text, name, trainer)
    except Unusable as error:
        assert str(error).isprintable()
        return
    assert isinstance(recipe, Recipe)
    for statement in recipe.statements:
        json.dumps(statement.value, allow_nan=False)
        assert statement.origin.isprintable()
        assert statement.source in (Source.STATED, Source.DEFAULT)
    assert all(note.isprintable() for note in recipe.notes)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200), st.sampled_from(NAMES))
@example("a: &a\n- *a", "a.yaml")
@example("LoraConfig(**{})", "a.py")
def test_any_text_is_a_recipe_or_unusable(text: str, name: str) -> None:
    judged(text, name)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=8),
    st.sampled_from([None, *(trainer.name for trainer in TRAINERS)]),
    st.sampled_from(["a.json", "a.yaml"]),
)
def test_any_values_under_known_keys_are_a_recipe_or_unusable(
    members: list[tuple[str, object]], trainer: str | None, name: str
) -> None:
    pairs = ", ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in members)
    judged("{" + pairs + "}", name, trainer)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(KEYS).map(lambda key: f"--{key}"),
            st.sampled_from(KEYS).map(lambda key: f"{key}=8"),
            st.sampled_from(
                ["trl", "'", '"', "\\\n", "$A", "A=1", "(", ")", "<<E\n", "&&", "`", "#"]
            ),
            st.text(max_size=5),
        ),
        max_size=20,
    ),
    st.sampled_from([None, *(trainer.name for trainer in TRAINERS)]),
)
def test_any_command_line_is_a_recipe_or_unusable(words: list[str], trainer: str | None) -> None:
    judged(" ".join(words), "run.sh", trainer)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["LoraConfig", "ModelConfig", "FastLanguageModel.get_peft_model", "LoRA"]),
    st.lists(st.tuples(st.sampled_from(KEYS), VALUES), max_size=5),
)
def test_any_call_is_a_recipe_or_unusable(name: str, arguments: list[tuple[str, object]]) -> None:
    keywords = ", ".join(f"{k.rpartition('.')[2]}={v!r}" for k, v in arguments)
    judged(f"import unsloth, trl, megatron.bridge\n{name}({keywords})\n", "a.py")


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=5))
def test_json_is_read_as_the_standard_library_does(value: dict[str, object]) -> None:
    text = json.dumps(value)
    if "NaN" in text or "Infinity" in text:
        return
    entries = flatten(parse_json(text, "a.json"), "a.json")
    top = {entry.shown: entry.value for entry in entries if "." not in entry.shown}
    plain = {key: found for key, found in value.items() if key and key.isalnum() and key.isascii()}
    assert {key: json.loads(json.dumps(found)) for key, found in plain.items()} == {
        key: top[key] for key in plain
    }


def test_repeated_keys_anchors_and_merges_of_yaml_are_kept_with_their_lines() -> None:
    text = "base: &b\n  r: 8\n  alpha: 1\nmine:\n  <<: *b\n  alpha: 2\nr: 1\nr: 2\n"
    root = parse_yaml(text, "a.yaml")
    assert root is not None
    entries = [(e.key, e.value, e.line) for e in flatten(root, "a.yaml") if e.key != "base"]
    assert entries == [
        ("base.r", 8, 2),
        ("base.alpha", 1, 3),
        ("mine", {"alpha": 2, "r": 8}, 4),
        ("mine.alpha", 2, 6),
        ("mine.r", 8, 2),
        ("r", 1, 7),
        ("r", 2, 8),
    ]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("x --r 8", {"r": "8"}),
        ("x --r=8 --on", {"r": "8", "on": True}),
        ("x --names a b --r 8 > log 2>&1 &", {"names": ["a", "b"], "r": "8"}),
        ("x --r \\\n  8 # --r 9", {"r": "8"}),
        ("R=8; x --r $R", {"r": "8"}),
        ('R=8\nx --r "${R}"', {"r": "8"}),
        ("A=(--r 8)\nA+=(--s '9 9')\nx \"${A[@]}\"", {"r": "8", "s": "9 9"}),
        ("A='--r 8 --s 9'\nx $A", {"r": "8", "s": "9"}),
        ('A=--r\nA="$A 8"\nx $A', {"r": "8"}),
        ("read -r -d '' A <<EOF\n--r \\\n 8\nEOF\nx $A", {"r": "8"}),
        ("if a; then R=8; else R=8; fi\nx --r $R", {"r": "8"}),
        ("ssh h 'cd w && x --r 8'", {"r": "8"}),
        ("eval x --r 8", {"r": "8"}),
        ("source .venv/bin/activate\nR=8\nx --r $R", {"r": "8"}),
        ("x `# why` --r 8", {"r": "8"}),
        ("x --r 8 $MORE", {"r": "8"}),
        ("bash -c 'x --r 8'", {"r": "8"}),
        ("R=8\nbash -lc \"x --r $R\"", {"r": "8"}),
        ("x a.b=8 ++c-d=[p,q] ~e 'f=[\"u\"]'", {"a.b": "8", "c_d": ["p", "q"], "f": ["u"]}),
        ("cat <<EOF\n--r 9\nEOF\nx --r 8", {"r": "8"}),
        ("cat > f <<-'E'\n\t--r 9\n\tE\nx --r 8", {"r": "8"}),
        ("echo --r 9\nx --r 8", {"r": "8"}),
        ("x --r -1 --s 'it'\\''s'", {"r": "-1", "s": "it's"}),
        ("x --r null --s ''", {"r": None, "s": ""}),
        ("x --r 8 | tee --append log", {"r": "8", "append": "log"}),
    ],
)  # fmt: skip
def test_a_command_line_is_split_as_a_shell_does(script: str, expected: dict[str, object]) -> None:
    entries = [entry for document in parse_shell(script, "a.sh") for entry in document.entries]
    assert {entry.key: entry.value for entry in entries} == expected


@pytest.mark.parametrize(
    "script",
    [
        "x --r $R",
        "x --r ${R:-8}",
        "x --r $(cat r)",
        "x --r `cat r`",
        "x --r=$R",
        "R=8\nR=9\nx --r $R",
        "if true; then R=8; fi\nx --r $R",
        "for R in 8 9; do x --r $R; done",
        "R=${1:-8}\nx --r $R",
        "R=8\nsource ./more.sh\nx --r $R",
        "R=8\n. more.sh\nx --r $R",
        "R=8\nread R < file\nx --r $R",
        'R=8\neval "$1"\nx --r $R',
        'R=8\neval "R=9"\nx --r $R',
        "R=8\nmapfile -t R < file\nx --r ${R[0]}",
        "R=8\nprintf -v R %s 9\nx --r $R",
        "R=8\nwhile getopts r: R; do :; done\nx --r $R",
        "R=8\nwhile x --r $R; do R=9; done",
        "R=8\ncase $1 in a) R=9;; esac\nx --r $R",
        "R=8\n((R*=2))\nx --r $R",
        "R=8\nlet R=9\nx --r $R",
        "R=8\nf() { x --r $R; }\nR=9\nf",
        "R=8\nf() { R=9; }\nf\nx --r $R",
        "[ -n $1 ] && R=8\nx --r $R",
        "R=9 x --r $R",
        "if a; then R=8; else R=9; fi\nx --r $R",
        'if a; then A+=(--r 8); fi\nx "${A[@]}"',
        'if a; then A+=(--r=8); elif b; then A+=(--r=9); fi\nx "${A[@]}"',
        "read R\nx --r $R",
        "x r=$R",
    ],
)
def test_what_a_script_does_not_decide_stays_open(script: str) -> None:
    found = [entry for document in parse_shell(script, "a.sh") for entry in document.entries]
    entries = [entry for entry in found if entry.key == "r"]
    assert [type(entry.value) for entry in entries] == [Unresolved]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("F(r=8)", 8),
        ("R = 8\nF(r=R)", 8),
        ("R: int = 8\nF(r=R)", 8),
        ("import m\nm.F(r=8)", 8),
        ("from m import F as G\nG(r=8)", 8),
        ("F(r=-8)", -8),
        ("F(r=['a', 'b'])", ["a", "b"]),
        ("F(r={'a': 1})", {"a": 1}),
        ("F(r=TaskType.CAUSAL_LM)", "CAUSAL_LM"),
    ],
)
def test_literals_and_constants_of_a_script_count(script: str, expected: object) -> None:
    entries = [entry for entry in parse_python(script, "a.py").entries if entry.key == "F.r"]
    assert [entry.value for entry in entries] == [expected]


@pytest.mark.parametrize(
    "script",
    [
        "F(r=2 * 8)",
        "F(r=f())",
        "F(r=f'{8}')",
        "R = 8\nR = 9\nF(r=R)",
        "R = 8\nR += 1\nF(r=R)",
        "R = 8\nfor R in x: pass\nF(r=R)",
        "R = 8\ndef f(R): F(r=R)",
        "R = 8\ndef f():\n  global R\n  R = 9\nF(r=R)",
        "if x:\n  R = 8\nF(r=R)",
        "R = 8\nfrom m import R\nF(r=R)",
        "R = S\nS = 8\nF(r=R)",
        "F(r=b'8')",
        "F(r=1j)",
    ],
)
def test_what_a_script_computes_stays_open(script: str) -> None:
    entries = [entry for entry in parse_python(script, "a.py").entries if entry.key == "F.r"]
    assert [type(entry.value) for entry in entries] == [Unresolved]


@settings(max_examples=300, deadline=None)
@given(st.text(string.printable, max_size=60))
def test_splitting_a_script_ends_and_keeps_lines_in_order(text: str) -> None:
    lines = [word.line for command in split_commands(text) for word in command]
    assert lines == sorted(lines)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines)
