"""The output folder: nothing outside it, nothing overwritten, old or new but never half."""

from __future__ import annotations

import contextlib
import hashlib
import json
import mmap
import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from victims import PAGE, dump_json, mapping

from reefkit.errors import DestinationExists, Unusable
from reefkit.recover.formats.safetensors import write_header
from reefkit.recover.ranges import Range
from reefkit.recover.save.destination import FolderOutput, OutputFolder
from reefkit.recover.save.outputs import Attributes
from reefkit.recover.save.rescue_map import RescueMap
from reefkit.recover.save.slots import slot_for

FACTS = {"source": "file", "inode": "4242"}
OTHER_FACTS = {"source": "file", "inode": "4243"}
DATA = bytes(range(1, 256)) * 40
PATH = b"/srv/run/step_8/adapter_model.safetensors"


def aligned(data: bytes) -> memoryview:
    """Put bytes where reads and writes that bypass the page cache can have them."""
    buffer = mmap.mmap(-1, max(len(data), 1))
    buffer[: len(data)] = data
    return memoryview(buffer)[: len(data)]


@contextmanager
def opened(path: Path, *, force: bool = False) -> Generator[OutputFolder, None, None]:
    folder = OutputFolder(str(path), force=force)
    try:
        yield folder
    finally:
        folder.close()


def write(
    output: FolderOutput,
    data: bytes = DATA,
    *,
    complete: bool = True,
    attributes: Attributes | None = None,
    sparse: tuple[Range, ...] | None = None,
) -> None:
    output.begin(attributes or Attributes(len(data)), sparse=sparse, clone_of=None)
    output.write(0, aligned(data))
    output.checkpoint(RescueMap(len(data), finished=(Range(0, len(data)),)))
    output.finish(complete=complete)


def save(
    out: Path, path: bytes = PATH, data: bytes = DATA, *, force: bool = False, **options: Any
) -> bytes:
    """Save one file as a dump does; give its place."""
    facts = options.pop("facts", FACTS)
    with opened(out, force=force) as folder:
        output = folder.open(path, facts)
        write(output, data, **options)
        folder.write_record({"verdict": "FILE_EXACT"})
        return output.path


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


# --- places --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (b"/srv/run/step_8/a.safetensors", b"run/step_8/a.safetensors"),
        (b"/step_8/a.safetensors", b"step_8/a.safetensors"),
        (b"/a.safetensors", b"a.safetensors"),
        (b"/memfd:weights", b"memfd:weights"),
        (b"/a/../../../etc/./b//c", b"etc/b/c"),
        (b"..", b"unnamed"),
        (b"/", b"unnamed"),
        (b"", b"unnamed"),
        (b"/a/ /\xff", b"a/ /\xff"),
    ],
)
def test_a_file_goes_below_the_last_two_folders_of_its_path(path: bytes, place: bytes) -> None:
    assert slot_for(path).path == place


@given(st.binary(max_size=40) | st.text("./a", max_size=20).map(str.encode), st.integers(1, 99))
def test_no_path_leads_out_of_the_folder(path: bytes, number: int) -> None:
    slot = slot_for(path).numbered(number)
    parts = [*slot.folders, slot.name]
    assert len(parts) <= 3
    assert not {b"", b".", b".."} & set(parts)
    assert all(b"/" not in part for part in parts)


@given(
    st.lists(st.binary(min_size=1, max_size=255).map(lambda b: b.replace(b"/", b"_")), min_size=1),
    st.integers(1, 10**6),
)
def test_no_name_grows_too_long(parts: list[bytes], number: int) -> None:
    slot = slot_for(b"/".join(parts)).numbered(number)
    for name in (*slot.folders, slot.name, slot.partial, slot.map_name):
        assert 0 < len(name) <= 255
    assert len({slot.name, slot.partial, slot.map_name}) == 3


@given(st.binary(min_size=240, max_size=255), st.binary(min_size=240, max_size=255))
def test_long_names_keep_their_side_files_apart(a: bytes, b: bytes) -> None:
    one, two = (slot_for(name.replace(b"/", b"_").replace(b"\0", b"_")) for name in (a, b))
    assert (one.partial == two.partial) is (one.name == two.name)
    assert (one.map_name == two.map_name) is (one.name == two.name)


