"""Load a checkpoint by name and shape with the libraries that will load it for real.

The libraries run in a process of their own: it sees no network and no GPU, keeps torch out of this
one, and can be given up when a hostile pattern or size makes it hang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import cast

from ....errors import Unusable
from ....records.names import printable
from ...adapter.expected.whole import resized_rows
from ...adapter.structure import read_adapter
from ...base.model import Base
from ...formats.safetensors import Tensor

_NEEDED = ("torch", "transformers", "peft")
_SECONDS = 300
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONSAFEPATH": "1",
}


def load_check(
    tensors: Iterable[Tensor],
    config: Mapping[str, object] | None,
    base: Base,
    *,
    bare: bool = False,
) -> dict[str, object]:
    """Load onto a model without weights, and give the key lists that must be empty.

    With `config`, an adapter_config.json, by PEFT; without one, as a full checkpoint against the
    names and shapes that transformers itself writes. The answer has `ok`, the versions, `missing`,
    `unexpected` and `errors`; `overwrites` are tensors that replace weights of the base, which
    is lawful for resized embeddings and biases, and `not_checked` those that PEFT gives a place
    only once values are there. Values are not read. `bare` builds the model without a head, as
    AutoModel does; `base` must then be the bare one. Raises Unusable where the libraries or the
    base's config.json are absent, or take longer than 5 minutes.
    """
    absent = [name for name in _NEEDED if find_spec(name) is None]
    if absent:
        raise Unusable(
            f"Loading needs {' and '.join(absent)}, which cannot be imported here.",
            remedy="pip install 'reefkit[peft]'",
        )
    if base.config is None:
        raise Unusable(
            f"{printable(base.label)} has no config.json, without which no model can be built.",
            remedy="Put the base's config.json beside its weights, or name it with --base.",
        )
    tensors = tuple(tensors)
    rows = resized_rows(read_adapter(tensors), base) if config is not None else None
    return _ask(
        {
            "tensors": [(t.name, t.dtype, t.shape) for t in tensors],
            "adapter": None if config is None else dict(config),
            "model": dict(base.config) if rows is None else _resized(base.config, base, rows),
            "rows": rows,
            "bare": bare,
        }
    )


def _resized(config: Mapping[str, object], base: Base, rows: int) -> dict[str, object]:
    """Give the config of the base as it is after its vocabulary was resized."""
    changed = dict(config)
    for key, value in config.items():
        if key == "vocab_size" and value == base.vocab_size:
            changed[key] = rows
        elif isinstance(value, Mapping):
            changed[key] = _resized(cast("Mapping[str, object]", value), base, rows)
    return changed


def _ask(request: Mapping[str, object]) -> dict[str, object]:
    code = "from reefkit.recover.validation.loading.load_child import main; main()"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            input=json.dumps(request).encode(),
            capture_output=True,
            check=False,
            timeout=_SECONDS,
            env={**os.environ, **_ENVIRONMENT},
            cwd=os.path.sep,  # nothing that lies in the working folder may pass for a library
        )
    except subprocess.TimeoutExpired:
        raise Unusable(
            f"Loading took longer than {_SECONDS} s and was given up.",
            remedy="Look at target_modules and the sizes in the base's config.json.",
        ) from None
    if done.returncode:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2][:300]
        raise Unusable(
            f"The process that loads ended with {done.returncode}: {printable(last)}",
            remedy="Try `python -c 'import peft, transformers'` in this environment.",
        )
    return cast("dict[str, object]", json.loads(done.stdout))
