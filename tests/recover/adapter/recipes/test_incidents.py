"""Recipes that once gave a value that was not surely the adapter's, or were refused for nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reefkit.errors import Unusable
from reefkit.records.strict_json import Json
from reefkit.recover.adapter.recipes.identity import hub_cache, looks_like_hub_id
from reefkit.recover.adapter.recipes.read import read_recipe, read_recipe_text
from reefkit.recover.adapter.statement import Recipe, Source

TRL = "trl sft --model_name_or_path a/b --use_peft --lora_r 16"
VERL = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b "
    "actor_rollout_ref.model.lora_rank=16"
)
LLAMA_FACTORY = "llamafactory-cli train --model_name_or_path a/b --lora_rank 16"
PYTHON = "from peft import LoraConfig, PeftModel, get_peft_model\nimport dataclasses, functools\n"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def values(recipe: Recipe, field: str, source: Source | None = None) -> list[Json]:
    return [s.value for s in recipe.of(field) if source in (None, s.source)]


def defaults(recipe: Recipe) -> list[str]:
    return [s.field for s in recipe.statements if s.source is Source.DEFAULT]


def noted(recipe: Recipe, *texts: str) -> bool:
    return all(any(text in note for note in recipe.notes) for text in texts)


@pytest.mark.parametrize(
    "script",
    [
        f'{TRL} "$@"',
        f"{TRL} $@",
        f"{TRL} $*",
        f'{TRL} "$1"',
        f'{TRL} "${{@:2}}"',
        f"{TRL} $EXTRA_ARGS",
        f"{TRL} ${{EXTRA_ARGS}}",
        f"{TRL} ${{EXTRA_ARGS:-}}",
        f"{TRL} --bf16 $X",
        f"{TRL} --use_dora $X",
        f"{TRL} --report_to $EXTRA_ARGS",
        f"{TRL} $(cat flags)",
        f'{TRL} "${{ARGS[@]}}"',
        f"{TRL} --lora_target_modules q_proj $MORE",
        f'E=""\nif [ -n "$RS" ]; then E="--use_rslora true --lora_alpha 64"; fi\n{TRL} $E',
        f'[ -n "$RS" ] && EXTRA="--lora_alpha 64"\n{TRL} $EXTRA',
        f'CMD="{TRL}"\neval $CMD "$@"',
        f'run() {{ "$@" --lora_alpha 64; }}\nrun {TRL}',
        f"{VERL} $@",
        f"{LLAMA_FACTORY} $LF_ARGS --lora_target all",
        "uv run -m skyrl_train.entrypoints.main_base trainer.policy.model.path=a/b "
        "trainer.policy.model.lora.rank=16 $@",
        "python -m tinker_cookbook.recipes.sl_basic model_name=a/b lora_rank=16 $X",
        "uv run examples/run_sft.py policy.model_name=a/b policy.dtensor_cfg.lora_cfg.enabled=true "
        'policy.dtensor_cfg.lora_cfg.dim=16 "$@"',
        "deepspeed --module openrlhf.cli.train_sft --pretrain a/b --lora_rank 16 ${LORA_OPTS}",
    ],
)
def test_words_that_may_hold_flags_leave_no_default_and_keep_what_is_stated(script: str) -> None:
    recipe = read_recipe_text(script, "a.sh")
    assert defaults(recipe) == []
    assert values(recipe, "lora_alpha") == values(recipe, "use_rslora") == []
    assert values(recipe, "r") == [16]
    assert noted(recipe, "no defaults are used")


@pytest.mark.parametrize("word", ["$EXTRA_ARGS", "${EXTRA_ARGS}"])
@pytest.mark.parametrize("form", ["'%s'", "[%s]"])
def test_a_service_command_with_such_a_word_has_no_defaults(word: str, form: str) -> None:
    words = ["python", "-m", "slime", "--hf-checkpoint=a/b", "--megatron-lora-rank=16", word]
    command = form % (" ".join(words) if "'" in form else ", ".join(f"'{w}'" for w in words))
    text = f"reef: {{model_path: a/b}}\nservices:\n- name: x\n  command: {command}\n"
    recipe = read_recipe_text(text, "serve.yaml")
    assert (values(recipe, "r"), defaults(recipe)) == ([16], [])
    assert noted(recipe, "serve.yaml:4: services[0].command: a word may hold further arguments")


@pytest.mark.parametrize(
    "script",
    [
        "trl sft --model_name_or_path $M --use_peft --lora_r 16 --output_dir $OUT",
        f"torchrun $DISTRIBUTED_ARGS -m trl.scripts.sft {TRL.removeprefix('trl sft ')}",
        f"$PYTHON -m trl.scripts.sft {TRL.removeprefix('trl sft ')}",
        f'ARGS="--bf16 true"\nARGS="$ARGS --seed 1"\n{TRL} $ARGS',
        f"if a; then E=--bf16; else E=--bf16; fi\n{TRL} $E",
        f"{TRL} --deepspeed ds.json --dataset_mixer d.yaml",
        f"accelerate launch --config_file z.yaml trl/scripts/sft.py {TRL.removeprefix('trl sft ')}",
        f"trl vllm-serve --model a/b &\n{TRL}",
        f"{TRL}\nlm_eval --model hf --lora_alpha 64",
        f"{TRL}\npython merge.py --use_peft --lora_r 8 --lora_alpha 1",
        f"source .venv/bin/activate && {TRL}",
        f"{TRL} `# not --lora_alpha 64` --seed 1",
        f"trl sft --model_name_or_path x/y --learning_rate 1e-4\n{TRL}",
    ],
)
def test_an_honest_script_keeps_its_defaults(script: str) -> None:
    recipe = read_recipe_text(script, "a.sh")
    assert values(recipe, "r") == [16]
    assert values(recipe, "lora_alpha", Source.DEFAULT) == [32]
    assert values(recipe, "use_rslora", Source.DEFAULT) == [False]


@pytest.mark.parametrize(
    ("name", "text", "file"),
    [
        ("a.sh", "llamafactory-cli train q.json lora_rank=8 model_name_or_path=a/b", "q.json"),
        ("a.sh", "llamafactory-cli train $CFG model_name_or_path=a/b lora_rank=8", "$CFG"),
        ("a.sh", 'llamafactory-cli train "$1" model_name_or_path=a/b lora_rank=8', "$1"),
        ("a.sh", "swift sft args.json --model a/b --train_type lora --lora_rank 8", "args.json"),
        ("a.sh", f"{VERL} -cn my_cfg", "my_cfg"),
        ("a.sh", f"{VERL} -cp /conf", "/conf"),
        ("a.sh", f"{VERL} --config-name=$CFG", "builds on"),
        ("a.sh", f"{VERL} --config-path=/my --config-name=ppo_trainer", "/my"),
        ("a.sh", f"{VERL} +experiment=big", "big"),
        ("a.sh", f"{VERL} model@actor_rollout_ref.model=big", "big"),
        ("a.sh", f"{TRL} --config $CFG", "builds on"),
        ("a.sh", f"{TRL} --config=a.yaml", "a.yaml"),
        ("a.sh", "uv run rl @ rl.toml --trainer.model.lora.rank 16", "rl.toml"),
        ("a.sh", "uv run examples/run_sft.py policy.model_name=a/b "
         "policy.dtensor_cfg.lora_cfg.enabled=true policy.dtensor_cfg.lora_cfg.dim=16", "NeMo-RL"),
        ("a.yaml", "defaults: [{model: lora_big}, _self_]\n"
         "actor_rollout_ref: {model: {path: a/b, lora_rank: 16}}\n", "defaults"),
        ("a.toml", 'toml_files = ["base.toml"]\n[trainer.model.lora]\nrank = 16\n', "base.toml"),
        ("a.yaml", "use_peft: true\nlora_r: 16\n---\nlora_alpha: 64\n", "further YAML documents"),
    ],
)  # fmt: skip
def test_a_configuration_that_is_not_read_leaves_no_default(
    name: str, text: str, file: str
) -> None:
    recipe = read_recipe_text(text, name)
    assert values(recipe, "r") in ([8], [16])
    assert defaults(recipe) == []
    assert noted(recipe, file)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "finetuning_type: lora\nmodel_name_or_path: a/b\nadapter_name_or_path: old\n"
         "lora_rank: 8\nlora_alpha: 64\n"),
        ("a.yaml", "base_model: a/b\nadapter: lora\nlora_model_dir: old\nlora_r: 8\n"
         "lora_alpha: 64\n"),
        ("a.sh", "swift sft --model a/b --adapters old --lora_rank 8 --lora_alpha 64"),
        ("a.sh", "swift sft --model a/b --resume_from_checkpoint x --lora_rank 8 --lora_alpha 64"),
        ("a.sh", f"{VERL} actor_rollout_ref.model.lora_adapter_path=/old "
         "actor_rollout_ref.model.lora_alpha=64"),
        ("a.py", f"{PYTHON}LoraConfig(r=8, lora_alpha=64)\n"
         "m = PeftModel.from_pretrained(m, 'old', is_trainable=True)\n"),
        ("a.py", f"{PYTHON}LoraConfig.from_pretrained('old')\n"),
        ("a.py", f"{PYTHON}m = PeftModel.from_pretrained(m, 'old')\n"),
    ],
)  # fmt: skip
def test_a_run_that_continues_an_adapter_states_nothing_of_it(name: str, text: str) -> None:
    recipe = read_recipe_text(text, name)
    assert {s.field for s in recipe.statements} <= {"base_model_name_or_path"}
    assert noted(recipe, "own configuration counts")


def test_adapters_that_are_none_do_not_continue_one() -> None:
    text = json.dumps({"model": "a/b", "train_type": "lora", "lora_rank": 8, "adapters": []})
    assert values(read_recipe_text(text, "args.json"), "lora_alpha", Source.DEFAULT) == [32]


def test_an_adapter_that_is_loaded_after_training_leaves_what_is_stated() -> None:
    script = f"{PYTHON}LoraConfig(r=8, lora_alpha=64)\nPeftModel.from_pretrained(m, 'out')\n"
    recipe = read_recipe_text(script, "a.py")
    assert (values(recipe, "lora_alpha"), defaults(recipe)) == ([64], [])


@pytest.mark.parametrize(
    "change",
    [
        "c.lora_alpha = 64",
        "for c in m.peft_config.values():\n    c.lora_alpha = 64",
        "c.lora_alpha *= 2",
        "setattr(c, 'lora_alpha', 64)",
        "c = dataclasses.replace(c, lora_alpha=64)",
        "c.update({'lora_alpha': 64})",
        "c.__dict__['lora_alpha'] = 64",
    ],
)
@pytest.mark.parametrize("made", ["r=8", "r=8, lora_alpha=16"])
def test_a_field_that_is_set_again_is_not_stated(change: str, made: str) -> None:
    recipe = read_recipe_text(f"{PYTHON}c = LoraConfig({made})\n{change}\n", "a.py")
    assert (values(recipe, "r"), values(recipe, "lora_alpha")) == ([8], [])
    assert recipe.notes


@pytest.mark.parametrize(
    "code",
    [
        "mk = functools.partial(LoraConfig, lora_alpha=64)\nmk(r=8)",
        "L = LoraConfig\nL(r=8, lora_alpha=64)",
        "class L(LoraConfig):\n    lora_alpha: int = 64\nL(r=8)",
        "import peft\ngetattr(peft, 'LoraConfig')(r=8, lora_alpha=64)",
        "for k, v in o.items():\n    setattr(c, k, v)",
        "exec(open('more.py').read())",
        "globals()['x'] = 1",
        "vars(c)[k] = 1",
        "c.update(extra)",
        "lora_config.update(extra)",
        "dataclasses.replace(c, **extra)",
        "def LoraConfig(**k): ...",
        "from mine import LoraConfig",
    ],
)
def test_code_that_may_set_anything_leaves_no_default(code: str) -> None:
    recipe = read_recipe_text(f"{PYTHON}cfg = c = LoraConfig(r=8)\n{code}\n", "a.py")
    assert (values(recipe, "r"), defaults(recipe)) == ([8], [])


def test_reading_the_arguments_changes_nothing() -> None:
    recipe = read_recipe_text(f"{PYTHON}print(vars(args))\nLoraConfig(r=8)\n", "a.py")
    assert values(recipe, "lora_alpha", Source.DEFAULT) == [8]


def test_names_that_a_script_may_rebind_are_open() -> None:
    script = f"{PYTHON}A = 16\nfor k in x:\n    globals()[k] = 1\nLoraConfig(r=8, lora_alpha=A)\n"
    recipe = read_recipe_text(script, "a.py")
    assert (values(recipe, "r"), values(recipe, "lora_alpha")) == ([8], [])
    script = f"{PYTHON}T = ['q_proj']\nT.append('v_proj')\nLoraConfig(r=8, target_modules=T)\n"
    assert values(read_recipe_text(script, "a.py"), "target_modules") == []
    script = f"{PYTHON}A = 16\nfrom mine import *\nLoraConfig(r=8, lora_alpha=A)\n"
    assert values(read_recipe_text(script, "a.py"), "lora_alpha") == []


@pytest.mark.parametrize(
    "arguments", ["LoRA(targets, 64, 64)", "LoraConfig('LORA')", "LoraConfig(*a)"]
)
def test_arguments_without_names_leave_no_default(arguments: str) -> None:
    script = f"import megatron.bridge\n{arguments}\n"
    assert defaults(read_recipe_text(script, "a.py")) == []
    for call in ("FastLanguageModel.get_peft_model(m, 64)", "FastModel.get_peft_model(*a)"):
        recipe = read_recipe_text(f"from unsloth import FastLanguageModel\n{call}\n", "a.py")
        assert recipe.statements == ()


@pytest.mark.parametrize(
    ("code", "alphas"),
    [
        ("if False:\n    LoraConfig(r=8, lora_alpha=64)", []),
        ("if TYPE_CHECKING:\n    LoraConfig(r=8, lora_alpha=64)", []),
        ("def f():\n    return\n    LoraConfig(r=8, lora_alpha=64)\nf()", []),
        ("def old():\n    return LoraConfig(r=8, lora_alpha=64)\nmain()", []),
        ("def old():\n    LoraConfig(lora_alpha=64)\nLoraConfig(r=8, lora_alpha=4)", [4]),
        ("def f():\n    g()\ndef g():\n    LoraConfig(r=8, lora_alpha=4)\nf()", [4]),
        ("def main():\n    LoraConfig(lora_alpha=4)\nif __name__ == '__main__':\n    main()", [4]),
        ("class T:\n    def __init__(self):\n        LoraConfig(lora_alpha=4)\nT()", [4]),
        ("@app.command()\ndef f():\n    LoraConfig(r=8, lora_alpha=4)\napp()", [4]),
        ("def recipe():\n    return LoraConfig(r=8, lora_alpha=4)", [4]),
        ("if a:\n    LoraConfig(r=8, lora_alpha=4)", [4]),
        ("if a:\n    LoraConfig(lora_alpha=4)\nelse:\n    LoraConfig(lora_alpha=4)", [4, 4]),
        ("if a:\n    LoraConfig(lora_alpha=64)\nelse:\n    LoraConfig(r=8)", [64, 8]),
        ("LoraConfig(lora_alpha=64) if a else LoraConfig(r=8)", [64, 8]),
        ("if a:\n    LoraConfig(lora_alpha=64)\nelse:\n    LoraConfig(lora_alpha=f())", []),
    ],
)
def test_only_code_that_runs_states_something(code: str, alphas: list[int]) -> None:
    recipe = read_recipe_text(f"{PYTHON}{code}\n", "a.py")
    assert values(recipe, "lora_alpha") == alphas
    assert all(s.source is Source.STATED for s in recipe.of("lora_alpha"))


def test_a_flag_under_a_condition_is_not_stated_unless_the_branches_agree() -> None:
    start = 'ARGS=(--model_name_or_path a/b --use_peft --lora_r 16 --lora_alpha 32)\nif [ "$RS" ]; '
    end = '; fi\ntrl sft "${ARGS[@]}"\n'
    recipe = read_recipe_text(f"{start}then ARGS+=(--use_rslora true){end}", "a.sh")
    assert values(recipe, "use_rslora") == []
    assert (values(recipe, "lora_alpha"), values(recipe, "use_dora")) == ([32], [False])
    assert noted(recipe, "--use_rslora: a condition or a loop decides it")
    agreed = "then ARGS+=(--use_rslora true); else ARGS+=(--use_rslora true)"
    assert values(read_recipe_text(f"{start}{agreed}{end}", "a.sh"), "use_rslora") == [True]


@pytest.mark.parametrize(
    "change",
    [
        "source ./more.sh",
        ". more.sh",
        "read A < file",
        'eval "$@"',
        "A=${A:-64}",
        "printf -v A 64",
        "mapfile A < file",
        "while getopts a: A; do x; done",
        'case "$1" in big) A=64;; esac',
    ],
)
def test_a_variable_that_changes_elsewhere_is_not_stated(change: str) -> None:
    recipe = read_recipe_text(f"A=32\n{change}\n{TRL} --lora_alpha $A\n", "a.sh")
    assert (values(recipe, "r"), values(recipe, "lora_alpha")) == ([16], [])


def test_each_command_has_its_own_defaults_and_others_contradict() -> None:
    other = "trl dpo --model_name_or_path a/b --use_peft --lora_r 16"
    recipe = read_recipe_text(f"{TRL} --lora_alpha 128 --use_rslora\n{other}\n", "a.sh")
    assert values(recipe, "lora_alpha", Source.STATED) == [128, 32]
    assert values(recipe, "use_rslora", Source.STATED) == [True, False]
    assert [s.origin for s in recipe.of("use_rslora")][1].endswith("(a.sh:2)")
    assert values(recipe, "use_dora", Source.DEFAULT) == [False]


def test_runs_on_different_bases_name_none_unless_all_have_an_identity() -> None:
    other = "trl dpo --model_name_or_path out/sft --use_peft --lora_r 16"
    recipe = read_recipe_text(f"{TRL}\n{other}\n", "a.sh")
    assert values(recipe, "base_model_name_or_path") == []
    recipe = read_recipe_text(f"{TRL}\n{other.replace('out/sft', 'c/d')}\n", "a.sh")
    assert values(recipe, "base_model_name_or_path") == ["a/b", "c/d"]


def test_what_one_of_several_runs_leaves_open_is_not_stated() -> None:
    recipe = read_recipe_text(f"{TRL} --lora_alpha 64\n{TRL} --config a.yaml\n", "a.sh")
    assert (values(recipe, "r"), values(recipe, "lora_alpha")) == ([16, 16], [])


def test_a_function_that_nothing_calls_states_nothing() -> None:
    recipe = read_recipe_text(f"old() {{ {TRL} --lora_alpha 64; }}\n", "a.sh")
    assert recipe.statements == ()
    recipe = read_recipe_text(f"old() {{ {TRL} --lora_alpha 64; }}\n{TRL} --lora_alpha 4", "a.sh")
    assert values(recipe, "lora_alpha") == [4]


@pytest.mark.parametrize(
    "line",
    [
        "python finetune.py --use_peft --lora_r 16 --model_name_or_path a/b",
        "python sft.py --use_peft --lora_r 16 --model_name_or_path a/b",
        "python x.py --use_peft --lora_r 16 --model_name_or_path a/b --dataset /data/trl/x",
        "python x.py --finetuning_type lora --lora_rank 16 --model_name_or_path a/b",
        "python x.py --train_type lora --lora_rank 16 --model a/b",
        "python x.py --base_model a/b --adapter lora --lora_r 16",
    ],
)
def test_another_program_with_the_same_flags_has_no_known_defaults(line: str) -> None:
    recipe = read_recipe_text(line, "a.sh")
    assert (values(recipe, "r"), defaults(recipe)) == ([16], [])


def test_a_shortened_flag_leaves_its_field_open() -> None:
    recipe = read_recipe_text(f"{TRL} --lora_a 64", "a.sh")
    assert values(recipe, "lora_alpha") == []
    assert noted(recipe, "--lora_a: it may be short for lora_alpha")
    assert values(read_recipe_text(f"{TRL} --use_rs --lora_alpha 4", "a.sh"), "use_rslora") == []


@pytest.mark.parametrize(
    ("name", "text", "alphas"),
    [
        ("a.yaml", "use_peft: true\nlora_r: 16\nlora_alpha: null\n", []),
        ("a.py", f"{PYTHON}LoraConfig(r=16, lora_alpha=None)\n", []),
        ("a.py", f"{PYTHON}LoraConfig(r=16, lora_alpha=0)\n", []),
        ("a.sh", f"{TRL} --lora_alpha ''", []),
        ("a.yaml", "finetuning_type: lora\nlora_rank: 16\nlora_alpha: null\n", [32]),
        ("a.yaml", "megatron-lora-rank: 16\nmegatron-lora-alpha: null\n", [16]),
    ],
)
def test_an_explicit_null_is_a_default_only_where_the_trainer_says_so(
    name: str, text: str, alphas: list[int]
) -> None:
    recipe = read_recipe_text(text, name)
    assert (values(recipe, "r"), values(recipe, "lora_alpha")) == ([16], alphas)


def test_a_switch_in_an_unknown_place_keeps_its_default_from_counting() -> None:
    recipe = read_recipe_text(f"{VERL} +actor_rollout_ref.model.use_rslora=true", "a.sh")
    assert values(recipe, "use_rslora") == []
    assert values(recipe, "use_dora", Source.DEFAULT) == [False]


@pytest.mark.parametrize("written", ["032", "-032", "00", "'032'"])
def test_a_number_with_a_leading_zero_is_refused(written: str) -> None:
    with pytest.raises(Unusable, match=r"^a\.yaml:3: lora_alpha is a number with a leading zero"):
        read_recipe_text(f"use_peft: true\nlora_r: 16\nlora_alpha: {written}\n", "a.yaml")


def test_such_a_number_elsewhere_does_not_matter() -> None:
    text = "use_peft: true\nlora_r: 16\numask: 022\n---\n"
    assert values(read_recipe_text(text, "a.yaml"), "lora_alpha") == [32]


@pytest.mark.parametrize(
    "script",
    [
        "read -r -d '' training_commands <<EOF\nopenrlhf.cli.train_sft --pretrain a/b \\\n"
        "  --lora_rank 16 --lora_alpha 64\nEOF\n"
        'if [[ "$1" != "slurm" ]]; then\n    deepspeed --module $training_commands\nfi\n',
        "ssh gpu1 'cd w && nohup swift sft --model a/b --lora_rank 16 --lora_alpha 64 > log &'",
        f"ssh gpu1 bash -s <<'EOF'\ncd w\n{TRL} --lora_alpha 64\nEOF\n",
        f"tmux new -d '{TRL} --lora_alpha 64'",
        f"CMD='{TRL} --lora_alpha 64'\neval $CMD",
        f"sbatch -N 1 --wrap='{TRL} --lora_alpha 64'",
        "main() {\n  local A=64\n  trl sft --model_name_or_path a/b --use_peft --lora_r 16 "
        '--lora_alpha $A\n}\nmain "$@"',
    ],
)
def test_a_command_that_is_handed_on_is_read(script: str) -> None:
    recipe = read_recipe_text(script, "a.sh")
    assert (values(recipe, "r"), values(recipe, "lora_alpha")) == ([16], [64])


CALL = "m = FastLanguageModel.get_peft_model(m, r=16,\n  lora_alpha=64)"


def test_a_notebook_is_read_with_the_lines_of_its_file() -> None:
    sources: list[object] = [
        [
            "%pip install unsloth\n",
            "!nvidia-smi \\\n",
            "  -L\n",
            "from unsloth import *\n",
            "x = !ls",
        ],
        CALL,
        ["%%bash\n", "echo this is no Python"],
    ]
    cells = [{"cell_type": "code", "source": source} for source in sources]
    cells.insert(0, {"cell_type": "markdown", "source": "LoraConfig(r=1)"})
    text = json.dumps({"cells": cells, "nbformat": 4}, indent=1)
    recipe = read_recipe_text(text, "a.ipynb")
    assert (values(recipe, "r"), values(recipe, "lora_alpha")) == ([16], [64])
    line = 1 + [CALL[:20] in line for line in text.split("\n")].index(True)
    assert recipe.of("r")[0].origin.startswith(f"a.ipynb:{line}: ")


def test_an_exported_notebook_and_the_commands_of_one_are_read() -> None:
    script = f"# %%\n!pip install \\\n  unsloth\nfrom unsloth import FastLanguageModel\n{CALL}\n"
    recipe = read_recipe_text(script, "a.py")
    assert [s.origin for s in recipe.of("r")] == ["a.py:5: FastLanguageModel.get_peft_model.r"]
    cell = {"cell_type": "code", "source": [f"import peft\n!{TRL} --lora_alpha 64\n"]}
    recipe = read_recipe_text(json.dumps({"cells": [cell]}), "a.ipynb")
    assert (values(recipe, "r"), values(recipe, "lora_alpha")) == ([16], [64])


@pytest.mark.parametrize(
    "opaque",
    [
        {"megatron_config": {"api_key": "supersecretvalue123"}},
        {"auto_mapping": {"hub": {"api_key": "supersecretvalue123"}}},
        {"auto_mapping": {"parent_library": "supersecretvalue123" * 2}},
        {"loftq_config": [{"password": "supersecretvalue123"}]},
    ],
)
def test_fields_that_only_their_method_reads_pass_no_secret_on(opaque: dict[str, object]) -> None:
    config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, **opaque}
    recipe = read_recipe_text(json.dumps(config), "adapter_config.json")
    assert values(recipe, "lora_alpha") == [16]
    assert "supersecretvalue123" not in repr(recipe)


def test_a_path_in_the_hubs_cache_states_identity_and_revision() -> None:
    path = f"/root/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/{COMMIT}"
    recipe = read_recipe_text(f"use_peft: true\nmodel_name_or_path: {path}\n", "a.yaml")
    assert values(recipe, "base_model_name_or_path") == ["Qwen/Qwen3-8B"]
    assert values(recipe, "revision") == [COMMIT]
    assert recipe.of("revision")[0].origin == (
        "a.yaml:2: model_name_or_path (a path in the Hub's cache)"
    )


@pytest.mark.parametrize(
    "path",
    [
        f"/x/models--work--model/snapshots/{COMMIT}",
        f"/x/models--Qwen--Qwen3-8B/snapshots/{COMMIT}/part",
        "/x/models--Qwen--Qwen3-8B/snapshots/main",
        f"/x/datasets--Qwen--Qwen3-8B/snapshots/{COMMIT}",
        f"/x/models--gpt2/snapshots/{COMMIT}",
        f"/x/models--a--b--c/snapshots/{COMMIT}",
    ],
)
def test_other_paths_tell_no_identity(path: str) -> None:
    assert hub_cache(path) is None


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_base_that_exists_near_its_recipe_is_marked_as_a_path(depth: int, tmp_path: Path) -> None:
    folder = tmp_path / "recipes" / "sft"
    folder.mkdir(parents=True)
    path = folder / "a.yaml"
    path.write_text("use_peft: true\nmodel_name_or_path: acme/thing\n")
    assert [s.local for s in read_recipe(path).of("base_model_name_or_path")] == [False]
    (folder, *folder.parents)[depth].joinpath("acme", "thing").mkdir(parents=True)
    assert [s.local for s in read_recipe(path).of("base_model_name_or_path")] == [True]


@pytest.mark.parametrize("value", ["/models/x", "./x/y", "../x", "~/x"])
def test_a_path_is_marked_as_one(value: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"use_peft: true\nmodel_name_or_path: '{value}'\n")
    assert [s.local for s in read_recipe(path).of("base_model_name_or_path")] == [True]


@pytest.mark.parametrize("owner", ["my_models", "sft-ckpts", "big_model", "old-runs", "nfs_home"])
def test_owners_that_are_called_like_folders_are_none(owner: str) -> None:
    assert not looks_like_hub_id(f"{owner}/Qwen3-8B")


@pytest.mark.parametrize("owner", ["unsloth", "allenai", "nvidia", "modelscope", "rootsai"])
def test_owners_that_only_begin_so_are_some(owner: str) -> None:
    assert looks_like_hub_id(f"{owner}/Qwen3-8B")
