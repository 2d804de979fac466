"""What real loaders hold comes back byte for byte once its folder is deleted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from victims import (
    WITHOUT_CAPABILITIES,
    Answer,
    Checkpoint,
    dump_json,
    reef,
    running,
    write_checkpoint,
)

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0, reason="map_files needs a capability: run as root"
)

# Loads each path as its plan says, tells which loaders it used, waits.
SERVER = """
import ctypes, json, mmap, os, sys
import numpy, torch
from safetensors import safe_open
from safetensors.torch import load_file

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

def map_shared(fd, prot):
    address = libc.mmap(None, os.fstat(fd).st_size, prot, mmap.MAP_SHARED, fd, 0)
    assert address != 2**64 - 1, os.strerror(ctypes.get_errno())
    libc.close(fd)
    return address

def without_header(path):
    address = map_shared(os.open(path, os.O_RDONLY), mmap.PROT_READ)
    assert libc.munmap(address, 2 * mmap.PAGESIZE) == 0

def memfd(path):
    fd = os.memfd_create("adapter")
    with open(path, "rb") as file:
        assert os.write(fd, data := file.read()) == len(data)
    os.unlink(path)
    map_shared(fd, mmap.PROT_READ | mmap.PROT_WRITE)

def torch_zip(path):
    torch.save({"weight": torch.rand(64, 1024)}, path)
    return torch.load(path, mmap=True)

def scaled(path):
    tensors = load_file(path)
    for layer in (1, 3):
        lora_b = tensors[f"base_model.model.layers.{layer}.q_proj.lora_B.weight"]
        lora_b *= 2.0
    return tensors

LOADERS = {
    "load-file": load_file,
    "one-tensor": lambda path: load_file(path)["base_model.model.layers.2.q_proj.lora_A.weight"],
    "safe-open-pt": lambda path: safe_open(path, "pt"),
    "safe-open-numpy": lambda path: safe_open(path, "numpy"),
    "torch-zip": torch_zip,
    "memmap": lambda path: numpy.memmap(path, mode="r"),
    "npy": lambda path: numpy.load(path, mmap_mode="r"),
    "without-header": without_header,
    "memfd": memfd,
    "shm-torch": lambda path: torch.UntypedStorage.from_file(path, True, os.stat(path).st_size),
    "shm-plain": lambda path: map_shared(os.open(path, os.O_RDWR), mmap.PROT_READ | 2),
    "scaled": scaled,
    "twin": load_file,
}
held = {name: LOADERS[name](path) for name, path in json.loads(sys.argv[1]).items()}
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""

# How each loader holds its file: the kind, the mapping's permissions, and a descriptor or none.
HOLDINGS = {
    "load-file": ("safetensors", "rw-p", False),
    "one-tensor": ("safetensors", "rw-p", False),
    "safe-open-pt": ("safetensors", "rw-p", False),
    "safe-open-numpy": ("safetensors", "r--p", False),
    "torch-zip": ("torch-zip", "rw-p", False),
    "memmap": ("safetensors", "r--s", True),
    "npy": ("npy", "r--s", True),
    "without-header": ("safetensors", "r--s", False),
    "memfd": ("safetensors", "rw-s", False),
    "shm-torch": ("safetensors", "rw-s", False),
    "shm-plain": ("safetensors", "rw-s", False),
    "scaled": ("safetensors", "rw-p", False),
    "twin": ("safetensors", "rw-p", False),
}


@dataclass(frozen=True)
class Server:
    """A process that holds files whose folders are gone, and what the commands say of it."""

    pid: int
    originals: dict[str, Checkpoint]
    scan: dict[str, dict[str, Any]]
    dump: tuple[int, dict[str, Any]]

    def scanned(self, name: str) -> dict[str, Any]:
        return self.scan[str(self.originals[name].path)]

    def saved(self, name: str) -> dict[str, Any]:
        files: list[dict[str, Any]] = self.dump[1]["files"]
        path = str(self.originals[name].path)
        (file,) = (file for file in files if file["source"]["path"] == path)
        return file


def look_at(pid: int, originals: dict[str, Checkpoint], out: Path) -> Server:
    scan = reef("scan", "--pid", pid, "--any-format", "--json").json
    rows = {row["name"]: row for row in scan["candidates"]}
    return Server(pid, originals, rows, dump_json(pid, out, "--any-format"))


