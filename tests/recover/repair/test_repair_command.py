"""`reef-recover repair`: what it writes, what it says, and what it never touches."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from broken_adapters import adapter, header_of, lora, span, write, write_config, zeroed
from victims import Answer, mapping, reef, unsafe_for_a_terminal

from reefkit.recover.formats.safetensors import write_header

WHOLE = adapter()
HEAD = header_of(WHOLE).data_start
SHA256 = hashlib.sha256(WHOLE).hexdigest()
BROKEN = zeroed(WHOLE, (0, HEAD))


def repair(path: Path | str, *arguments: str | Path) -> Answer:
    return reef("repair", path, "--json", *arguments)


def test_a_digest_known_beforehand_proves_the_result(tmp_path: Path) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    answer = repair(path, "--base", base, "--expect-sha256", SHA256.upper())
    assert answer.code == 0
    document = answer.json
    assert (document["schema"], document["verdict"]) == (
        "reefkit.recovery/1",
        "REBUILT_VERIFIED",
    )
    (file,) = document["files"]
    assert (file["sha256"], file["size"], file["unread"]) == (SHA256, len(WHOLE), [])
    out = tmp_path / "a.safetensors.repaired"
    assert out.read_bytes() == WHOLE
    assert json.loads((tmp_path / f"{out.name}.recovery.json").read_text()) == document
    (change,) = document["changes"]
    assert (change["offset"], change["bytes"], change["what"]) == (0, HEAD, "header")


RECIPE = b"""adapter: lora
base_model: some/llama
lora_r: 16
lora_alpha: 32
lora_target_modules: [q_proj, v_proj]
"""


@pytest.mark.parametrize("source", ["recipe", "settings", "both", "beside"])
def test_what_is_stated_decides_between_targets_of_equal_shapes(
    tmp_path: Path, source: str
) -> None:
    file = adapter(lora(modules=("self_attn.q_proj", "self_attn.v_proj")))
    path = write(tmp_path, "a.safetensors", zeroed(file, (0, header_of(file).data_start)))
    base = write_config(tmp_path)
    wrong = RECIPE.replace(b"v_proj", b"k_proj")
    recipe = write(tmp_path, "axolotl.yaml", wrong if source == "both" else RECIPE)
    config = {"peft_type": "LORA", "r": 16, "lora_alpha": 1, "target_modules": ["q_proj", "v_proj"]}
    if source == "beside":
        write(tmp_path, "adapter_config.json", json.dumps(config).encode())
    options: list[str | Path] = [] if source in ("settings", "beside") else ["--recipe", recipe]
    if source in ("settings", "both"):
        options += ["--set", "target_modules=q_proj,v_proj"]
    answer = repair(path, "--base", base, *options)
    assert answer.json["verdict"] == "REBUILT_UNVERIFIED", answer.json["candidates"]
    assert (tmp_path / "a.safetensors.repaired").read_bytes() == file


def test_headers_between_which_nothing_decides_are_listed(tmp_path: Path) -> None:
    file = adapter(lora(modules=("self_attn.q_proj", "self_attn.v_proj")))
    path = write(tmp_path, "a.safetensors", zeroed(file, (0, header_of(file).data_start)))
    answer = reef("repair", path, "--base", write_config(tmp_path))
    assert answer.code == 1 and "k_proj,q_proj" in answer.out and "--set" in answer.out
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors", "config.json"]


def test_recipes_that_contradict_each_other_decide_nothing(tmp_path: Path) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    one = write(tmp_path, "one.yaml", RECIPE)
    two = write(tmp_path, "two.yaml", RECIPE.replace(b"lora_r: 16", b"lora_r: 8"))
    answer = repair(path, "--base", base, "--recipe", one, "--recipe", two)
    assert answer.code == 2 and "contradict" in answer.json["message"]


def test_the_damaged_file_stays_as_it_was_and_gives_its_mode(tmp_path: Path) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    path.chmod(0o640)
    before = path.stat()
    assert repair(path, "--base", base).code == 1  # nothing to hold it against
    after = path.stat()
    assert path.read_bytes() == BROKEN
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert (tmp_path / "a.safetensors.repaired").stat().st_mode & 0o777 == 0o640


def test_a_wrong_digest_is_never_exit_0(tmp_path: Path) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    answer = repair(path, "--base", base, "--expect-sha256", "0" * 64)
    assert (answer.code, answer.json["verdict"]) == (1, "REBUILT_UNVERIFIED")
    assert repair(write(tmp_path, "b", WHOLE), "--expect-sha256", "0" * 64).code == 1


@pytest.mark.parametrize("force", [False, True])
def test_what_exists_is_overwritten_only_by_force(tmp_path: Path, force: bool) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    out = write(tmp_path, "out", b"precious")
    options = ("--force",) if force else ()
    answer = repair(path, "--base", base, "--out", out, *options)
    assert answer.code == (1 if force else 2)
    assert out.read_bytes() == (WHOLE if force else b"precious")


@pytest.mark.parametrize(
    ("content", "code"), [(b"precious", 2), (b'{"schema": "reefkit.recovery/1"}', 1)]
)
def test_a_record_without_its_file_is_a_crash_but_no_other_file_is(
    tmp_path: Path, content: bytes, code: int
) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    record = write(tmp_path, "out.recovery.json", content)
    assert repair(path, "--base", base, "--out", tmp_path / "out").code == code
    assert (record.read_bytes() == content) is (code == 2)


def test_a_folder_is_no_place_for_a_file(tmp_path: Path) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    (tmp_path / "out").mkdir()
    answer = repair(path, "--base", base, "--out", tmp_path / "out", "--force")
    assert answer.code == 2 and answer.json["remedy"]


def test_metadata_that_differs_from_a_sibling_is_seen_and_left_alone(tmp_path: Path) -> None:
    other = write_header(lora(), {"format": "np"})
    path = write(tmp_path, "a.safetensors", WHOLE)
    sibling = write(tmp_path, "b.safetensors", other + WHOLE[HEAD:])
    answer = repair(path, "--like", sibling, "--check")
    assert answer.code == 1 and answer.json["header"]["other_metadata"]
    assert repair(path, "--like", path, "--check").code == 0


@pytest.mark.parametrize("how", ["same", "link", "other"])
def test_no_input_is_ever_the_output(tmp_path: Path, how: str) -> None:
    path, other = write(tmp_path, "a.safetensors", BROKEN), write(tmp_path, "b", WHOLE)
    link = tmp_path / "link"
    link.symlink_to(path)
    out = {"same": path, "link": link, "other": other}[how]
    answer = repair(path, "--with", other, "--out", out, "--force")
    assert answer.code == 2 and "never written to" in answer.json["message"]
    assert (path.read_bytes(), other.read_bytes()) == (BROKEN, WHOLE)


def test_an_intact_file_needs_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a.safetensors", WHOLE)
    answer = repair(path)
    assert (answer.code, answer.json["verdict"], answer.json["changes"]) == (0, None, [])
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors"]


@pytest.mark.parametrize("option", ["--check", "--ranges"])
def test_a_look_writes_nothing(tmp_path: Path, option: str) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    answer = repair(path, "--base", base, option)
    assert answer.code == 1 and answer.json["changes"]
    assert sorted(os.listdir(tmp_path)) == ["a.safetensors", "config.json"]


def test_ranges_are_mapped_to_tensors_without_a_readable_header(tmp_path: Path) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    start = span(WHOLE, "layers.2.self_attn.v_proj.lora_B").start
    piece = f"{start + 101}:{start + 106}"
    answer = repair(path, "--base", base, "--ranges", "--map-range", piece)
    (damaged,) = answer.json["damaged"]
    assert damaged["tensor"] == "base_model.model.model.layers.2.self_attn.v_proj.lora_B.weight"
    assert (damaged["first_element"], damaged["elements"]) == (50, 3)
    assert (damaged["offset"], damaged["bytes"]) == (start + 101, 5)


def test_data_that_lay_behind_a_zeroed_head_is_named_and_comes_from_a_second_dump(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, "a.safetensors", zeroed(WHOLE, (0, HEAD + 1496)))
    base, other = write_config(tmp_path), write(tmp_path, "b", zeroed(WHOLE, (50_000, 90_000)))
    alone = repair(path, "--base", base)
    assert (alone.code, alone.json["verdict"]) == (1, "PARTIAL")
    (damaged,) = alone.json["damaged"]
    assert damaged["tensor"].endswith("layers.0.mlp.down_proj.lora_A.weight")
    assert (damaged["first_element"], damaged["elements"]) == (0, 748)
    both = repair(path, "--with", other, "--force", "--expect-sha256", SHA256)
    assert (both.code, both.json["verdict"]) == (0, "REBUILT_VERIFIED")


def test_a_conflict_writes_nothing(tmp_path: Path) -> None:
    other = bytearray(WHOLE)
    other[HEAD + 5000] ^= 1
    path, second = write(tmp_path, "a", WHOLE), write(tmp_path, "b", bytes(other))
    answer = repair(path, "--with", second)
    assert (answer.code, answer.json["verdict"]) == (1, "PARTIAL")
    (conflict,) = answer.json["conflicts"]
    assert conflict["tensor"] and conflict["bytes"] <= 4096
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_what_a_killed_save_left_is_named_and_completed_from_another_dump(tmp_path: Path) -> None:
    # safetensors 0.8 sets the length first and writes in order: a prefix, then a hole.
    reached = span(WHOLE, "layers.1.self_attn.q_proj.lora_A").start + 3000
    path = write(tmp_path, ".tmpAbC123", WHOLE[:reached])
    os.truncate(path, len(WHOLE))
    alone = repair(path)
    assert (alone.code, alone.json["verdict"]) == (1, "PARTIAL")
    zero = len(alone.json["zero_tensors"])
    assert alone.json["whole_tensors"] + 1 + zero == 42 and zero > 10
    second = write(tmp_path, "b", zeroed(WHOLE, (HEAD, HEAD + 9000)))
    out = tmp_path / "out"
    assert repair(path, "--with", second, "--out", out, "--expect-sha256", SHA256).code == 0
    assert out.read_bytes() == WHOLE


def test_a_file_that_a_process_maps_can_be_repaired_from(tmp_path: Path) -> None:
    path = write(tmp_path, "a.safetensors", zeroed(WHOLE, (70_000, 90_000)))
    mapped = write(tmp_path, "mapped.safetensors", WHOLE)
    with mapping({"path": mapped, "kind": "readonly"}) as victim:
        mapped.unlink()
        answer = repair(path, "--with", f"{victim['pid']}:*mapped*", "--expect-sha256", SHA256)
    assert answer.code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--damaged", "9:3"], "is no range"),
        (["--expect-sha256", "xyz"], "64 hexadecimal"),
        (["--set", "r=32"], "without the base"),
        (["--like", "/nowhere"], "cannot be read"),
        (
            ["--manifest", "{broken}"],
            "is not valid JSON",
        ),
        (["--with", "{broken}", "--with", "/nowhere"], "cannot be read"),
        (["--out", "/nowhere/at/all"], "Cannot write"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(
    tmp_path: Path, arguments: list[str], words: str
) -> None:
    path = write(tmp_path, "a.safetensors", BROKEN)
    broken = write(tmp_path, "broken.json", b'{"schema": "reefkit.manifest/1"')
    answer = repair(path, *(text.format(broken=broken) for text in arguments))
    assert answer.code == 2
    assert words in answer.json["message"]
    assert answer.json["schema"] == "reefkit.error/1"


@pytest.mark.parametrize(
    "content", [b"", b"\0", b"\0" * 5000, b"\xff" * 5000, b"\1" + b"\0" * 7 + b"{" * 9000]
)
def test_what_is_no_checkpoint_is_refused_with_a_remedy(tmp_path: Path, content: bytes) -> None:
    answer = repair(write(tmp_path, "a", content))
    assert answer.code in (1, 2) and answer.json["remedy"]
    assert os.listdir(tmp_path) == ["a"]


def test_hostile_names_reach_no_terminal(tmp_path: Path) -> None:
    name = "\x1b[31mlayers.0\u202e.lora_A.weight"
    file = adapter([(name, "BF16", (64, 64)), ("b.lora_A.weight", "BF16", (64, 64))])
    path = write(tmp_path, "a\x1b]0;x", zeroed(file, (header_of(file).data_start, len(file))))
    for options in ([], ["--ranges"]):
        answer = reef("repair", path, *options)
        assert answer.code == 1
        assert unsafe_for_a_terminal(answer.out + answer.err) == []


KILLED = """
import os, sys
from reefkit.recover.repair import written
copying = written._copy
def slowly(composed, fd):
    digest = copying(composed, fd)
    print("written", flush=True)
    sys.stdin.read()
    return digest