def test_one_path_taken_several_times_gets_numbered_folders(tmp_path: Path) -> None:
    out = tmp_path / "out"
    paths = [PATH] * 3 + [b"/a.bin"] * 3
    with opened(out) as folder:
        outputs = [folder.open(path, {"inode": str(i)}) for i, path in enumerate(paths)]
        for i, output in enumerate(outputs):
            write(output, b"%d" % i)
        folder.write_record({})
    assert contents(out) == {
        "run/step_8/adapter_model.safetensors": b"0",
        "run/step_8.2/adapter_model.safetensors": b"1",
        "run/step_8.3/adapter_model.safetensors": b"2",
        "a.bin": b"3",
        "recovered.2/a.bin": b"4",
        "recovered.3/a.bin": b"5",
        "recovery.json": b"{}\n",
    }


def test_names_of_255_bytes_are_saved_side_by_side(tmp_path: Path) -> None:
    out = tmp_path / "out"
    folders = b"/" + b"f" * 255 + b"/" + b"g" * 255 + b"/"
    paths = [folders + b"n" * 254 + end for end in (b"1", b"2", b"2")]
    with opened(out) as folder:
        outputs = [folder.open(path, {"inode": str(i)}) for i, path in enumerate(paths)]
        for i, output in enumerate(outputs):
            output.begin(Attributes(1), sparse=None, clone_of=None)
            output.write(0, aligned(b"%d" % i))
        assert [n for n in contents(out) if not n.endswith((".partial", ".rescue.map"))] == []
        for output in outputs:
            output.checkpoint(RescueMap(1))
            output.finish(complete=True)
        folder.write_record({})
    assert sorted(contents(out).values()) == [b"0", b"1", b"2", b"{}\n"]
    assert all(len(part.encode()) <= 255 for name in contents(out) for part in name.split("/"))


@pytest.mark.parametrize("suffix", [b".partial", b".rescue.map"])
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_file_named_like_a_side_file_of_another_is_saved_as_well(
    tmp_path: Path, suffix: bytes, order: tuple[int, int]
) -> None:
    out = tmp_path / "out"
    with opened(out) as folder:
        outputs = [
            folder.open(PATH, FACTS),
            folder.open(PATH + suffix, OTHER_FACTS),
        ]
        data = [DATA, DATA[::-1]]
        for output, content in zip(outputs, data, strict=True):
            output.begin(Attributes(len(content)), sparse=None, clone_of=None)
            output.write(0, aligned(content))
        for i in order:
            outputs[i].checkpoint(RescueMap(len(DATA), finished=(Range(0, len(DATA)),)))
            outputs[i].finish(complete=True)
        folder.write_record({})
        places = [os.fsdecode(output.path) for output in outputs]
    assert [contents(out).get(place) for place in places] == data


def test_a_file_named_like_the_record_is_saved_as_well(tmp_path: Path) -> None:
    place = save(tmp_path / "out", b"/recovery.json")
    assert contents(tmp_path / "out")[os.fsdecode(place)] == DATA


@pytest.mark.parametrize(
    "paths",
    [
        [b"/run/step_8", b"/srv/run/step_8/a.bin"],
        [b"/srv/run/step_8/a.bin", b"/run/step_8"],
        [b"/run/step_8/a.bin", b"/recovery.json/a.bin"],
    ],
)
def test_a_file_named_like_the_folder_of_another_is_saved_as_well(
    tmp_path: Path, paths: list[bytes]
) -> None:
    with opened(tmp_path / "out") as folder:
        outputs = [folder.open(path, {"inode": str(i)}) for i, path in enumerate(paths)]
        for output in outputs:
            write(output)
        folder.write_record({})
        places = [os.fsdecode(output.path) for output in outputs]
    assert [contents(tmp_path / "out").get(place) for place in places] == [DATA, DATA]


# --- nothing outside -----------------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the output, with one file that must stay as it is."""
    folder = tmp_path / "outside"
    (folder / "step_8").mkdir(parents=True)
    (folder / "precious").write_bytes(b"precious")
    return folder


def untouched(outside: Path) -> bool:
    return contents(outside) == {"precious": b"precious"} and os.listdir(outside / "step_8") == []


@pytest.mark.parametrize(
    "path", [b"/../../outside/x", b"../outside/precious", b"/a/../../outside/./precious", b"/.."]
)
def test_parents_in_a_path_lead_nowhere(tmp_path: Path, outside: Path, path: bytes) -> None:
    out = tmp_path / "out"
    place = os.fsdecode(save(out, path))
    assert contents(out)[place] == DATA
    assert untouched(outside)
    assert sorted(os.listdir(tmp_path)) == ["out", "outside"]