def sha256_of(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def assert_exact(server: Server, name: str) -> None:
    saved = server.saved(name)
    assert saved["verdict"] == "FILE_EXACT"
    assert saved["sha256"] == sha256_of(saved["path"]) == server.originals[name].sha256


def dump_memory(server: Server, name: str, out: Path) -> tuple[int, dict[str, Any]]:
    """Dump what the process sees of one file."""
    path = str(server.originals[name].path)
    code, document = dump_json(server.pid, out, "--source", "memory", "--match", path)
    files: list[dict[str, Any]] = document["files"]
    (file,) = files
    return code, file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server, None, None]:
    pytest.importorskip("torch")
    numpy = pytest.importorskip("numpy")
    root = tmp_path_factory.mktemp("server")
    shm = Path("/dev/shm") / f"reefkit-{uuid4().hex}"
    folders = {name: (shm if name.startswith("shm") else root) / name for name in HOLDINGS}
    folders["twin"] = root / "twin" / root.name / "load-file"
    paths = {name: folder / "adapter_model.safetensors" for name, folder in folders.items()}
    paths["npy"] = paths["npy"].with_name("weights.npy")
    paths["torch-zip"] = paths["torch-zip"].with_name("model.pt")
    originals = {
        name: write_checkpoint(path, seed=index) for index, (name, path) in enumerate(paths.items())
    }
    numpy.save(paths["npy"], numpy.arange(40_000, dtype="f4"))
    try:
        with running(SERVER, json.dumps({n: str(p) for n, p in paths.items()})) as victim:
            for name in ("npy", "torch-zip"):
                originals[name] = Checkpoint(paths[name], paths[name].read_bytes())
            originals["memfd"] = Checkpoint(Path("/memfd:adapter"), originals["memfd"].data)
            for folder in folders.values():
                shutil.rmtree(folder)
            yield look_at(victim["pid"], originals, root / "out")
    finally:
        shutil.rmtree(shm, ignore_errors=True)


@pytest.mark.parametrize("name", HOLDINGS)
def test_a_deleted_file_is_saved_exactly_from_every_loader(server: Server, name: str) -> None:
    assert_exact(server, name)
    assert server.saved(name)["source"]["state"] == "deleted"


@pytest.mark.parametrize("name", HOLDINGS)
def test_a_loader_holds_one_mapping_and_the_scan_says_what_it_is(server: Server, name: str) -> None:
    kind, permissions, with_descriptor = HOLDINGS[name]
    proc = Path(f"/proc/{server.pid}")
    path = str(server.originals[name].path)
    maps = [line.split() for line in (proc / "maps").read_text().splitlines() if path in line]
    links = [os.readlink(link) for link in (proc / "fd").iterdir()]
    assert [fields[1] for fields in maps] == [permissions]
    assert any(path in link for link in links) is with_descriptor
    row = server.scanned(name)
    assert (row["state"], row["format"], row["route"]) == ("deleted", kind, "map_files")


def test_one_dump_saves_everything_that_is_lost(server: Server) -> None:
    code, document = server.dump
    assert (code, document["verdict"]) == (0, "FILE_EXACT")
    saved = {f["source"]["path"] for f in document["files"]}
    assert saved >= {str(c.path) for c in server.originals.values()}


def test_two_adapters_of_one_name_and_folder_are_kept_apart(server: Server) -> None:
    folder = server.originals["load-file"].path.parent.parent.name
    ends = {name: server.saved(name)["path"].split("/out/")[1] for name in ("load-file", "twin")}
    assert ends == {
        "load-file": f"{folder}/load-file/adapter_model.safetensors",
        "twin": f"{folder}/load-file.2/adapter_model.safetensors",
    }


def test_without_any_format_only_safetensors_are_found(server: Server) -> None:
    scan = reef("scan", "--pid", server.pid, "--json").json
    expected = {str(server.originals[n].path) for n, h in HOLDINGS.items() if h[0] == "safetensors"}
    assert {row["name"] for row in scan["candidates"]} == expected


def test_memory_scaled_in_place_is_dirty_and_exactly_its_tensors_are_named(
    server: Server, tmp_path: Path
) -> None:
    code, file = dump_memory(server, "scaled", tmp_path / "out")
    assert (code, file["verdict"]) == (1, "MEMORY_DIRTY")
    assert file["dirty_tensors"] == [
        f"base_model.model.layers.{layer}.q_proj.lora_B.weight" for layer in (1, 3)
    ]
    assert file["sha256"] != server.originals["scaled"].sha256
    assert_exact(server, "scaled")


