"""The fields beside ranks, targets, scale and base: saved modules, tokens, initialisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ....records.names import printable
from ....records.strict_json import Json
from ...base.model import Base, Module, ModuleKind
from ..expected.whole import parameters_in_memory, saved_parameters
from ..patterns import ends_with_any
from ..statement import Source, Statement
from ..structure import Adapter
from .evidence import Ledger, Side
from .naming import modules_in_memory, shortest_tails
from .proof import Proof, is_embedding
from .ranks import Ranks
from .schema import FIELDS, PEFT_VERSION
from .statements import Statements, choose, take

_WHEN_STATED = (
    "alora_invocation_tokens",
    "auto_mapping",
    "corda_config",
    "eva_config",
    "loftq_config",
    "lora_ga_config",
    "megatron_config",
    "megatron_core",
    "arrow_config",
    "use_qalora",
    "qalora_group_size",
)
# Initialisations that change the base's own weights, which PEFT does again on loading.
_MUTATING = ("pissa", "olora", "corda", "loftq", "lora_ga")
_MATTERS = frozenset({"alora_invocation_tokens", "use_qalora"})


def settle_flags(proof: Proof, statements: Statements, base: Base | None, ledger: Ledger) -> None:
    """Enter what the kinds of tensors prove: DoRA, biases, and variants that must be stated."""
    _proven_flag("use_dora", proof.use_dora, "lora_magnitude_vector", statements, ledger)
    _proven_flag("lora_bias", proof.lora_bias, "lora_B.bias", statements, ledger)
    _method(statements, ledger)
    _bias(proof, statements, base, ledger)
    for name in ("kasa_config", "velora_config", "monteclora_config", "use_bdlora"):
        needed = name in proof.variants or (name == "use_bdlora" and proof.divided)
        said = choose(name, statements.candidates(name), ledger)
        if needed and (said is None or said.value is None):
            ledger.need(
                name,
                "tensors have its shapes, and its settings are in none",
                f"--set {name}='{{…}}'",
            )
        elif said is not None and said.value is not None and not needed:
            _against(name, said, None, "no tensor of it is there", ledger)
        elif said is not None:
            ledger.know(name, said.value, said.source, said.origin)
        else:
            ledger.know(name, None, Source.PROVEN, "no tensor of it is there")


def _method(statements: Statements, ledger: Ledger) -> None:
    """Hold what any document calls the method against LoRA, which the names prove."""
    origin = "names of the tensors: lora_A and lora_B"
    for document in statements.documents():
        for said in document.of("peft_type"):
            if str(said.value).upper() != "LORA":
                _against("peft_type", said, "LORA", origin, ledger)
                return
    ledger.know("peft_type", "LORA", Source.PROVEN, origin)


def _proven_flag(name: str, value: bool, part: str, statements: Statements, ledger: Ledger) -> None:
    origin = f"every module has a {part}" if value else f"no tensor is a {part}"
    for said in statements.candidates(name):
        if said.value is not value:
            _against(name, said, value, origin, ledger)
            return
    ledger.know(name, value, Source.PROVEN, origin)


def _against(field: str, said: Statement, proven: Json, origin: str, ledger: Ledger) -> None:
    ledger.conflict(
        field,
        f"{said.origin} contradicts the tensors: {origin}.",
        Side(proven, Source.PROVEN, origin),
        Side.of(said),
    )


def _bias(proof: Proof, statements: Statements, base: Base | None, ledger: Ledger) -> None:
    origin = {
        "none": "no bias of the base is saved",
        "lora_only": "biases of targeted modules are saved",
        "all": "biases of modules without LoRA are saved",
    }[proof.bias]
    lawful: dict[str, tuple[str, ...]] = {
        "none": ("none", "lora_only", "all"),
        "lora_only": ("lora_only", "all"),
    }
    said = choose("bias", statements.candidates("bias"), ledger)
    if said is not None and said.value != proof.bias:
        # A base without biases saves none under any setting; targets may be all that have one.
        biased = base is not None and any(
            base.modules[name].bias for name in proof.targets if name in base.modules
        )
        if proof.bias == "none" and biased:
            lawful["none"] = ("none",)
        if said.value not in lawful.get(proof.bias, ()) or said.source is Source.DEFAULT:
            _against("bias", said, proof.bias, origin, ledger)
            return
        ledger.know("bias", said.value, said.source, f"{said.origin}; {origin}")
        return
    ledger.know("bias", proof.bias, Source.PROVEN, origin)


def settle_saved(
    adapter: Adapter, proof: Proof, statements: Statements, base: Base | None, ledger: Ledger
) -> None:
    """Enter modules_to_save, and note a resized vocabulary."""
    resized = {name for name, rows in proof.embeddings.items() if proof.resized in (rows,)}
    if proof.resized and base is not None:
        ledger.cautions.append(
            f"The embeddings have {proof.resized:,} rows, not those of {base.label}: call "
            f"resize_token_embeddings({proof.resized}) on the base before loading."
        )
    proven = [name for name in proof.saved if name not in resized]
    shown = ", ".join(map(printable, proof.saved[:4]))
    origin = f"{len(proof.saved):,} modules are saved whole: {shown}"
    if not proof.saved:
        origin = "no module is saved whole"
    saved = {f"{m}.{leaf}" for m in proof.saved for leaf in adapter.whole[m]}
    setting = statements.set_on_command_line("modules_to_save")
    stated = (setting,) if setting else statements.of_recipes("modules_to_save", Source.STATED)
    for said in stated:
        names = tuple(cast("list[str]", said.value or []))
        found = _saved_by(names, base, saved)
        optional = {f"{name}.weight" for name in proof.embeddings}
        if not saved - optional <= found or not found <= saved:
            _against("modules_to_save", said, list[Json](proof.saved), origin, ledger)
            return
    if stated:
        said = stated[0]
        value = said.value or None
        ledger.know("modules_to_save", value, Source.PROVEN, f"{origin}; as by {said.origin}")
        return
    if base is not None:
        everything = modules_in_memory(base) | frozenset(proven)
        proven = shortest_tails(proven, everything)
    if resized:
        origin += "; resized embeddings load without being named"
    ledger.know("modules_to_save", list[Json](proven) or None, Source.PROVEN, origin)


def _saved_by(names: tuple[str, ...], base: Base | None, saved: set[str]) -> set[str]:
    """Give the parameters that modules_to_save selects, of a base or else of those saved."""
    shapes = parameters_in_memory(base) if base else {}
    return set(saved_parameters(names, {**dict.fromkeys(saved, ()), **shapes})) if names else set()


def settle_tokens(proof: Proof, statements: Statements, base: Base | None, ledger: Ledger) -> None:
    """Enter the indices of trainable tokens: stated, and as many as the tensors have."""
    field = "trainable_token_indices"
    said = choose(field, statements.candidates(field), ledger)
    shown = ", ".join(f"{count:,} of {printable(name)}" for name, count in proof.tokens.items())
    if not proof.tokens:
        if said is not None and said.value:
            _against(field, said, None, "no tensor is a trainable_tokens_delta", ledger)
        else:
            ledger.know(field, None, Source.PROVEN, "no tensor is a trainable_tokens_delta")
        return
    if said is None or not said.value:
        if not any(conflict.field == field for conflict in ledger.conflicts):
            ledger.need(
                field,
                f"tensors count the tokens ({shown}) and do not number them",
                f"--set {field}=1,2,3",
            )
        return
    if not _counts_fit(said.value, proof.tokens, base):
        counts: dict[str, Json] = dict(proof.tokens)
        _against(field, said, counts, f"the tensors hold {shown}", ledger)
        return
    ledger.know(field, said.value, said.source, f"{said.origin}; the tensors hold as many")


def _counts_fit(value: Json, tokens: Mapping[str, int], base: Base | None) -> bool:
    if isinstance(value, list):
        first = base.input_embedding if base and base.input_embedding else next(iter(tokens))
        given: dict[str, list[int]] = {first: cast("list[int]", value)}
    else:
        given = cast("dict[str, list[int]]", value)
    for module, count in tokens.items():
        fitting = [t for end, t in given.items() if ends_with_any(module, frozenset({end}))]
        if not fitting or len(set(fitting[0])) != count or len(fitting[0]) != count:
            return False
    rows = base.modules[base.input_embedding].inputs if base and base.input_embedding else None
    within = rows is None or all(token < rows for each in given.values() for token in each)
    return within and len(given) == len(tokens)


def settle_initialisation(ranks: Ranks | None, statements: Statements, ledger: Ledger) -> None:
    """Enter init_lora_weights: it matters on loading where it changes the base's weights."""
    field = "init_lora_weights"
    stated = statements.candidates(field)
    if ranks is not None and ranks.reading.doubled == 2:
        origin = stated[0].origin if stated else "the conversion"
        ledger.know(field, True, Source.STATED, f"{origin}; a converted adapter is plain LoRA")
        return
    said = choose(field, stated, ledger)
    if said is None:
        if not any(conflict.field == field for conflict in ledger.conflicts):
            ledger.assume(
                field,
                True,
                "no source says; PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA must be stated, for they "
                "change the base's weights on loading",
                matters=True,
            )
        return
    ledger.know(field, said.value, said.source, said.origin)
    init = str(said.value).lower()
    if init.startswith(_MUTATING):
        random = "_niter_" in init
        ledger.cautions.append(
            f"init_lora_weights={printable(init)} changes the base's weights on loading"
            + ("; its random SVD gives other weights each time." if random else ".")
        )