@pytest.mark.parametrize("link", ["run", "run/step_8"])
@pytest.mark.parametrize("force", [False, True])
def test_a_link_in_the_place_of_a_folder_is_refused(
    tmp_path: Path, outside: Path, link: str, force: bool
) -> None:
    planted = tmp_path / "out" / link
    planted.parent.mkdir(parents=True)
    planted.symlink_to(outside)
    with pytest.raises(Unusable, match="Cannot write"):
        save(tmp_path / "out", force=force)
    assert untouched(outside)


@pytest.mark.parametrize("target", ["precious", "new"])
def test_a_link_in_the_place_of_the_file_is_replaced_only_by_force(
    tmp_path: Path, outside: Path, target: str
) -> None:
    planted = tmp_path / "out" / "run" / "step_8" / "adapter_model.safetensors"
    planted.parent.mkdir(parents=True)
    planted.symlink_to(outside / target)
    with pytest.raises(DestinationExists):
        save(tmp_path / "out")
    save(tmp_path / "out", force=True)
    assert (planted.is_symlink(), planted.read_bytes()) == (False, DATA)
    assert untouched(outside)


def test_a_link_in_the_place_of_the_record_is_replaced(tmp_path: Path, outside: Path) -> None:
    planted = tmp_path / "out" / "recovery.json"
    planted.parent.mkdir()
    planted.symlink_to(outside / "precious")
    assert save(tmp_path / "out") == b"run/step_8/adapter_model.safetensors"
    assert not planted.is_symlink()
    assert untouched(outside)


@pytest.mark.parametrize("suffix", [".partial", ".rescue.map"])
def test_what_is_called_like_a_side_file_and_is_not_ours_is_left_alone(
    tmp_path: Path, suffix: str
) -> None:
    foreign = tmp_path / "out" / "run" / "step_8" / f"adapter_model.safetensors{suffix}"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"somebody's")
    assert save(tmp_path / "out") == b"run/step_8.2/adapter_model.safetensors"
    assert foreign.read_bytes() == b"somebody's"


def test_a_partial_link_is_left_alone(tmp_path: Path, outside: Path) -> None:
    planted = tmp_path / "out" / "run" / "step_8" / "adapter_model.safetensors.partial"
    planted.parent.mkdir(parents=True)
    planted.symlink_to(outside / "precious")
    assert save(tmp_path / "out") == b"run/step_8.2/adapter_model.safetensors"
    assert planted.is_symlink()
    assert untouched(outside)


def test_a_link_in_the_place_of_the_map_is_not_followed(tmp_path: Path, outside: Path) -> None:
    planted = tmp_path / "out" / "run" / "step_8" / "adapter_model.safetensors.rescue.map"
    planted.parent.mkdir(parents=True)
    planted.symlink_to(outside / "precious")
    with pytest.raises(Unusable, match="Cannot write"):
        save(tmp_path / "out")
    assert untouched(outside)


def test_a_hard_link_in_the_place_of_a_side_file_is_not_written_through(
    tmp_path: Path, outside: Path
) -> None:
    folder = tmp_path / "out" / "run" / "step_8"
    folder.mkdir(parents=True)
    os.link(outside / "precious", folder / "adapter_model.safetensors.partial")
    os.link(outside / "precious", folder / "adapter_model.safetensors.rescue.map")
    place = os.fsdecode(save(tmp_path / "out", force=True))
    assert contents(tmp_path / "out")[place] == DATA
    assert untouched(outside)


# --- what is there already -----------------------------------------------------------------------


def test_a_finished_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    out = tmp_path / "out"
    place = os.fsdecode(save(out))
    with pytest.raises(DestinationExists, match=r"adapter_model\.safetensors exists already") as e:
        save(out, data=b"new", facts=OTHER_FACTS)
    assert "--force" in str(e.value.remedy)
    assert contents(out)[place] == DATA
    save(out, data=b"new", facts=OTHER_FACTS, force=True)
    assert contents(out)[place] == b"new"
    assert sorted(contents(out)) == sorted([place, "recovery.json"])


def test_an_interrupted_file_is_taken_up_by_the_same_facts_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert save(out, complete=False) == PATH.removeprefix(b"/srv/") + b".partial"
    with opened(out) as folder:
        again = folder.open(PATH, FACTS)
        assert again.earlier is not None
        assert again.earlier.finished == (Range(0, len(DATA)),)
        again.begin(Attributes(len(DATA)), sparse=None, clone_of=None)
        kept = again.read_back()
        assert os.pread(kept.fd, len(DATA), 0) == DATA
        kept.close()
        other = folder.open(PATH, OTHER_FACTS)
        assert (other.earlier, other.slot.folders) == (None, (b"run", b"step_8.2"))
    with opened(out) as folder:
        assert folder.open(PATH, {**FACTS, "mtime_ns": "1"}).slot.folders[1] == b"step_8.2"
    with opened(out, force=True) as folder:
        forced = folder.open(PATH, OTHER_FACTS)
        assert (forced.earlier, forced.slot.folders) == (None, (b"run", b"step_8"))


