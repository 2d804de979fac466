"""What each stage of a recovery writes into the chain of custody, and that it never stops one."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from broken_adapters import adapter, header_of, span, write, write_config, zeroed
from victims import Checkpoint, dump_json, lost, mapping, reef, write_checkpoint

from reefkit.provenance.custody.chain import read_chain
from reefkit.provenance.custody.head import head_document
from reefkit.provenance.finding import FindingKind

WHOLE = adapter()
root_only = pytest.mark.skipif(
    os.geteuid() != 0, reason="map_files needs a capability: run as root"
)
STATED = ("lora_alpha=32", "use_rslora=false", "base_model_name_or_path=some/llama")
SETTINGS = [word for each in STATED for word in ("--set", each)]


def links(folder: Path) -> list[dict[str, Any]]:
    """Read a chain in which nothing is broken."""
    data = (folder / "custody.jsonl").read_bytes()
    chain = read_chain(data, head_document(data))
    assert {finding.kind for finding in chain.findings} <= {FindingKind.RESUMED}
    return [dict(link.predicate) for link in chain.links]


def findings(folder: Path) -> list[FindingKind]:
    data = (folder / "custody.jsonl").read_bytes()
    return [finding.kind for finding in read_chain(data, None).findings]


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Give the folder that a dump of an adapter went to."""
    path = tmp_path / "run" / "step_8" / "adapter_model.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(WHOLE)
    with lost(Checkpoint(path, WHOLE)) as victim:
        code, document = dump_json(victim["pid"], tmp_path / "out")
    assert (code, document["verdict"]) == (0, "FILE_EXACT")
    return tmp_path / "out"


@root_only
def test_a_dump_says_whose_file_it_was_and_what_became_of_it(saved: Path) -> None:
    (link,) = links(saved)
    assert (link["stage"], link["verdict"]) == ("dump", "FILE_EXACT")
    assert "resumes" not in link and "unrecorded" not in link
    assert link["time"].endswith("Z") and len(link["run_id"]) == 32
    assert link["process"]["pid"] > 0
    (output,) = link["outputs"]
    assert output["name"] == "run/step_8/adapter_model.safetensors"
    assert (output["sha256"], output["action"]) == (hashlib.sha256(WHOLE).hexdigest(), "carried")
    assert output["from"]["path"].endswith("run/step_8/adapter_model.safetensors")
    assert "tensors" not in output


@root_only
def test_stages_hold_together_by_the_digests_of_their_files(saved: Path, tmp_path: Path) -> None:
    base = write_config(tmp_path)
    step = saved / "run" / "step_8"
    assert reef("rebuild-config", step, "--base", base, *SETTINGS).code == 0
    assert reef("validate", saved, "--base", base).code == 0
    _, config, validation = links(saved)
    assert not (step / "custody.jsonl").exists()
    assert (config["stage"], config["verdict"]) == ("rebuild-config", "complete")
    assert [each["name"] for each in config["inputs"]] == ["run/step_8/adapter_model.safetensors"]
    written = {each["name"]: each["sha256"] for each in config["outputs"]}
    assert written == {
        f"run/step_8/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
        for path in step.glob("adapter_config*")
    }
    assert config["sources"]["stated"] >= 3
    assert (validation["stage"], validation["verdict"]) == ("validate", "holds")
    assert {each["name"] for each in validation["inputs"]} == {
        "run/step_8/adapter_model.safetensors",
        "run/step_8/adapter_config.json",
    }


@root_only
def test_a_file_that_was_edited_between_two_stages_breaks_the_chain(
    saved: Path, tmp_path: Path
) -> None:
    path = saved / "run" / "step_8" / "adapter_model.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    reef("validate", saved, "--base", write_config(tmp_path))
    assert findings(saved) == [FindingKind.CUSTODY_BROKEN]


@root_only
@pytest.mark.parametrize("what", ["run", "run/step_8", "run/step_8/adapter_model.safetensors"])
def test_validate_finds_the_chain_up_to_two_levels_above(
    saved: Path, tmp_path: Path, what: str
) -> None:
    assert reef("validate", saved / what, "--base", write_config(tmp_path)).code == 0
    _, link = links(saved)
    assert link["stage"] == "validate"
    assert link["inputs"][0]["name"] == "run/step_8/adapter_model.safetensors"
    assert [path.parent for path in tmp_path.rglob("custody.jsonl")] == [saved]


