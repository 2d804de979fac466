"""Tell a model's identity on the Hub from a path, and a secret from either."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_HUB_ID = re.compile(rf"{_PART}/{_PART}")
# First parts of relative paths that people train from; on the Hub they would be an owner's name.
_FOLDERS = frozenset(
    "adapter adapters app artifact artifacts assets base cache checkpoint checkpoints ckpt ckpts "
    "config configs content data dataset datasets dist downloads exp experiment experiments exps "
    "export exports files home local log logs lora loras lustre media merged mnt model models opt "
    "out output outputs pretrained project projects release result results root run runs save "
    "saved saves scratch shared snapshot snapshots src storage temp tmp train training user users "
    "var weight weights work workdir workspace".split()
)
_FOLDER_LIKE = re.compile(
    r"(?:^|[_-])(?:models?|ckpts?|checkpoints?|outputs?|runs|data|work|workspace|experiments?|tmp"
    r"|home|mnt|root|scratch|cache)$"
)
_CACHED = re.compile(rf"(?:^|/)models--({_PART})/snapshots/([0-9a-f]{{40}})/?", re.ASCII)
_SAVED = re.compile(
    r"(?:checkpoint|ckpt|epoch|global_?step|iter|step)[-_]?\d+|last|latest|final|best|hf|actor"
)
_FILE = re.compile(r"\.(?:safetensors|bin|pt|pth|ckpt|gguf|json|ya?ml|git|ipc)", re.IGNORECASE)
_SECRETS = re.compile(
    r"hf_[A-Za-z0-9]{16}|gh[pousr]_[A-Za-z0-9]{16}|github_pat_|glpat-|sk-[A-Za-z0-9_-]{16}"
    r"|AKIA[A-Z0-9]{12}|xox[abpr]-|eyJ[A-Za-z0-9_-]{16}|tml-[A-Za-z0-9]{16}|tgp_v\d_|AIza[\w-]{20}"
    r"|://[^/\s@]*:[^/\s@]*@|://[^/\s@]+@|[?&](?:[\w-]*token|key|secret|sig|signature)="
    r"|-----BEGIN |Bearer\s"
)
_SECRET_KEY = re.compile(
    r"(?:^|[._-])(?:token|secret|password|passwd|api_?key|access_?key|private_?key|credentials?"
    r"|auth|authorization)$|api_?key|password|secret",
    re.IGNORECASE,
)


def looks_like_hub_id(value: str, *, near: Path | None = None) -> bool:
    """Tell whether a string can only be meant as `owner/name` on the Hub.

    A relative path of two parts looks the same. It is refused if it exists below the working folder
    or below `near`, the recipe's folder, or if a part is one that paths have (`work/model`,
    `outputs/checkpoint-10`). Names without an owner (`gpt2`) are refused: so are folders called.
    The letters allowed are those of huggingface_hub 2.4's validate_repo_id.
    """
    if not _HUB_ID.fullmatch(value) or "--" in value or ".." in value:
        return False
    owner, name = value.lower().split("/")
    if (
        owner in _FOLDERS
        or _FOLDER_LIKE.search(owner)
        or _SAVED.fullmatch(owner)
        or _SAVED.fullmatch(name)
    ):
        return False
    if name in _FOLDERS or _FILE.fullmatch(Path(name).suffix):
        return False
    return not any(os.path.lexists(folder / value) for folder in (Path(), near) if folder)


def hub_cache(path: str) -> tuple[str, str] | None:
    """Give the identity and the revision that a snapshot's path in the Hub's cache tells.

    The cache's folders are `models--OWNER--NAME/snapshots/COMMIT`; no name on the Hub holds `--`.
    """
    found = _CACHED.search(path)
    if not found or found.end() != len(path):
        return None
    identity = found[1].replace("--", "/", 1)
    return (identity, found[2]) if looks_like_hub_id(identity) else None


def exists_near(path: str, folder: Path) -> bool:
    """Tell whether a relative path exists in a recipe's folder or in one of the two above it."""
    folders = (folder, *folder.absolute().parents[:2])
    return any(os.path.lexists(each / path) for each in folders)


def looks_like_secret(value: str) -> bool:
    """Tell whether a string has the form of a token, a key or an address with credentials."""
    return _SECRETS.search(value) is not None


def names_a_secret(key: str) -> bool:
    """Tell from a key's name whether what it holds is secret."""
    return _SECRET_KEY.search(key) is not None