written._copy = slowly
from reefkit.cli import recover, run
run(recover, sys.argv[1:])
"""


def test_a_kill_leaves_nothing_under_the_final_name_and_the_next_run_succeeds(
    tmp_path: Path,
) -> None:
    path, base = write(tmp_path, "a.safetensors", BROKEN), write_config(tmp_path)
    arguments = ["repair", str(path), "--base", str(base), "--expect-sha256", SHA256]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        (temporary,) = tmp_path.glob(".*.repair.tmp")
        assert temporary.stat().st_mode & 0o777 == 0o600
        process.send_signal(signal.SIGKILL)
    assert not (tmp_path / "a.safetensors.repaired").exists()
    assert reef(*arguments).code == 0
    assert not list(tmp_path.glob(".*"))


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    entries = lora(rank=2048)
    raw = write_header(entries, {"format": "pt"})
    size = header_of(raw).file_size
    path = tmp_path / "large.safetensors"
    with path.open("wb") as file:
        file.write(bytes(len(raw)))
        block = os.urandom(1 << 20).replace(b"\0", b"\1")
        while file.tell() < size:
            file.write(block[: size - file.tell()])
    script = (
        "import re, sys\nfrom reefkit.cli import recover, run\n"
        "run(recover, sys.argv[1:])\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    arguments = ["repair", path, "--base", write_config(tmp_path), "--set", "r=2048", "--quiet"]
    targets = ["--set", "target_modules=all-linear", "--set", "dtype=bf16"]
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments), *targets],
        capture_output=True,
        text=True,
        check=True,
    )
    assert time.monotonic() - started < 20
    assert "REBUILT_UNVERIFIED" in done.stdout
    assert int(done.stdout.split()[-1]) < 80_000  # KiB; the file has 57 MiB
