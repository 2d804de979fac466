"""Bases on the Hub and in its cache, with the real client against a Hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import Hub, Repo, Zeros, serving

from reefkit.errors import NotPermitted, ReefError, Unusable
from reefkit.recover.base.model import Base, BaseSource
from reefkit.recover.base.open import open_base
from reefkit.recover.formats.safetensors import parse_header, write_header

NAME = "org/tiny"
TOKEN = "hf_" + "t" * 34
GIB = 1 << 30
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}
Entry = tuple[str, str, tuple[int, ...]]


def tensors() -> list[Entry]:
    found: list[Entry] = [
        ("model.embed_tokens.weight", "BF16", (1000, 64)),
        ("model.norm.weight", "BF16", (64,)),
        ("lm_head.weight", "BF16", (1000, 64)),
    ]
    shapes = {
        "self_attn.q_proj": (64, 64),
        "self_attn.k_proj": (32, 64),
        "self_attn.v_proj": (32, 64),
        "self_attn.o_proj": (64, 64),
        "mlp.gate_proj": (128, 64),
        "mlp.up_proj": (128, 64),
        "mlp.down_proj": (64, 128),
        "input_layernorm": (64,),
        "post_attention_layernorm": (64,),
    }
    for layer in range(2):
        found += [
            (f"model.layers.{layer}.{name}.weight", "BF16", shape) for name, shape in shapes.items()
        ]
    return found


def weights(entries: list[Entry]) -> Zeros:
    header = write_header(entries, {"format": "pt"})
    return Zeros(header, parse_header(header).file_size)


def as_json(document: object) -> bytes:
    return json.dumps(document).encode()


def sharded() -> dict[str, bytes | Zeros]:
    entries = tensors()
    first, second = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    names = [entry[0] for entry in entries]
    weight_map = dict.fromkeys(names[:10], first) | dict.fromkeys(names[10:], second)
    return {
        "config.json": as_json(CONFIG),
        "model.safetensors.index.json": as_json({"metadata": {}, "weight_map": weight_map}),
        first: weights(entries[:10]),
        second: weights(entries[10:]),
    }


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr("reefkit.recover.base.hub_requests._PAUSES", (0.01, 0.01))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    with serving() as server:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", server.url)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        server.repos[NAME] = Repo(
            {"config.json": as_json(CONFIG), "model.safetensors": weights(tensors())}
        )
        yield server


def assert_whole(base: Base) -> None:
    assert base.source is BaseSource.HEADERS
    assert {(t.name, t.dtype, t.shape) for t in base.tensors.values()} == set(tensors())
    assert base.identity == NAME
    assert base.notes == ()
    assert len(base.all_linear) == 14


def test_a_base_on_the_hub_is_known_by_its_headers(hub: Hub) -> None:
    base = open_base(NAME)
    assert_whole(base)
    assert base.revision == hub.repos[NAME].commit
    assert base.label == f"{NAME}@{hub.repos[NAME].commit[:12]} (from the Hub)"


def test_shards_are_read_as_the_index_names_them(hub: Hub) -> None:
    hub.repos[NAME] = Repo(sharded())
    assert_whole(open_base(f"{NAME}@main"))


@pytest.mark.parametrize("ignores_ranges", [False, True])
def test_only_the_first_bytes_of_a_large_file_are_asked_for(hub: Hub, ignores_ranges: bool) -> None:
    entries: list[Entry] = [("big.weight", "BF16", (GIB, 2))]
    hub.repos[NAME] = Repo({"model.safetensors": weights(entries)})
    hub.ignores_ranges = ignores_ranges
    base = open_base(NAME)
    assert base.tensors["big.weight"].shape == (GIB, 2)
    assert hub.bytes_served < (32 << 20 if ignores_ranges else 200_000)


@pytest.mark.parametrize("length", [99_984, 99_992, 100_000, 100_008, 250_000])
def test_a_header_of_any_length_is_read_whole(hub: Hub, length: int) -> None:
    entries: list[Entry] = [(f"tensor.{i:04}", "BF16", (2,)) for i in range(900)]
    missing = length - len(write_header(entries))
    entries[-1] = ("x" * (len(entries[-1][0]) + missing), "BF16", (2,))
    header = write_header(entries)
    assert abs(len(header) - length) <= 8
    hub.repos[NAME] = Repo({"model.safetensors": weights(entries)})
    assert open_base(NAME).tensors.keys() == {entry[0] for entry in entries}


def test_a_file_that_is_too_short_on_the_hub_is_noted(hub: Hub) -> None:
    whole = weights(tensors())
    hub.repos[NAME] = Repo({"model.safetensors": Zeros(whole.begin, whole.size - 1)})
    assert "1 bytes short" in open_base(NAME).notes[0]


def test_a_repository_of_a_config_alone_is_known_by_its_rules(hub: Hub) -> None:
    hub.repos[NAME] = Repo({"config.json": as_json(CONFIG)})
    base = open_base(NAME)
    assert (base.source, base.identity) == (BaseSource.CONFIG, NAME)
    assert base.tensors.keys() == {entry[0] for entry in tensors()}


@pytest.mark.parametrize(
    ("repo", "operand", "kind", "words"),
    [
        (Repo({}, token="hf_other", gated=True), NAME, NotPermitted, "gated"),
        (Repo({}, token="hf_other"), NAME, NotPermitted, "private"),
        (Repo({}), "org/absent", Unusable, "is not on the Hub"),
        (Repo({}), f"{NAME}@v9", Unusable, "no such revision"),
        (Repo({}), NAME, Unusable, "neither a config.json nor safetensors"),
        (Repo({"adapter_config.json": b"{}"}), NAME, Unusable, "adapter"),
        (Repo({"config.json": b"{"}), NAME, Unusable, "not valid JSON"),
        (Repo({"model.safetensors": b"<html>error</html>"}), NAME, Unusable, "no header"),
    ],
)
def test_a_refusal_is_one_sentence_with_a_remedy_and_without_the_token(
    hub: Hub, repo: Repo, operand: str, kind: type[ReefError], words: str
) -> None:
    hub.repos[NAME] = repo
    with pytest.raises(kind, match=words) as caught:
        open_base(operand)
    assert caught.value.remedy
    assert TOKEN not in f"{caught.value.message}{caught.value.remedy}"


def test_the_token_of_the_login_opens_a_gated_repository(hub: Hub) -> None:
    hub.repos[NAME].token, hub.repos[NAME].gated = TOKEN, True
    assert_whole(open_base(NAME))


def test_a_busy_hub_is_asked_again(hub: Hub) -> None:
    hub.statuses = [503, 429]
    assert_whole(open_base(NAME))


def test_a_hub_that_stays_busy_is_given_up(hub: Hub) -> None:
    hub.statuses = [503] * 3
    with pytest.raises(Unusable, match="answered 503"):
        open_base(NAME)


def test_a_silent_hub_is_given_up(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reefkit.recover.base.hub_requests._SECONDS", 0.1)
    hub.silent_for = 1.0
    with pytest.raises(Unusable, match="does not answer in time"):
        open_base(NAME)


def run(hub: Hub, script: str, home: Path) -> str:
    """Run a script in a process whose client finds the Hub by its environment."""
    environment = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def download(hub: Hub, tmp_path: Path) -> Path:
    """Let the real client fill the cache."""
    cache = str(tmp_path / "cache")
    call = f"snapshot_download({NAME!r}, cache_dir={cache!r})"
    script = f"from huggingface_hub import snapshot_download; print({call})"
    return Path(run(hub, script, tmp_path))


@pytest.mark.parametrize("files", ["one file", "shards"])
def test_what_the_client_downloaded_is_found_offline(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: str
) -> None:
    if files == "shards":
        hub.repos[NAME] = Repo(sharded())
    folder = download(hub, tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    asked = len(hub.requests)
    for operand in (NAME, str(folder), str(folder.parent.parent), f"{NAME}@{folder.name}"):
        base = open_base(operand)
        assert_whole(base)
        assert base.revision == folder.name
        assert base.label.endswith("(from the cache)")
    assert len(hub.requests) == asked


def test_the_cache_stands_in_for_a_hub_that_cannot_be_reached(hub: Hub, tmp_path: Path) -> None:
    download(hub, tmp_path)
    hub.statuses = [500] * 3
    base = open_base(NAME)
    assert_whole(base)
    assert base.label.endswith("(from the cache: the Hub cannot be reached)")


def test_a_closed_port_is_an_error_and_no_traceback(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(Unusable, match="the connection failed"):
        open_base(NAME)


def test_offline_and_not_in_the_cache_says_both(hub: Hub) -> None:
    with pytest.raises(Unusable, match="neither a path nor in the cache"):
        open_base(NAME, offline=True)
    assert hub.requests == []


def test_a_snapshot_that_lacks_a_shard_says_so(hub: Hub, tmp_path: Path) -> None:
    hub.repos[NAME] = Repo(sharded())
    folder = download(hub, tmp_path)
    (folder / "model-00002-of-00002.safetensors").unlink()
    base = open_base(str(folder))
    assert base.tensors.keys() == {entry[0] for entry in tensors()}
    assert base.unsized == frozenset()
    assert "model-00002-of-00002.safetensors of the base is not there" in base.notes[0]


def test_the_environment_of_the_client_is_honoured(hub: Hub, tmp_path: Path) -> None:
    script = f"from reefkit.recover.base.open import open_base; print(open_base({NAME!r}).label)"
    assert run(hub, script, tmp_path).endswith("(from the Hub)")


@pytest.mark.parametrize("operand", ["./org/tiny", "work/model/deep", "nothing", "a/b@", "a b/c"])
def test_what_is_neither_a_path_nor_an_id_is_not_asked_for(hub: Hub, operand: str) -> None:
    with pytest.raises(Unusable, match="does not exist"):
        open_base(operand)
    assert hub.requests == []