@root_only
def test_validate_begins_no_chain_of_its_own(saved: Path, tmp_path: Path) -> None:
    (saved / "custody.jsonl").unlink()
    assert reef("validate", saved, "--base", write_config(tmp_path)).code == 0
    assert not (saved / "custody.jsonl").exists()


@root_only
def test_a_dump_that_proves_writes_a_link_for_every_step(tmp_path: Path) -> None:
    path = tmp_path / "run" / "step_8" / "adapter_model.safetensors"
    path.parent.mkdir(parents=True)
    path.write_bytes(WHOLE)
    base, out = write_config(tmp_path), tmp_path / "out"
    with lost(Checkpoint(path, WHOLE)) as victim:
        code, _ = dump_json(victim["pid"], out, "--base", str(base), *SETTINGS)
    assert code == 0
    assert [link["stage"] for link in links(out)] == ["dump", "validate", "rebuild-config"]


@root_only
def test_a_second_run_into_the_same_folder_resumes_the_first(tmp_path: Path) -> None:
    one = write_checkpoint(tmp_path / "run" / "a.safetensors")
    two = write_checkpoint(tmp_path / "run" / "b.safetensors")
    out = tmp_path / "out"
    with lost(one, two) as victim:
        dump_json(victim["pid"], out, "--match", "a.safetensors")
        dump_json(victim["pid"], out)
    first, second = links(out)
    line = (out / "custody.jsonl").read_bytes().splitlines()[0]
    assert second["resumes"] == hashlib.sha256(line).hexdigest()
    assert [len(link["outputs"]) for link in (first, second)] == [1, 1]


def dump_that_dies_in(place: str, pid: int, out: Path) -> None:
    owner, _, name = place.rpartition(":")
    crashing = f"""
import os, sys
from pkgutil import resolve_name
setattr(resolve_name({owner!r}), {name!r}, lambda *_, **__: os._exit(9))
from reefkit.cli import recover, run
sys.exit(run(recover, ["dump", "--pid", "{pid}", "--out", {str(out)!r}]))
"""
    assert subprocess.run([sys.executable, "-c", crashing], check=False).returncode == 9


