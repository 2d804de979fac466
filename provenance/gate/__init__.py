"""Gates: pinned cells, artifacts compared bit by bit, reports per rank, and a verdict on the chain.

`load_manifest`, `run_cells`, `judge` and `compare_runs` are what a job needs; what they stand for
is in the modules that they come from, which are imported when they are first asked for.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .against import Against, compare_runs
    from .manifest import Manifest, load_manifest
    from .model import ChainReport, Provenance, RankReport, Topology
    from .recorder import GateRecorder
    from .run import Plan, complete, run_cells
    from .verdict import judge

__all__ = [
    "Against",
    "ChainReport",
    "GateRecorder",
    "Manifest",
    "Plan",
    "Provenance",
    "RankReport",
    "Topology",
    "compare_runs",
    "complete",
    "judge",
    "load_manifest",
    "run_cells",
]
_MODULES = {
    "against": ("Against", "compare_runs"),
    "manifest": ("Manifest", "load_manifest"),
    "model": ("ChainReport", "Provenance", "RankReport", "Topology"),
    "recorder": ("GateRecorder",),
    "run": ("Plan", "complete", "run_cells"),
    "verdict": ("judge",),
}
_HOME = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import what is asked for, and nothing before."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
