"""What a `quantization_config` changes about the tensors on disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..model import BaseTensor
from .settings import Settings, mapped

# Weights keep their names and shapes, in a narrower dtype; scales lie beside them.
_SAME_SHAPE = frozenset({"fp8", "fbgemm_fp8", "mxfp4"})


@dataclass(frozen=True)
class Quantisation:
    """A way of quantising, by transformers' name of it; None for none.

    Only mxfp4 on fused experts is written out. fp8 keeps names and shapes. Any other replaces the
    weights of linear layers by tensors of its own, which are then not predicted.
    """

    method: str | None = None

    @property
    def mxfp4(self) -> bool:
        """Tell whether fused experts lie as blocks and scales."""
        return self.method == "mxfp4"

    @property
    def replaces(self) -> bool:
        """Tell whether linear layers have other tensors than a weight of the usual shape."""
        return self.method is not None and self.method not in _SAME_SHAPE

    def weight(self, name: str, shape: tuple[int, ...], dtype: str | None) -> Iterator[BaseTensor]:
        """Give what is expected of a linear layer's weight, which some layers may be spared."""
        if not self.replaces:
            exact = self.method is None or self.mxfp4
            yield BaseTensor(name, shape, dtype if exact else None)

    def notes(self) -> tuple[str, ...]:
        """Say in sentences what stays unknown."""
        if self.replaces:
            return (
                "config.json has a quantization_config under which the weights of linear layers "
                "are stored in other shapes; only the base's headers can say which.",
            )
        if self.method in _SAME_SHAPE and not self.mxfp4:
            return ("config.json does not say which linear layers are stored in 8 bits.",)
        return ()


def quantisation_of(settings: Settings) -> Quantisation:
    """Read `quantization_config`, of which only the method counts. Raises Unusable."""
    value = settings.value("quantization_config")
    if value is None:
        return Quantisation()
    found = mapped(value)
    if found is None:
        raise settings.wrong("quantization_config", "an object")
    method = found.get("quant_method")
    if method is None and (found.get("load_in_4bit") or found.get("load_in_8bit")):
        method = "bitsandbytes"
    if not isinstance(method, str):
        raise settings.wrong("quantization_config", "an object that names its quant_method")
    return Quantisation(method)