@pytest.mark.parametrize("text", ["", "garbage", "# reefkit inode: 4242\n", "\u00e9", "0x0 + 1\nx"])
def test_a_damaged_map_is_no_reason_to_trust_the_partial_file(tmp_path: Path, text: str) -> None:
    out = tmp_path / "out"
    save(out, complete=False)
    (side,) = out.rglob("*.rescue.map")
    side.write_text(text)
    with opened(out) as folder:
        output = folder.open(PATH, FACTS)
        assert output.earlier is None


def test_a_map_without_its_partial_file_counts_for_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    save(out, complete=False)
    (partial,) = out.rglob("*.partial")
    partial.unlink()
    with opened(out) as folder:
        assert folder.open(PATH, FACTS).earlier is None


def test_the_map_of_an_incomplete_file_outlives_the_record(tmp_path: Path) -> None:
    out = tmp_path / "out"
    save(out, complete=False)
    save(out, b"/srv/run/step_9/b")
    assert sorted(contents(out)) == [
        "recovery.json",
        "run/step_8/adapter_model.safetensors.partial",
        "run/step_8/adapter_model.safetensors.rescue.map",
        "run/step_9/b",
    ]


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"process": NaN',
        b"[" * 100_000,
    ],
    ids=["empty", "a list", "cut", "not UTF-8", "no number", "too deep"],
)
def test_a_file_that_is_no_record_is_not_overwritten(tmp_path: Path, record: bytes) -> None:
    (tmp_path / "recovery.json").write_bytes(record)
    with opened(tmp_path) as folder, pytest.raises(DestinationExists, match="not a record"):
        folder.read_record()
    with opened(tmp_path, force=True) as folder:
        assert folder.read_record() is None


def test_a_record_is_read_back(tmp_path: Path) -> None:
    with opened(tmp_path / "new" / "out") as folder:
        assert folder.read_record() is None
        folder.write_record({"verdict": "PARTIAL", "files": []})
        assert folder.read_record() == {"verdict": "PARTIAL", "files": []}
        assert folder.has("recovery.json")
        assert not folder.has("nothing")
        assert not folder.has("nul\0")


@pytest.mark.parametrize("out", ["file", "file/below", "/proc/nothing", "long" * 100])
def test_a_folder_that_cannot_be_made_is_told_with_a_way_out(tmp_path: Path, out: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unusable, match="Cannot write") as caught:
        OutputFolder(str(tmp_path / out))
    assert "--out -" in str(caught.value.remedy)


def test_two_dumps_never_write_to_one_folder_at_once(tmp_path: Path) -> None:
    with opened(tmp_path / "out"):
        before = os.listdir("/proc/self/fd")
        with pytest.raises(Unusable, match="Another dump is writing"):
            OutputFolder(str(tmp_path / "out"), force=True)
        assert os.listdir("/proc/self/fd") == before
    save(tmp_path / "out")


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    save(tmp_path / "out")
    with pytest.raises(DestinationExists):
        save(tmp_path / "out")
    save(tmp_path / "out", b"/x", complete=False)
    assert os.listdir("/proc/self/fd") == before


# --- attributes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("original", "saved"),
    [(0o640, 0o640), (0o6755, 0o755), (0o1777, 0o777), (0o4000, 0o000), (0o400, 0o400)],
    ids=oct,
)
def test_the_mode_is_kept_but_for_the_bits_that_give_rights(
    tmp_path: Path, original: int, saved: int
) -> None:
    attributes = Attributes(len(DATA), original, 1_600_000_000_123_456_789)
    place = tmp_path / "out" / os.fsdecode(save(tmp_path / "out", attributes=attributes))
    info = place.stat()
    assert (stat.S_IMODE(info.st_mode), info.st_mtime_ns) == (saved, 1_600_000_000_123_456_789)


def test_an_incomplete_file_is_private_whatever_the_mode(tmp_path: Path) -> None:
    save(tmp_path / "out", complete=False, attributes=Attributes(len(DATA), 0o777))
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "out").rglob("*.*")}
    assert modes == {0o600}