def settle_replication(
    proof: Proof, statements: Statements, base: Base | None, ledger: Ledger
) -> None:
    """Enter layer_replication, which adapters for more layers than the base has need."""
    field = "layer_replication"
    said = choose(field, statements.candidates(field), ledger)
    beyond = [n for n in proof.targets if base is not None and n not in base.modules]
    if said is not None:
        ledger.know(field, said.value or None, said.source, said.origin)
    elif beyond:
        ledger.need(
            field,
            f"{len(beyond):,} modules lie in layers that the base does not have",
            f"--set {field}='[[0,16],[8,24]]'",
        )
    else:
        ledger.know(field, None, Source.PROVEN, "no layer number is beyond those of the base")


def settle_tying(proof: Proof, statements: Statements, base: Base | None, ledger: Ledger) -> None:
    """Enter ensure_weight_tying, which the tensors of a tied base's embeddings prove.

    Measured with peft 0.21.2: where it is set, the head's tensors are saved with the embedding's,
    except for trainable tokens, which it does not change.
    """
    field = "ensure_weight_tying"
    said = choose(field, statements.candidates(field), ledger)
    proven, origin = _tying(proof, base)
    if proven is not None and said is not None and said.value is not proven and base is not None:
        _against(field, said, proven, origin, ledger)
    elif said is not None:
        ledger.know(field, said.value, said.source, said.origin)
    elif proven is not None:
        ledger.know(field, proven, Source.PROVEN, origin)
    elif not any(conflict.field == field for conflict in ledger.conflicts):
        ledger.assume(field, False, f"no source says; {origin}", matters=base is None)


