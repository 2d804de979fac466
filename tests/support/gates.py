"""A repository with a gate in it: cells that copy files, and references that they must equal."""

from __future__ import annotations

import json
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reefkit.provenance.gate.manifest import pin_of
from reefkit.recover.formats.safetensors import parse_header, write_header

Tensors = Mapping[str, tuple[str, tuple[int, ...], bytes]]


def f32(*values: float) -> tuple[str, tuple[int, ...], bytes]:
    return "F32", (len(values),), struct.pack(f"<{len(values)}f", *values)


def safetensors(tensors: Tensors, metadata: Mapping[str, str] | None = None) -> bytes:
    header = write_header(((n, d, s) for n, (d, s, _) in tensors.items()), metadata)
    return header + b"".join(tensors[t.name][2] for t in parse_header(header).tensors)


LAYERS: dict[str, tuple[str, tuple[int, ...], bytes]] = {
    "model.embed_tokens.weight": f32(1.0, 2.0),
    "model.layers.2.self_attn.q_proj.weight": f32(0.0, 1.0, 2.0),
    "model.layers.10.mlp.experts.5.up_proj.weight": f32(3.0, 4.0),
    "lm_head.weight": f32(5.0),
}


@dataclass
class Gate:
    """A git repository at `root`; each cell copies `given/CELL/*` and is held against `want/`."""

    root: Path
    cells: list[dict[str, Any]] = field(default_factory=lambda: list[dict[str, Any]]())
    document: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())

    def add(
        self, cell: str, name: str, given: bytes, want: bytes | None = None, **more: Any
    ) -> None:
        for side, data in (("given", given), ("want", given if want is None else want)):
            path = self.root / side / cell / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        entry: dict[str, Any] = {
            "id": cell,
            "command": ["cp", "-r", f"given/{cell}/.", "{out}"],
            "artifacts": [name],
            "reference": f"want/{cell}",
        }
        self.cells.append(entry | more)

    def git(self, *arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(
            ["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True
        )

    def commit(self) -> None:
        if not (self.root / ".git").exists():
            self.git("init", "-q", "--template=")
            (self.root / ".gitignore").write_text("runs/\n")
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", "x")

    def write(self, name: str = "gate.json", **changes: Any) -> Path:
        """Write the manifest and commit everything; `changes` replace its keys."""
        self.document = {
            "schema": "reefkit.gate-manifest/1",
            "stage": "moe",
            "config": {"model": "tiny", "dtype": "float32"},
            "topologies": [{"world_size": 1}],
            "cells": self.cells,
            "pinned_ids": pin_of([cell["id"] for cell in self.cells]),
        } | changes
        path = self.root / name
        path.write_text(json.dumps(self.document))
        self.commit()
        return path


def simple(root: Path, cells: Sequence[str] = ("first", "second"), **more: Any) -> Gate:
    """Make a gate whose cells pass."""
    root.mkdir(parents=True, exist_ok=True)
    gate = Gate(root)
    for cell in cells:
        gate.add(cell, "x.safetensors", safetensors(LAYERS), **more)
    return gate


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON document in place."""
    document = json.loads(path.read_bytes())
    path.write_text(json.dumps(document | changes))
