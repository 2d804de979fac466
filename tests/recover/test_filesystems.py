"""Every kind of filesystem gives its lost files back, and what it cannot prove is not claimed."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import shutil
import struct
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from victims import (
    PAGE,
    WITHOUT_CAPABILITIES,
    Checkpoint,
    dump_json,
    lost,
    mapping,
    reef,
    running,
    write_checkpoint,
)

from reefkit.recover.formats.safetensors import write_header

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")

HUGE_PAGE = 2 << 20
LARGE = [(f"t{i}", "U8", (1 << 20,)) for i in range(6)]
DISKS: dict[str, tuple[int, tuple[str, ...]]] = {
    "ext4": (32 << 20, ("mkfs.ext4", "-q", "-b", "4096", "-E", "packed_meta_blocks=1")),
    "xfs": (300 << 20, ("mkfs.xfs", "-q")),
    "btrfs": (112 << 20, ("mkfs.btrfs", "-q")),
}


def do(*command: str | Path) -> None:
    """Run a command that prepares a filesystem; skip where this machine refuses it."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip(f"{command[0]} is not installed")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"{' '.join(map(str, command))}: {error.stderr.strip()}")


@contextmanager
def mounted(
    point: Path, kind: str, *options: str, source: Path | None = None
) -> Generator[Path, None, None]:
    """Mount a filesystem at a new folder, and unmount it whatever happens."""
    point.mkdir(parents=True)
    chosen = ("-o", ",".join(options)) if options else ()
    do("mount", "-t", kind, *chosen, source or "none", point)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=True)


@contextmanager
def disk(folder: Path, kind: str, *options: str) -> Generator[Path, None, None]:
    """Make a filesystem in the image file `folder/kind.img` and mount it at `folder/kind`."""
    size, make = DISKS[kind]
    image = folder / f"{kind}.img"
    with image.open("wb") as file:
        file.truncate(size)
    try:
        do(*make, image)
        with mounted(folder / kind, kind, "loop", *options, source=image) as point:
            yield point
    finally:
        image.unlink()


@contextmanager
def overlay(folder: Path) -> Generator[tuple[Path, Path], None, None]:
    """Mount an overlay whose layers are on ext4; give the mount point and the lower layer."""
    with disk(folder, "ext4") as layers:
        for layer in ("lower", "upper", "work"):
            (layers / layer).mkdir()
        options = [f"{layer}dir={layers / layer}" for layer in ("lower", "upper", "work")]
        with mounted(folder / "overlay", "overlay", *options) as point:
            yield point, layers / "lower"


@contextmanager
def huge_pages(folder: Path) -> Generator[Path, None, None]:
    """Mount a hugetlbfs that may take four pages from the machine."""
    limit = Path("/proc/sys/vm/nr_overcommit_hugepages")
    if not limit.exists():
        pytest.skip("the kernel has no huge pages")
    before = limit.read_text()
    limit.write_text(str(int(before) + 4))
    try:
        with mounted(folder / "hugetlbfs", "hugetlbfs", "pagesize=2M") as point:
            yield point
    finally:
        limit.write_text(before)


def write_huge(path: Path) -> Checkpoint:
    """Write a checkpoint of exactly one huge page: hugetlbfs has no write(2)."""
    length = HUGE_PAGE - len(write_header([("t", "U8", (HUGE_PAGE,))]))
    data = write_header([("t", "U8", (length,))]) + os.urandom(length)
    path.parent.mkdir()
    with path.open("w+b") as file:
        file.truncate(HUGE_PAGE)
        with mmap.mmap(file.fileno(), HUGE_PAGE) as memory:
            memory[:] = data
    return Checkpoint(path, data)


@contextmanager
def checkpoint_on(kind: str, folder: Path) -> Generator[Checkpoint, None, None]:
    """Write a checkpoint on a filesystem of a kind."""
    with contextlib.ExitStack() as stack:
        if kind in DISKS:
            yield write_checkpoint(
                stack.enter_context(disk(folder, kind)) / "run" / "a.safetensors"
            )
        elif kind == "tmpfs":
            point = stack.enter_context(mounted(folder / kind, kind, "size=8m"))
            yield write_checkpoint(point / "run" / "a.safetensors")
        elif kind == "hugetlbfs":
            yield write_huge(stack.enter_context(huge_pages(folder)) / "run" / "a.safetensors")
        else:
            point, lower = stack.enter_context(overlay(folder))
            below = lower if kind == "overlay, lower layer" else point
            written = write_checkpoint(below / "run" / "a.safetensors")
            yield Checkpoint(point / "run" / "a.safetensors", written.data)


