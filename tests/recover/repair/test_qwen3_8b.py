"""The Qwen3-8B adapter of rank 32 that this is measured by, in full size."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

import pytest
from broken_adapters import QWEN3_8B, write_config
from victims import reef

from reefkit.recover.base.from_config import base_from_config
from reefkit.recover.repair.adapter_headers import adapter_headers

SIZE = 174_656_040
HEAD = 68_136


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen")
    base = base_from_config(QWEN3_8B, label="config.json")
    (candidate,) = adapter_headers(base, {}, SIZE)
    block = bytearray(random.Random(8).randbytes(1 << 20))
    block[1::2] = b"\x3c" * (len(block) // 2)
    path = folder / "adapter_model.safetensors"
    with path.open("wb") as file:
        file.write(candidate.raw)
        while file.tell() < SIZE:
            file.write(block[: SIZE - file.tell()])
    write_config(folder, QWEN3_8B)
    return path


def zero_first(whole: Path, count: int) -> Path:
    path = whole.with_name(f"zero-{count}")
    path.write_bytes(bytes(count) + whole.read_bytes()[count:])
    return path


def test_a_file_with_its_first_68_kb_zeroed_comes_back_equal(whole: Path) -> None:
    digest = hashlib.sha256(whole.read_bytes()).hexdigest()
    base = whole.with_name("config.json")
    head_lost, more_lost = zero_first(whole, HEAD), zero_first(whole, 17 * 4096)

    answer = reef("repair", head_lost, "--base", base, "--expect-sha256", digest, "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "REBUILT_VERIFIED")

    # 68 KiB take 1,496 bytes of data with them, which no header brings back.
    answer = reef("repair", more_lost, "--base", base, "--json")
    assert (answer.code, answer.json["verdict"]) == (1, "PARTIAL")
    (damaged,) = answer.json["damaged"]
    assert damaged["tensor"] == "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"
    assert (damaged["offset"], damaged["bytes"], damaged["elements"]) == (HEAD, 1496, 748)

    answer = reef("repair", more_lost, "--base", base, "--with", head_lost, "--force", "--json")
    assert answer.json["files"][0]["sha256"] == digest