@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, PAGE + 1, 10 * PAGE + 7])
def test_every_size_is_written_exactly(tmp_path: Path, size: int) -> None:
    data = (DATA * 5)[:size]
    place = os.fsdecode(save(tmp_path / "out", data=data))
    assert contents(tmp_path / "out")[place] == data


# --- holes ---------------------------------------------------------------------------------------


def test_holes_of_the_source_stay_holes_and_nothing_else_does(tmp_path: Path) -> None:
    size = 4 << 20
    data = bytearray(size)
    data[: 2 * PAGE] = DATA[: 2 * PAGE]
    data[PAGE : 2 * PAGE] = bytes(PAGE)  # zeros that the source has on the disk
    data[size // 2] = 1  # written where the source had a hole when it was looked at
    data[-1] = 1
    sparse = (Range(0, 2 * PAGE), Range(size - PAGE, size))
    place = tmp_path / "out" / os.fsdecode(save(tmp_path / "out", data=bytes(data), sparse=sparse))
    assert place.read_bytes() == data
    assert place.stat().st_blocks * 512 <= 1 << 18


@pytest.mark.skipif(os.geteuid() != 0, reason="map_files needs a capability: run as root")
def test_a_sparse_file_comes_back_sparse(tmp_path: Path) -> None:
    path = tmp_path / "run" / "a.safetensors"
    path.parent.mkdir()
    size = 64 << 20
    header = write_header([("t", "U8", (size,))])
    with path.open("wb") as file:
        file.write(header)
        file.truncate(len(header) + size)
    digest = hashlib.sha256(header + bytes(size)).hexdigest()
    with mapping({"path": path, "kind": "private"}) as victim:
        path.unlink()
        code, document = dump_json(victim["pid"], tmp_path / "out")
    saved = Path(document["files"][0]["path"])
    assert (code, document["files"][0]["sha256"]) == (0, digest)
    assert saved.stat().st_size == len(header) + size
    assert saved.stat().st_blocks * 512 <= 1 << 18


# --- crashes -------------------------------------------------------------------------------------


class Crash(BaseException):
    """The machine stops here."""


STEPS = ("open", "ftruncate", "pwritev", "fdatasync", "fsync", "rename", "unlink", "fchmod")
OLD_RECORD = {"verdict": "OLD"}
FINISHED = {
    PATH.decode().removeprefix("/srv/"): DATA,
    "recovery.json": b'{\n  "verdict": "FILE_EXACT"\n}\n',
}


def crash_at(patch: pytest.MonkeyPatch, number: int, *, after: bool) -> None:
    """Stop before, or right after, the call of this number among those that change the disk."""
    calls = iter(range(1 << 30))

    def stopping(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            here = next(calls) == number
            if here and not after:
                raise Crash
            try:
                return function(*arguments, **named)
            finally:
                if here:
                    raise Crash

        return call

    for step in STEPS:
        patch.setattr(os, step, stopping(getattr(os, step)))


def assert_never_half(out: Path) -> None:
    found = contents(out)
    place = PATH.decode().removeprefix("/srv/")
    assert found.get(place, DATA) == DATA
    record = json.loads(found["recovery.json"])
    assert record in (OLD_RECORD, {"verdict": "FILE_EXACT"})
    if record != OLD_RECORD:
        assert place in found
    if f"{place}.rescue.map" in found and place not in found:
        done = RescueMap.from_text(found[f"{place}.rescue.map"].decode()).finished
        for piece in done:
            partial = found[f"{place}.partial"]
            assert partial[piece.start : piece.stop] == DATA[piece.start : piece.stop]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_step_leaves_old_or_new_and_the_next_run_ends_it(
    tmp_path: Path, after: bool
) -> None:
    crashes = 0
    while True:
        out = tmp_path / str(crashes)
        with opened(out) as folder:
            folder.write_record(OLD_RECORD)
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, crashes, after=after)
            try:
                save(out)
                break
            except Crash:
                crashes += 1
        assert_never_half(out)
        try:
            save(out)
        except DestinationExists:  # all was done but for the answer
            assert json.loads((out / "recovery.json").read_bytes()) != OLD_RECORD
        found = {name: data for name, data in contents(out).items() if not name.endswith(".tmp")}
        assert found == FINISHED
    assert crashes >= 12


def test_what_a_crash_left_behind_is_gone_after_the_next_run(tmp_path: Path) -> None:
    for number in range(30):
        with pytest.MonkeyPatch.context() as patch:
            crash_at(patch, number, after=True)
            with contextlib.suppress(Crash):
                save(tmp_path, force=True)
        save(tmp_path, force=True)
        assert contents(tmp_path) == FINISHED
