"""What is recorded of the environment: variables by an allow-list, and versions. Never the host.

Values lose what looks like a secret, and home folders in paths become `~`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ...records.names import decoded
from ...records.strict_json import Json
from .redacted_argv import redacted_text
from .secret_names import variable_looks_secret

# Variables that change what is computed, or how ranks talk to each other.
NAMES = frozenset(
    """
    CUDA_VISIBLE_DEVICES CUDA_DEVICE_ORDER CUDA_DEVICE_MAX_CONNECTIONS CUDA_LAUNCH_BLOCKING
    CUDA_MODULE_LOADING CUBLAS_WORKSPACE_CONFIG CUBLASLT_WORKSPACE_SIZE
    HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES ASCEND_RT_VISIBLE_DEVICES HSA_OVERRIDE_GFX_VERSION
    OMP_NUM_THREADS OMP_PROC_BIND MKL_NUM_THREADS MKL_CBWR OPENBLAS_NUM_THREADS
    NUMEXPR_NUM_THREADS PYTHONHASHSEED PYTHONOPTIMIZE PYTHONNOUSERSITE TORCHELASTIC_RUN_ID
    NVIDIA_TF32_OVERRIDE NVTE_ALLOW_NONDETERMINISTIC_ALGO TOKENIZERS_PARALLELISM
    TF_DETERMINISTIC_OPS TF_CUDNN_DETERMINISTIC
    HF_HUB_OFFLINE TRANSFORMERS_OFFLINE SOURCE_DATE_EPOCH LC_ALL LANG TZ
    RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK
    """.split()
)
PREFIXES = (
    "NCCL_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "VLLM_", "SGLANG_", "SGL_", "NVTE_", "TRITON_",
    "FLASHINFER_", "FLASH_ATTENTION_", "MEGATRON_", "RCCL_", "HCCL_", "GLOO_", "NVSHMEM_",
    "MIOPEN_", "RL_KERNEL_", "KERNEL_ALIGN_",
)  # fmt: skip
# Parts of a name that say where a machine is, or who uses it.
_WHERE = frozenset("HOST HOSTNAME ADDR ADDRESS IP URL URI ENDPOINT USER USERNAME COMM".split())
PACKAGES = (
    "torch", "numpy", "vllm", "sglang", "transformers", "peft", "accelerate", "safetensors",
    "triton", "flash-attn", "flashinfer-python", "transformer-engine", "megatron-core",
    "deepspeed", "ray", "xformers", "torchvision", "slime", "sgl-kernel", "nvidia-nccl-cu12",
    "nvidia-nccl-cu13", "nvidia-cublas-cu12", "nvidia-cublas", "cuda-python",
)  # fmt: skip
_LONGEST = 4096
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_]{1,100}")
_HOME = re.compile(
    r"(?<![\w~])(?:/(?:home|Users)/[^/\s:;,\"']+|/root(?=[/:;,\s]|$)|"
    r"[A-Za-z]:[\\/]{1,2}Users[\\/]{1,2}[^\\/\s:;,\"']+)"
)


def is_recorded(name: str) -> bool:
    """Tell whether a variable is on the list, and is neither secret nor about the machine."""
    return _is_listed(name) and not _is_private(name)


def withheld_variables(environment: Mapping[str, str]) -> list[str]:
    """Name the variables that are on the list and whose values are private all the same."""
    return [
        name
        for name in sorted(environment)
        if _is_listed(name) and _is_private(name) and _PLAIN_NAME.fullmatch(name)
    ]


def _is_listed(name: str) -> bool:
    return name in NAMES or (name.startswith(PREFIXES) and name.isascii())


def _is_private(name: str) -> bool:
    return variable_looks_secret(name) or not _WHERE.isdisjoint(name.upper().split("_"))


def recorded_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variables of the list that are set, redacted, in order of their names."""
    return {
        name: without_home(redacted_text(decoded(environment[name])[:_LONGEST]))
        for name in sorted(environment)
        if is_recorded(name)
    }


def without_home(text: str) -> str:
    """Give a text in which home folders, and with them the names of users, are `~`."""
    from pathlib import Path

    try:
        home = str(Path.home())
    except RuntimeError:
        home = ""
    if len(home) > 1:
        text = re.sub(rf"(?<![\w~]){re.escape(home)}(?=[\\/:;,\s]|$)", "~", text)
    return _HOME.sub("~", text)


def recorded_environment(environment: Mapping[str, str]) -> dict[str, Json]:
    """Give variables, versions of packages that are installed, Python, system and machine type."""
    import platform

    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "machine": platform.machine(),
        "packages": dict[str, Json](installed_versions()),
        "variables": dict[str, Json](recorded_variables(environment)),
        "withheld": list[Json](withheld_variables(environment)),
    }


def installed_versions() -> dict[str, str]:
    """Give the versions of the listed packages by their metadata; none of them is imported."""
    from importlib import metadata

    found: dict[str, str] = {}
    for name in PACKAGES:
        try:
            version: str | None = metadata.version(name)
        except (metadata.PackageNotFoundError, ValueError, OSError):
            continue
        if version:
            found[name] = version
    return found
