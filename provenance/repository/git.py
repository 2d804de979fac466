"""Ask git, without letting a repository's configuration run anything."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from ...errors import Unusable
from ...records.names import printable

_TIMEOUT_S = 120
_SAFE = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "--no-optional-locks")


def git(folder: Path, *arguments: str, stdin: bytes = b"", may_fail: bool = False) -> bytes | None:
    """Run a git command in a folder and give what it prints; None where it failed and may.

    The environment's GIT_* variables are dropped: they point at some other repository. Raises
    Unusable without git, and when it fails.
    """
    try:
        done = subprocess.run(
            ["git", *_SAFE, *arguments],
            cwd=folder,
            env=safe_environment(),
            input=stdin,
            capture_output=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError:
        raise Unusable("git is not installed.", remedy="Install it and run this again.") from None
    except subprocess.TimeoutExpired:
        raise Unusable(
            f"`git {arguments[0]}` did not answer within {_TIMEOUT_S} s.",
            remedy="Check that the repository's disk answers.",
        ) from None
    if done.returncode == 0:
        return done.stdout
    if may_fail:
        return None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    raise Unusable(
        f"git refused: {printable(said[-1]) if said else f'exit code {done.returncode}'}.",
        remedy="Check that this is a repository that git trusts (`git status`).",
    )


def safe_environment() -> dict[str, str]:
    """Give an environment in which git looks at no other repository, fetches and asks nothing."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, "LC_ALL": "C", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


def top_level(folder: Path) -> Path | None:
    """Give the root of the work tree that a folder lies in; None outside of one."""
    answer = git(folder, "rev-parse", "--show-toplevel", may_fail=True)
    return None if answer is None else Path(os.fsdecode(answer.rstrip(b"\n")))