@root_only
def test_a_run_that_died_before_its_record_is_resumed(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    out = tmp_path / "out"
    with lost(checkpoint) as victim:
        place = "reefkit.recover.save.destination:OutputFolder:write_record"
        dump_that_dies_in(place, victim["pid"], out)
        assert dump_json(victim["pid"], out)[0] == 0
    _, second = links(out)
    line = (out / "custody.jsonl").read_bytes().splitlines()[0]
    assert second["resumes"] == hashlib.sha256(line).hexdigest()
    assert findings(out) == [FindingKind.RESUMED]


@root_only
def test_bytes_of_a_run_that_left_no_link_are_told(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    out = tmp_path / "out"
    with lost(checkpoint) as victim:
        dump_that_dies_in("reefkit.commands.dump_run:record_dump", victim["pid"], out)
        assert not (out / "custody.jsonl").exists()
        assert dump_json(victim["pid"], out)[0] == 0
    (link,) = links(out)
    assert "left no link" in link["unrecorded"]
    assert findings(out) == [FindingKind.RESUMED]


@root_only
def test_what_could_not_be_read_is_named_by_tensor(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    size = len(checkpoint.data)
    with mapping({"path": checkpoint.path, "kind": "private"}) as victim:
        os.truncate(checkpoint.path, size - 20_000)
        os.unlink(checkpoint.path)
        dump_json(victim["pid"], tmp_path / "out")
    (link,) = links(tmp_path / "out")
    (output,) = link["outputs"]
    assert (link["verdict"], output["verdict"]) == ("PARTIAL", "PARTIAL")
    name = "base_model.model.layers.3.q_proj.lora_B.weight"
    assert output["tensors"][name]["action"] == "dropped"
    assert len(output["tensors"]) == 2


@root_only
def test_tensors_that_were_changed_in_memory_are_named(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with lost(checkpoint, dirty=[len(checkpoint.data) - 1]) as victim:
        dump_json(victim["pid"], tmp_path / "out", "--source", "memory")
    (output,) = links(tmp_path / "out")[0]["outputs"]
    assert output["verdict"] == "MEMORY_DIRTY"
    assert {tuple(sorted(each)) for each in output["tensors"].values()} == {
        ("action", "changed_in_memory")
    }


@root_only
def test_a_damaged_chain_costs_no_byte_and_is_told(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    out = tmp_path / "out"
    out.mkdir()
    (out / "custody.jsonl").write_bytes(b'{"torn')
    with lost(checkpoint) as victim:
        answer = reef("dump", "--pid", victim["pid"], "--out", out, "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "FILE_EXACT")
    assert "Not recorded in custody.jsonl" in answer.err
    assert (out / "custody.jsonl").read_bytes() == b'{"torn'


@root_only
def test_a_dump_to_a_pipe_writes_no_chain(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with lost(checkpoint) as victim:
        answer = subprocess.run(
            [sys.executable, "-m", "reefkit.cli", "dump", "--pid", str(victim["pid"]), "-o", "-"],
            capture_output=True,
            cwd=tmp_path,
            check=False,
        )
    assert (answer.returncode, answer.stdout) == (0, checkpoint.data)
    assert not list(tmp_path.rglob("custody.jsonl"))


def test_a_repair_tells_what_was_copied_rebuilt_and_lost(tmp_path: Path) -> None:
    head = header_of(WHOLE).data_start
    places = [span(WHOLE, f"layers.{i}.self_attn.q_proj.lora_A") for i in range(3)]
    first = zeroed(WHOLE, (0, head), *((p.start, p.stop) for p in places[:2]))
    second = zeroed(WHOLE, (places[0].start, places[0].stop), (places[2].start, places[2].stop))
    path = write(tmp_path, "a.safetensors", first)
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other", "a.safetensors", second)
    answer = reef("repair", path, "--with", other, "--json")
    assert (answer.code, answer.json["verdict"]) == (1, "PARTIAL")
    (link,) = links(tmp_path)
    digests = [hashlib.sha256(data).hexdigest() for data in (first, second)]
    assert [each["sha256"] for each in link["inputs"]] == digests
    (output,) = link["outputs"]
    assert output["name"] == "a.safetensors.repaired"
    assert output["sha256"] == answer.json["files"][0]["sha256"]
    assert output["header"]["action"] == "rebuilt"
    said = {name.split("layers.")[1][:1]: each for name, each in output["tensors"].items()}
    assert {layer: each["action"] for layer, each in said.items()} == {
        "0": "dropped",
        "1": "copied",
    }
    (copied,) = said["1"]["ranges"]
    assert (copied["from"], copied["offset"]) == (digests[1], places[1].start)


def test_a_repair_goes_on_with_the_chain_of_the_folder_above(tmp_path: Path) -> None:
    base = write_config(tmp_path)
    (tmp_path / "run").mkdir()
    broken = zeroed(WHOLE, (0, header_of(WHOLE).data_start))
    path = write(tmp_path / "run", "a.safetensors", broken)
    digest = hashlib.sha256(WHOLE).hexdigest()
    assert reef("repair", path, "--base", base, "--expect-sha256", digest).code == 0
    (tmp_path / "run" / "custody.jsonl").rename(tmp_path / "custody.jsonl")
    again = reef("repair", path, "--base", base, "--expect-sha256", digest, "--force")
    assert again.code == 0
    lines = (tmp_path / "custody.jsonl").read_bytes().splitlines()
    stages = [json.loads(line)["predicate"] for line in lines]
    assert [stage["verdict"] for stage in stages] == ["REBUILT_VERIFIED"] * 2
    assert {each["name"] for each in stages[1]["inputs"]} == {"run/a.safetensors", "config.json"}
    assert stages[1]["outputs"][0]["name"] == "run/a.safetensors.repaired"


def test_looking_at_a_repair_records_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "a.safetensors", zeroed(WHOLE, (0, 64)))
    reef("repair", path, "--base", write_config(tmp_path), "--check")
    assert not (tmp_path / "custody.jsonl").exists()


def test_a_copy_that_lies_elsewhere_is_not_taken_for_the_file_of_its_name(tmp_path: Path) -> None:
    head = header_of(WHOLE).data_start
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    path = write(tmp_path / "one", "a.safetensors", zeroed(WHOLE, (0, head)))
    other = write(tmp_path / "two", "a.safetensors", WHOLE)
    assert reef("repair", path, "--with", other, "--json").json["verdict"] == "REBUILT_UNVERIFIED"
    (link,) = links(tmp_path / "one")
    assert {each["name"]: each.get("elsewhere", False) for each in link["inputs"]} == {
        "a.safetensors": False,
        "../a.safetensors": True,
    }