def only(document: dict[str, Any]) -> dict[str, Any]:
    files: list[dict[str, Any]] = document["files"]
    (file,) = files
    return file


def assert_exact(answer: tuple[int, dict[str, Any]], checkpoint: Checkpoint) -> dict[str, Any]:
    code, document = answer
    file = only(document)
    assert (code, file["verdict"], file["sha256"]) == (0, "FILE_EXACT", checkpoint.sha256)
    assert Path(file["path"]).read_bytes() == checkpoint.data
    return file


def deep_sync(path: Path) -> None:
    """Bring the whole filesystem that `path` is on to its storage."""
    subprocess.run(["sync", "-f", path], check=True)


@pytest.mark.parametrize(
    ("kind", "independent"),
    [
        ("ext4", True),
        ("xfs", True),
        ("btrfs", True),
        ("overlay, upper layer", True),
        ("overlay, lower layer", True),
        ("tmpfs", False),
        ("hugetlbfs", False),
    ],
)
def test_a_deleted_file_is_exact_on(kind: str, independent: bool, tmp_path: Path) -> None:
    with checkpoint_on(kind, tmp_path) as checkpoint:
        holding = "readonly" if kind == "hugetlbfs" else "private"
        with lost(checkpoint, kind=holding) as victim:
            (row,) = reef("scan", "--pid", victim["pid"], "--json").json["candidates"]
            file = assert_exact(dump_json(victim["pid"], tmp_path / "out"), checkpoint)
    assert (row["state"], row["name"]) == ("deleted", str(checkpoint.path))
    assert [read["independent"] for read in file["reads"]] == [False, independent]
    assert [read["sha256"] for read in file["reads"]] == [checkpoint.sha256] * 2


@pytest.mark.parametrize("kind", ["btrfs", "overlay, upper layer", "overlay, lower layer"])
@pytest.mark.parametrize("state", ["live", "replaced"])
def test_the_state_is_right_where_maps_shows_another_device(
    kind: str, state: str, tmp_path: Path
) -> None:
    with checkpoint_on(kind, tmp_path) as checkpoint:
        with mapping({"path": checkpoint.path, "kind": "private"}) as victim:
            if state == "replaced":
                new = write_checkpoint(checkpoint.path.with_name(".tmpAbCdEf"), seed=2)
                os.rename(new.path, checkpoint.path)
            (row,) = reef("scan", "--pid", victim["pid"], "--json").json["candidates"]
    assert row["state"] == state


def test_a_memfd_has_no_storage_that_could_be_asked(tmp_path: Path) -> None:
    source = write_checkpoint(tmp_path / "run" / "a.safetensors")
    script = """
import json, mmap, os, sys
fd = os.memfd_create("adapter")
os.write(fd, open(sys.argv[1], "rb").read())
held = mmap.mmap(fd, 0)
os.close(fd)
print(json.dumps({"pid": os.getpid()}), flush=True)
sys.stdin.read()
"""
    with running(script, str(source.path)) as victim:
        file = assert_exact(dump_json(victim["pid"], tmp_path / "out"), source)
    assert file["source"]["path"] == "/memfd:adapter"
    assert file["reads"][1]["independent"] is False


# --- the storage behind the page cache ---


def find(image: Path, page: bytes) -> int:
    """Find where the one copy of a page lies in an image file."""
    with image.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as contents:
        at = contents.find(page)
        assert at % PAGE == 0 and contents.find(page, at + 1) == -1
        return at


def overwrite(image: Path, at: int, data: bytes) -> None:
    with image.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay, upper layer"])
def test_a_page_that_the_storage_holds_otherwise_is_noticed(kind: str, tmp_path: Path) -> None:
    with checkpoint_on(kind, tmp_path) as checkpoint, lost(checkpoint) as victim:
        deep_sync(tmp_path / kind.partition(",")[0])
        image = tmp_path / ("xfs.img" if kind == "xfs" else "ext4.img")
        at = find(image, checkpoint.data[5 * PAGE : 6 * PAGE])
        overwrite(image, at, os.urandom(PAGE))
        code, document = dump_json(victim["pid"], tmp_path / "out")
    file = only(document)
    assert (code, file["verdict"]) == (1, "CHANGED")
    assert file["differing"] == [{"offset": 5 * PAGE, "bytes": PAGE}]
    assert [read["sha256"] for read in file["reads"]] == [checkpoint.sha256, None]