@pytest.mark.parametrize("name", ["load-file", "one-tensor", "safe-open-numpy", "shm-torch"])
def test_memory_that_nobody_wrote_to_is_proven_clean(
    server: Server, tmp_path: Path, name: str
) -> None:
    code, file = dump_memory(server, name, tmp_path / "out")
    assert (code, file["verdict"]) == (0, "MEMORY_CLEAN")
    assert sha256_of(file["path"]) == server.originals[name].sha256


def test_without_capabilities_the_memory_of_a_server_gives_the_file(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    checkpoint = write_checkpoint(tmp_path / "run" / "adapter_model.safetensors")
    plan = json.dumps({"load-file": str(checkpoint.path)})
    with running(SERVER, plan, prefix=WITHOUT_CAPABILITIES) as victim:
        shutil.rmtree(checkpoint.path.parent)
        arguments = ("--pid", victim["pid"], "--json")
        scan = reef("scan", *arguments, prefix=WITHOUT_CAPABILITIES).json
        answer = reef("dump", *arguments, "--out", tmp_path / "out", prefix=WITHOUT_CAPABILITIES)
    (row,) = scan["candidates"]
    (file,) = answer.json["files"]
    assert (row["route"], row["state"]) == ("memory", "deleted")
    assert row["blocked_by"]
    assert (answer.code, file["verdict"]) == (0, "MEMORY_CLEAN")
    assert sha256_of(file["path"]) == checkpoint.sha256


# Saves a model and adapters; loads one adapter the default way, and the rest when told to.
HUGGING_FACE = """
import json, os, sys
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

root = sys.argv[1]
config = Qwen3Config(
    vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16,
)
lora = LoraConfig(r=8, target_modules=["q_proj", "o_proj"], init_lora_weights=False)
Qwen3ForCausalLM(config).save_pretrained(f"{root}/model")
for name in ("copied", "assigned"):
    get_peft_model(Qwen3ForCausalLM(config), lora).save_pretrained(f"{root}/{name}")
copied = PeftModel.from_pretrained(Qwen3ForCausalLM(config), f"{root}/copied")
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.readline()
assigned = PeftModel.from_pretrained(
    Qwen3ForCausalLM(config), f"{root}/assigned", low_cpu_mem_usage=True
)
model = AutoModelForCausalLM.from_pretrained(f"{root}/model")
print("loaded", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def trainer(
    tmp_path_factory: pytest.TempPathFactory,
) -> Generator[tuple[Answer, Answer, Server], None, None]:
    for library in ("torch", "peft", "transformers"):
        pytest.importorskip(library)
    root = tmp_path_factory.mktemp("trainer")
    with running(HUGGING_FACE, str(root)) as victim:
        paths = {
            "assigned": root / "assigned" / "adapter_model.safetensors",
            "model": root / "model" / "model.safetensors",
        }
        originals = {name: Checkpoint(path, path.read_bytes()) for name, path in paths.items()}
        shutil.rmtree(root / "copied")
        scan = reef("scan", "--pid", victim["pid"])
        dump = reef("dump", "--pid", victim["pid"], "--out", root / "nothing")
        victim["process"].stdin.write("\n")
        victim["process"].stdin.flush()
        assert victim["process"].stdout.readline() == "loaded\n"
        shutil.rmtree(root / "assigned")
        shutil.rmtree(root / "model")
        yield scan, dump, look_at(victim["pid"], originals, root / "out")


def test_an_adapter_that_peft_copied_is_no_longer_there(
    trainer: tuple[Answer, Answer, Server],
) -> None:
    scan, dump, _ = trainer
    assert (scan.code, dump.code) == (1, 1)
    assert scan.out == dump.out == ""
    assert "Nothing found: looked at" in scan.err
    assert "Nothing found: looked at" in dump.err


@pytest.mark.parametrize("name", ["assigned", "model"])
def test_what_peft_and_transformers_map_is_saved_exactly(
    trainer: tuple[Answer, Answer, Server], name: str
) -> None:
    server = trainer[2]
    assert_exact(server, name)
    assert server.dump[0] == 0


def test_the_rank_of_an_adapter_is_shown(trainer: tuple[Answer, Answer, Server]) -> None:
    server = trainer[2]
    assert (server.scanned("assigned")["rank"], server.scanned("model")["rank"]) == (8, None)
