"""Record artifacts from Python: in a cell's own process, or in a job that runs cells itself.

    recorder = GateRecorder.from_environment()      # in a command that a gate runs
    recorder.record("logits.npy", logits)           # an array of NumPy, or bytes as they are
    recorder.record("hidden.safetensors", {"layers.0.q_proj": tensor})   # arrays or torch tensors
    recorder.says(fallback=False)

Tensors are written bit for bit; torch is never imported, only what a tensor itself offers is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DestinationExists, Unusable
from ...records.documents import to_text
from ...records.names import printable
from ...recover.formats.safetensors import parse_header, write_header
from .patterns import STATUS_FILE, pattern_fault

if TYPE_CHECKING:
    import numpy as np

OUT_VARIABLE = "REEFKIT_GATE_OUT"
CELL_VARIABLE = "REEFKIT_GATE_CELL"
_NUMPY_DTYPES = {
    "b1": "BOOL", "u1": "U8", "i1": "I8", "u2": "U16", "i2": "I16", "f2": "F16", "u4": "U32",
    "i4": "I32", "f4": "F32", "u8": "U64", "i8": "I64", "f8": "F64", "c8": "C64",
}  # fmt: skip
_TORCH_DTYPES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16",
    "uint32": "U32", "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16",
    "bfloat16": "BF16", "float32": "F32", "float64": "F64", "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e8m0fnu": "F8_E8M0",
}  # fmt: skip


class GateRecorder:
    """Writes a cell's artifacts into its folder; each name once."""

    def __init__(self, folder: Path) -> None:
        """Take the folder that `{out}` stands for."""
        self._folder = folder

    @classmethod
    def from_environment(cls) -> GateRecorder:
        """Take the folder that the gate which runs this process names. Raises Unusable."""
        folder = os.environ.get(OUT_VARIABLE)
        if not folder:
            raise Unusable(
                f"No gate runs this process: {OUT_VARIABLE} is not set.",
                remedy="Run it as a cell of a gate, or name the folder.",
            )
        return cls(Path(folder))

    def record(self, name: str, value: Any) -> Path:
        """Write an artifact: bytes, an array (`.npy`), or tensors by name (`.safetensors`).

        Raises Unusable for a value that the name's suffix does not fit, DestinationExists.
        """
        fault = pattern_fault(name)
        if fault is not None:
            raise Unusable(f"`{printable(name)}` is a name {fault}.", remedy="Choose another name.")
        is_mapping = _is_a(value, Mapping)
        if _is_a(value, (bytes, bytearray, memoryview)):
            return self._write(name, [bytes(value)])
        if name.endswith(".safetensors") and is_mapping:
            return self._write(name, _safetensors(value))
        if name.endswith(".npy") and not is_mapping:
            return self._write(name, [_npy(_array(name, value))])
        raise Unusable(
            f"A {type(value).__name__} cannot be recorded as {printable(name)}.",
            remedy="Give bytes, an array for .npy, or a dict of tensors for .safetensors.",
        )

    def says(self, *, fallback: bool | None = None, unavailable: str | None = None) -> None:
        """Write what the cell says of itself: whether it fell back, or why it could not run."""
        said: dict[str, object] = {"status": "ok" if unavailable is None else "unavailable"}
        if unavailable is not None:
            said["reason"] = unavailable
        if fallback is not None:
            said["fallback"] = fallback
        self._write(STATUS_FILE, [to_text(said).encode()])

    def _write(self, name: str, parts: list[bytes]) -> Path:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(path, "xb") as file:
                for part in parts:
                    file.write(part)
        except FileExistsError:
            raise DestinationExists(
                f"{printable(name)} was recorded already.", remedy="Record each name once."
            ) from None
        return path


def _is_a(value: object, kinds: Any) -> bool:
    """Tell what a value is, without taking from a type checker what it may then be asked."""
    return isinstance(value, kinds)


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    import numpy as np

    if _is_a(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if hasattr(value, "detach"):
        dtype, shape, data = _bits(name, value)
        plain = {safe: numpy for numpy, safe in _NUMPY_DTYPES.items()}
        if dtype in plain:
            return np.frombuffer(data, f"<{plain[dtype]}").reshape(shape)
    raise Unusable(
        f"{printable(name)} has a dtype that NumPy lacks.", remedy="Record it as .safetensors."
    )


def _npy(array: np.ndarray[Any, Any]) -> bytes:
    import io

    import numpy as np

    if array.dtype.hasobject:
        raise Unusable("An array of objects has no bits.", remedy="Give an array of numbers.")
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, allow_pickle=False)
    return stream.getvalue()


def _safetensors(tensors: Mapping[str, Any]) -> list[bytes]:
    found = {name: _bits(name, value) for name, value in tensors.items()}
    header = write_header((name, dtype, shape) for name, (dtype, shape, _) in found.items())
    return [header, *(found[tensor.name][2] for tensor in parse_header(header).tensors)]


def _bits(name: str, value: Any) -> tuple[str, tuple[int, ...], bytes]:
    """Give dtype, shape and bytes, little-endian and row by row, of an array or a torch tensor."""
    import numpy as np

    if _is_a(value, (np.ndarray, np.generic)):
        array: np.ndarray[Any, Any] = np.ascontiguousarray(value)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        kind = array.dtype.str[1:]
        if kind in _NUMPY_DTYPES:
            return _NUMPY_DTYPES[kind], value.shape, array.tobytes()
    elif hasattr(value, "detach"):
        kind = str(value.dtype).removeprefix("torch.")
        if kind in _TORCH_DTYPES and sys.byteorder == "little":
            torch = sys.modules["torch"]
            plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            return _TORCH_DTYPES[kind], tuple(value.shape), plain.numpy().tobytes()
    raise Unusable(
        f"`{printable(name)}` is no tensor of a dtype that safetensors has.",
        remedy="Give a NumPy array or a torch tensor.",
    )