def test_storage_that_fails_its_checksum_is_not_called_independent(tmp_path: Path) -> None:
    with checkpoint_on("btrfs", tmp_path) as checkpoint, lost(checkpoint) as victim:
        deep_sync(tmp_path / "btrfs")
        image = tmp_path / "btrfs.img"
        overwrite(image, find(image, checkpoint.data[5 * PAGE : 6 * PAGE]), bytes(PAGE))
        file = assert_exact(dump_json(victim["pid"], tmp_path / "out"), checkpoint)
    assert file["reads"][1]["independent"] is False


def write_compressible(path: Path) -> Checkpoint:
    data = write_header([("t", "U8", (1 << 20,))]) + b"reef" * (1 << 18)
    path.parent.mkdir()
    path.write_bytes(data)
    return Checkpoint(path, data)


@contextmanager
def compressed(folder: Path) -> Generator[Checkpoint, None, None]:
    """Write a checkpoint that btrfs stores compressed."""
    with disk(folder, "btrfs", "compress-force=zstd") as point:
        checkpoint = write_compressible(point / "run" / "a.safetensors")
        deep_sync(point)
        image = folder / "btrfs.img"
        assert checkpoint.data[5 * PAGE : 6 * PAGE] not in image.read_bytes()
        yield checkpoint


def test_a_compressed_file_is_exact(tmp_path: Path) -> None:
    with compressed(tmp_path) as checkpoint, lost(checkpoint) as victim:
        assert_exact(dump_json(victim["pid"], tmp_path / "out"), checkpoint)


def test_reads_that_the_page_cache_served_are_not_called_independent(tmp_path: Path) -> None:
    with compressed(tmp_path) as checkpoint:
        assert checkpoint.path.read_bytes() == checkpoint.data
        with lost(checkpoint) as victim:
            image = tmp_path / "btrfs.img"
            contents = image.read_bytes()
            frame = contents.find(b"\x28\xb5\x2f\xfd")
            assert frame > 0
            while frame != -1:
                overwrite(image, frame, bytes(PAGE))
                frame = contents.find(b"\x28\xb5\x2f\xfd", frame + 1)
            file = assert_exact(dump_json(victim["pid"], tmp_path / "out"), checkpoint)
    assert file["reads"][1]["independent"] is False


# --- clones, snapshots, holes ---


def used_bytes(point: Path) -> int:
    deep_sync(point)
    info = os.statvfs(point)
    return (info.f_blocks - info.f_bfree) * info.f_frsize


@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
def test_a_clone_beside_the_original_costs_no_space(kind: str, tmp_path: Path) -> None:
    with disk(tmp_path, kind) as point:
        checkpoint = write_checkpoint(point / "run" / "a.safetensors", LARGE)
        with lost(checkpoint) as victim:
            before = used_bytes(point)
            file = assert_exact(dump_json(victim["pid"], point / "out"), checkpoint)
            assert used_bytes(point) - before < 1 << 20
        assert used_bytes(point) > len(checkpoint.data)
        assert Path(file["path"]).read_bytes() == checkpoint.data
    assert file["cloned"] is True


@pytest.mark.parametrize("kind", ["btrfs", "xfs"])
def test_what_is_saved_is_what_was_read_and_not_a_damaged_block(kind: str, tmp_path: Path) -> None:
    with disk(tmp_path, kind) as point:
        checkpoint = write_checkpoint(point / "run" / "a.safetensors", LARGE)
        deep_sync(point)
        image = tmp_path / f"{kind}.img"
        with lost(checkpoint) as victim:
            overwrite(image, find(image, checkpoint.data[5 * PAGE : 6 * PAGE]), bytes(PAGE))
            file = only(dump_json(victim["pid"], point / "out")[1])
        assert file["sha256"] == checkpoint.sha256
        assert Path(file["path"]).read_bytes() == checkpoint.data


def test_ext4_copies(tmp_path: Path) -> None:
    with disk(tmp_path, "ext4") as point:
        checkpoint = write_checkpoint(point / "run" / "a.safetensors", LARGE)
        with lost(checkpoint) as victim:
            file = assert_exact(dump_json(victim["pid"], point / "out"), checkpoint)
    assert file["cloned"] is False


@pytest.fixture
def snapshots(tmp_path: Path) -> Generator[tuple[Path, Checkpoint, Checkpoint], None, None]:
    """Make a subvolume and its snapshot: one inode number, one path, other bytes."""
    with disk(tmp_path, "btrfs") as point:
        do("btrfs", "-q", "subvolume", "create", point / "one")
        one = write_checkpoint(point / "one" / "run" / "a.safetensors", seed=1)
        do("btrfs", "-q", "subvolume", "snapshot", point / "one", point / "two")
        two = write_checkpoint(point / "two" / "run" / "a.safetensors", seed=2)
        assert one.path.stat().st_ino == two.path.stat().st_ino
        yield tmp_path / "view", one, two