def _tying(proof: Proof, base: Base | None) -> tuple[bool | None, str]:
    """Give what the tensors prove of tying, None where both ways load the same."""
    places = {base.input_embedding, base.output_embedding} if base else set[str | None]()
    if proof.tied_head is not None:
        same = "the same as" if proof.tied_head else "another than"
        return proof.tied_head, f"the head's LoRA is {same} the embedding's"
    if base is None:
        touched = [n for n in (*proof.ranks, *proof.saved, *proof.tokens) if is_embedding(n, None)]
        return None if touched else False, "no embedding is adapted"
    touched = [name for name in (*proof.ranks, *proof.saved) if name in places]
    if base.tied and len(touched) == 1:
        return False, "only one of two tied embeddings is saved"
    if base.tied and (touched or places & proof.tokens.keys()):
        return None, "it loads the same"
    return None, "no tied embedding is adapted"


def settle_rest(proof: Proof, statements: Statements, base: Base | None, ledger: Ledger) -> None:
    """Enter what is left: fields that are stated, and those that do not matter on loading."""
    _fan(proof, statements, base, ledger)
    _task(statements, base, ledger)
    ledger.know("inference_mode", True, Source.DEFAULT, f"PEFT {PEFT_VERSION} writes it on saving")
    if take("peft_version", statements, ledger) is None:
        ledger.assume("peft_version", PEFT_VERSION, "no source says; the layout is of this version")
    if take("lora_dropout", statements, ledger) is None:
        ledger.assume("lora_dropout", 0.0, "no source says; it acts in training only")
    for name in _WHEN_STATED:
        if take(name, statements, ledger) is not None or name in ledger.fields:
            continue
        neutral = FIELDS[name].neutral
        silent = statements.silent_on(name)
        if name in _MATTERS and silent is not None:
            origin = f"PEFT's default; {silent.label} sets none"
            ledger.know(name, neutral, Source.DEFAULT, origin)
        else:
            why = "no source says" + ("" if name in _MATTERS else "; not needed on loading")
            ledger.assume(name, neutral, why, matters=name in _MATTERS)


def _fan(proof: Proof, statements: Statements, base: Base | None, ledger: Ledger) -> None:
    field = "fan_in_fan_out"
    modules = base.modules if base else dict[str, Module]()
    kinds = {modules[name].kind for name in proof.targets if name in modules}
    kinds -= {ModuleKind.EMBEDDING}
    if kinds:
        value = kinds == {ModuleKind.CONV1D}
        ledger.know(field, value, Source.PROVEN, "how the base's modules hold their weights")
    elif take(field, statements, ledger) is None:
        ledger.assume(field, False, "no source says; PEFT corrects it on loading")


def _task(statements: Statements, base: Base | None, ledger: Ledger) -> None:
    field = "task_type"
    if take(field, statements, ledger) is not None or field in ledger.fields:
        return
    listed = (base.config or {}).get("architectures") if base else None
    names = cast("list[object]", listed) if isinstance(listed, list) else []
    if len(names) == 1 and str(names[0]).endswith(("ForCausalLM", "LMHeadModel")):
        origin = f"config.json of the base: architectures is {printable(str(names[0]))}"
        ledger.know(field, "CAUSAL_LM", Source.STATED, origin)
    else:
        ledger.assume(field, None, "no source says; AutoPeftModel needs it, PeftModel does not")
