"""The keys of adapter_config.json: what each may hold, and since which PEFT it exists.

Keys and neutral values are those that `LoraConfig.to_dict` of peft 0.21.2 writes. The first version
of each key was read off the class in the wheels 0.3.0 to 0.21.0, one a minor version, so that a key
that came with a patch release counts from that release's minor version on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ....errors import Unusable
from ....records.strict_json import Json

PEFT_VERSION = "0.21.2"
OLDEST = (0, 3)
_MOST = 1 << 53
_LEAST_ALPHA, _MOST_ALPHA = 1e-9, 1e9
_TOO_LARGE = 1 << 31  # no dimension of a matrix


class Shape(NamedTuple):
    """What a key may hold, in words and as a check."""

    words: str
    fits: Callable[[Json], bool]


class Field(NamedTuple):
    """One key: its neutral value, what else it may hold, and the first PEFT that knows it."""

    neutral: Json
    shape: Shape
    since: tuple[int, int] = OLDEST


def _is_flag(value: Json) -> bool:
    return isinstance(value, bool)


def _is_between(value: Json, least: float, most: float) -> bool:
    # Comparing needs no conversion of an integer to a float, which may not hold it.
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return least <= value <= most


def _is_int(value: Json) -> bool:
    return isinstance(value, int) and _is_between(value, -_MOST, _MOST)


def _is_count(value: Json) -> bool:
    return isinstance(value, int) and _is_between(value, 0, _MOST)


def _is_rank(value: Json) -> bool:
    return isinstance(value, int) and _is_between(value, 1, _TOO_LARGE - 1)


def _is_alpha(value: Json) -> bool:
    return _is_between(value, _LEAST_ALPHA, _MOST_ALPHA)


def _is_share(value: Json) -> bool:
    return _is_between(value, 0, 1)


def _is_text(value: Json) -> bool:
    return isinstance(value, str) and bool(value)


def _is_names(value: Json) -> bool:
    return isinstance(value, list) and all(_is_text(item) for item in value)


def _is_counts(value: Json) -> bool:
    return isinstance(value, list) and all(_is_count(item) for item in value)


def _is_pair(value: Json) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_counts(value)


def _are_pairs(value: Json) -> bool:
    return isinstance(value, list) and all(_is_pair(item) for item in value)


def _is_targets(value: Json) -> bool:
    return _is_text(value) or _is_names(value)


def _are_layers(value: Json) -> bool:
    return _is_int(value) or _is_counts(value)


def _are_ranks(value: Json) -> bool:
    return isinstance(value, dict) and all(_is_rank(each) for each in value.values())


def _are_alphas(value: Json) -> bool:
    return isinstance(value, dict) and all(_is_alpha(each) for each in value.values())


def _are_tokens(value: Json) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(_is_counts(each) for each in value.values())
    return _is_counts(value)


def _is_object(value: Json) -> bool:
    return isinstance(value, dict)


def _is_init(value: Json) -> bool:
    return _is_flag(value) or _is_text(value)


def _is_bias(value: Json) -> bool:
    return value in ("none", "all", "lora_only")


def _or_null(words: str, fits: Callable[[Json], bool]) -> Shape:
    def either(value: Json) -> bool:
        return value is None or fits(value)

    return Shape(f"{words}, or null", either)


_FLAG = Shape("true or false", _is_flag)
_RANK = Shape("a whole number above 0", _is_rank)
_ALPHA = Shape("a number above 0", _is_alpha)
_SHARE = Shape("a number from 0 to 1", _is_share)
_TEXT = Shape("a text", _is_text)
_NAMES = _or_null("a list of names", _is_names)
_TARGETS = _or_null("a list of names or one pattern", _is_targets)
_LAYERS = _or_null("layer numbers", _are_layers)
_RANKS = Shape("an object of pattern and rank", _are_ranks)
_ALPHAS = Shape("an object of pattern and alpha", _are_alphas)
_TOKENS = _or_null("token numbers, or an object of module and token numbers", _are_tokens)
_PAIRS = _or_null("a list of [first, end] layers", _are_pairs)
_OBJECT = _or_null("an object", _is_object)
_INIT = Shape("true, false or a text", _is_init)
_OPTIONAL_TEXT = _or_null("a text", _is_text)
_ALORA = _or_null("token numbers", _is_counts)
_BIAS = Shape("none, all or lora_only", _is_bias)

FIELDS: Mapping[str, Field] = MappingProxyType(
    {
        "alora_invocation_tokens": Field(None, _ALORA, (0, 18)),
        "alpha_pattern": Field({}, _ALPHAS, (0, 6)),
        "arrow_config": Field(None, _OBJECT, (0, 18)),
        "auto_mapping": Field(None, _OBJECT, (0, 4)),
        "base_model_name_or_path": Field(None, _OPTIONAL_TEXT),
        "bias": Field("none", _BIAS),
        "corda_config": Field(None, _OBJECT, (0, 15)),
        "ensure_weight_tying": Field(False, _FLAG, (0, 18)),
        "eva_config": Field(None, _OBJECT, (0, 14)),
        "exclude_modules": Field(None, _TARGETS, (0, 14)),
        "fan_in_fan_out": Field(False, _FLAG),
        "inference_mode": Field(True, _FLAG),
        "init_lora_weights": Field(True, _INIT),
        "kasa_config": Field(None, _OBJECT, (0, 21)),
        "layer_replication": Field(None, _PAIRS, (0, 10)),
        "layers_pattern": Field(None, _TARGETS, (0, 4)),
        "layers_to_transform": Field(None, _LAYERS, (0, 4)),
        "loftq_config": Field({}, _OBJECT, (0, 7)),
        "lora_alpha": Field(None, _ALPHA),
        "lora_bias": Field(False, _FLAG, (0, 14)),
        "lora_dropout": Field(0.0, _SHARE),
        "lora_ga_config": Field(None, _OBJECT, (0, 19)),
        "megatron_config": Field(None, _OBJECT, (0, 7)),
        "megatron_core": Field("megatron.core", _OPTIONAL_TEXT, (0, 7)),
        "modules_to_save": Field(None, _NAMES),
        "monteclora_config": Field(None, _OBJECT, (0, 20)),
        "peft_type": Field("LORA", _TEXT),
        "peft_version": Field(PEFT_VERSION, _OPTIONAL_TEXT, (0, 18)),
        "qalora_group_size": Field(16, _RANK, (0, 16)),
        "r": Field(None, _RANK),
        "rank_pattern": Field({}, _RANKS, (0, 6)),
        "revision": Field(None, _OPTIONAL_TEXT, (0, 4)),
        "target_modules": Field(None, _TARGETS),
        "target_parameters": Field(None, _NAMES, (0, 17)),
        "task_type": Field(None, _OPTIONAL_TEXT),
        "trainable_token_indices": Field(None, _TOKENS, (0, 15)),
        "use_bdlora": Field(None, _OBJECT, (0, 19)),
        "use_dora": Field(False, _FLAG, (0, 9)),
        "use_qalora": Field(False, _FLAG, (0, 16)),
        "use_rslora": Field(False, _FLAG, (0, 8)),
        "velora_config": Field(None, _OBJECT, (0, 20)),
    }
)


def check_value(field: str, value: Json, origin: str) -> None:
    """Demand a value that PEFT can use. Raises Unusable that names the place."""
    known = FIELDS.get(field)
    if known is not None and not known.shape.fits(value):
        raise Unusable(
            f"{origin}: {field} must be {known.shape.words}.",
            remedy=f"Mend it there, or state the field with --set {field}=… .",
        )