def seeing(subvolume: str, view: Path, *prefix: str) -> Sequence[str]:
    """Give a prefix that runs a victim where `view` is the subvolume."""
    source = view.parent / "btrfs" / subvolume
    mount = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    return ("unshare", "-m", "sh", "-c", mount, "sh", str(source), str(view), *prefix)


@pytest.mark.parametrize("prefix", [(), WITHOUT_CAPABILITIES], ids=["capable", "without"])
def test_one_path_and_inode_number_in_two_snapshots_are_two_files(
    snapshots: tuple[Path, Checkpoint, Checkpoint], tmp_path: Path, prefix: Sequence[str]
) -> None:
    view, one, two = snapshots
    view.mkdir()
    plan = {"path": view / "run" / "a.safetensors", "kind": "private"}
    with (
        mapping(plan, prefix=seeing("one", view, *prefix)),
        mapping(plan, prefix=seeing("two", view, *prefix)),
    ):
        one.path.unlink()
        two.path.unlink()
        arguments = ("--pid", os.getpid(), "--json")
        scan = reef("scan", *arguments, prefix=prefix).json
        only = ("--match", str(plan["path"]), "--out", tmp_path / "out")
        answer = reef("dump", *arguments, *only, prefix=prefix)
    rows = [row for row in scan["candidates"] if row["name"] == str(plan["path"])]
    assert [row["state"] for row in rows] == ["deleted", "deleted"]
    saved = {Path(f["path"]).read_bytes() for f in answer.json["files"]}
    assert (answer.code, saved) == (0, {one.data, two.data})


def write_with_hole(
    path: Path, tensors: Sequence[tuple[str, str, tuple[int, ...]]], hole: slice
) -> Checkpoint:
    checkpoint = write_checkpoint(path, tensors)
    length = hole.stop - hole.start
    do("fallocate", "--punch-hole", "-o", str(hole.start), "-l", str(length), path)
    data = checkpoint.data
    return Checkpoint(path, data[: hole.start] + bytes(length) + data[hole.stop :])


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs"])
def test_holes_stay_holes(kind: str, tmp_path: Path) -> None:
    with disk(tmp_path, kind) as point:
        hole = slice(1 << 20, 5 << 20)
        checkpoint = write_with_hole(point / "run" / "a.safetensors", LARGE, hole)
        deep_sync(point)
        with lost(checkpoint) as victim:
            file = assert_exact(dump_json(victim["pid"], tmp_path / "out"), checkpoint)
    saved = Path(file["path"])
    deep_sync(saved)
    assert saved.stat().st_blocks * 512 <= len(checkpoint.data) - (4 << 20) + 4 * PAGE


# --- a destination that is full or cannot be written ---


@pytest.mark.parametrize("hole", [slice(0, 0), slice(1 << 20, 2 << 20)], ids=["dense", "sparse"])
def test_a_full_disk_is_one_sentence_and_the_same_command_goes_on(
    hole: slice, tmp_path: Path
) -> None:
    small = write_checkpoint(tmp_path / "run" / "small" / "a.safetensors")
    path, tensors = tmp_path / "run" / "large" / "a.safetensors", [("t", "U8", (8 << 20,))]
    large = write_with_hole(path, tensors, hole) if hole.stop else write_checkpoint(path, tensors)
    with (
        mounted(tmp_path / "full", "tmpfs", "size=4m") as point,
        lost(small, large) as victim,
    ):
        answer = reef("dump", "--pid", victim["pid"], "--out", point / "out", "--json")
        assert (answer.code, answer.json["code"]) == (1, "DoesNotHold")
        assert answer.json["message"].startswith(f"No space left at {point / 'out'}: ")
        assert "Make room and run the same command again" in answer.json["remedy"]
        saved = {path.parent.name: path for path in (point / "out").rglob("*.safetensors")}
        assert "large" not in saved
        subprocess.run(["mount", "-o", "remount,size=16m", point], check=True)
        code, document = dump_json(victim["pid"], point / "out")
        assert (code, document["verdict"]) == (0, "FILE_EXACT")
        assert {Path(f["path"]).read_bytes() for f in document["files"]} == {
            small.data,
            large.data,
        }
        left = {path.name for path in (point / "out").rglob("*") if path.is_file()}
    assert left == {"a.safetensors", "custody.jsonl", "recovery.json"}


