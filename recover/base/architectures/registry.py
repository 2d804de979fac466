"""All families by their model_type."""

from __future__ import annotations

from collections.abc import Mapping

from . import deepseek, dense, gemma, gpt2, mixture
from .family import Family

FAMILIES: Mapping[str, Family] = {
    **dense.FAMILIES,
    **gemma.FAMILIES,
    **gpt2.FAMILIES,
    **mixture.FAMILIES,
    **deepseek.FAMILIES,
}