def test_a_read_only_destination_is_refused_with_another_way(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "run" / "a.safetensors")
    with mounted(tmp_path / "sealed", "tmpfs", "ro") as point, lost(checkpoint) as victim:
        answer = reef("dump", "--pid", victim["pid"], "--out", point / "out", "--json")
        assert (answer.code, answer.json["code"]) == (2, "Unusable")
        assert "read-only file system" in answer.json["message"]
        assert "--out - | ssh" in answer.json["remedy"]
        streamed = reef("dump", "--pid", victim["pid"], "--out", "-")
    assert streamed.code == 0
    assert os.fsencode(streamed.out) == checkpoint.data


# --- storage that cannot be read ---

FIBMAP, EXT4_MOVE_EXTENT = 1, 0xC028660F
BAD = slice(768 * PAGE, 784 * PAGE)


def blocks_of(path: Path) -> list[int]:
    """Give the device's block behind each whole block of a file."""
    with path.open("rb") as file:
        return [
            int.from_bytes(fcntl.ioctl(file.fileno(), FIBMAP, struct.pack("=i", block)), "little")
            for block in range(path.stat().st_size // PAGE)
        ]


def move_to_the_end(path: Path, piece: slice) -> int:
    """Move a piece of a file on ext4 behind its others; give where it is on the device now."""
    first, count = piece.start // PAGE, (piece.stop - piece.start) // PAGE
    spare = path.with_name("spare")
    spare.write_bytes(bytes(count * PAGE))
    deep_sync(path)
    with spare.open("r+b") as donor, path.open("r+b") as file:
        request = struct.pack("=2I4Q", 0, donor.fileno(), first, 0, count, 0)
        fcntl.ioctl(file.fileno(), EXT4_MOVE_EXTENT, request)
    deep_sync(path)
    blocks = blocks_of(path)
    start = min(blocks[first : first + count])
    assert start > max(blocks[:first] + blocks[first + count :])
    return start * PAGE


def drop_cache(path: Path) -> None:
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def failing(tmp_path: Path) -> Generator[tuple[Checkpoint, Path, int], None, None]:
    """Make an ext4 whose device has lost a part of a file; give where in the image it was.

    A loop device answers reads behind the end of its image with EIO.
    """
    with disk(tmp_path, "ext4") as point:
        checkpoint = write_checkpoint(point / "run" / "a.safetensors", LARGE)
        start = move_to_the_end(checkpoint.path, BAD)
        drop_cache(checkpoint.path)
        image = tmp_path / "ext4.img"
        os.truncate(image, start)
        yield checkpoint, image, start


def test_unreadable_blocks_are_mapped_and_only_they_are_read_again(
    failing: tuple[Checkpoint, Path, int], tmp_path: Path
) -> None:
    checkpoint, image, start = failing
    unread = [{"offset": BAD.start, "bytes": BAD.stop - BAD.start}]
    with lost(checkpoint) as victim:
        code, document = dump_json(victim["pid"], tmp_path / "out")
        file = only(document)
        assert (code, file["verdict"], file["unread"]) == (1, "PARTIAL", unread)
        assert file["reads"][1]["independent"] is False
        assert file["path"].endswith(".partial")
        kept = Path(file["path"]).read_bytes()
        assert kept[: BAD.start] == checkpoint.data[: BAD.start]
        assert kept[BAD.stop :] == checkpoint.data[BAD.stop :]
        overwrite(image, start, checkpoint.data[BAD])
        # Meanwhile the device loses a block that the first run had read.
        block = (5 << 20) // PAGE
        lost_since = find(image, checkpoint.data[block * PAGE : (block + 1) * PAGE])
        overwrite(image, lost_since, bytes(PAGE))
        again = assert_exact(dump_json(victim["pid"], tmp_path / "out"), checkpoint)
    assert (
        f"{len(checkpoint.data) - (2 << 20)} bytes were read by an earlier, interrupted run."
        in again["notes"]
    )
    assert [path.name for path in Path(again["path"]).parent.iterdir()] == ["a.safetensors"]


@pytest.mark.skipif(shutil.which("ddrescuelog") is None, reason="ddrescuelog is not installed")
def test_ddrescuelog_reads_the_rescue_map(
    failing: tuple[Checkpoint, Path, int], tmp_path: Path
) -> None:
    with lost(failing[0]) as victim:
        _, document = dump_json(victim["pid"], tmp_path / "out")
    mapfile = only(document)["path"].removesuffix(".partial") + ".rescue.map"
    done = subprocess.run(
        ["ddrescuelog", "-b", str(PAGE), "-l", "-", mapfile], capture_output=True, check=True
    )
    assert [int(line) for line in done.stdout.split()] == list(
        range(BAD.start // PAGE, BAD.stop // PAGE)
    )
