from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from reefkit.errors import NothingFound, NotPermitted, Unusable
from reefkit.recover.compare import FileReadable, Result, compare, compare_folders
from reefkit.recover.formats.safetensors import write_header
from reefkit.recover.readable import unreadable


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def safetensors(data: bytes, metadata: dict[str, str] | None = None) -> bytes:
    return write_header([("w", "U8", (len(data),))], metadata) + data


def test_a_folder_is_as_good_as_its_worst_file(tmp_path: Path) -> None:
    plain = safetensors(b"1234")
    a = write(tmp_path / "a", {"1.safetensors": plain, "s/2": plain})
    b = write(tmp_path / "b", {"1.safetensors": safetensors(b"1234", {"k": "v"}), "s/2": plain})
    assert compare_folders(a, b).result is Result.RE_SERIALISED
    write(b, {"s/2": safetensors(b"12_4")})
    document = compare_folders(a, b).to_json()
    assert document["result"] == "different"
    assert document["first_difference"] == {
        "tensor": "w",
        "element": 2,
        "offset": len(plain) - 2,
        "file": "s/2",
    }
    assert document["different_elements"] == 1
    tensors, files = (json.loads(json.dumps(document[key])) for key in ("tensors", "files"))
    assert tensors["equal"] == 1
    assert [(one["file"], one["tensor"]) for one in tensors["different"]] == [("s/2", "w")]
    assert [(one["file"], one["result"]) for one in files] == [
        ("1.safetensors", "re-serialised"),
        ("s/2", "different"),
    ]


def test_a_file_that_one_folder_lacks_is_different(tmp_path: Path) -> None:
    a = write(tmp_path / "a", {"same": b"1", "mine": b"2"})
    b = write(tmp_path / "b", {"same": b"1", "theirs": b"3"})
    found = compare_folders(a, b)
    assert (found.result, found.only_in_a, found.only_in_b) == (
        Result.DIFFERENT,
        ("mine",),
        ("theirs",),
    )


def test_own_records_are_left_out(tmp_path: Path) -> None:
    a = write(tmp_path / "a", {"same": b"1", "recovery.json": b"{}", "x/w.rescue.map": b""})
    b = write(tmp_path / "b", {"same": b"1"})
    assert compare_folders(a, b).result is Result.BYTE_IDENTICAL


def test_what_is_not_a_regular_file_is_counted_in_the_note(tmp_path: Path) -> None:
    a = write(tmp_path / "a", {"same": b"1"})
    b = write(tmp_path / "b", {"blob": b"1"})
    os.mkfifo(a / "pipe")
    (a / "dangling").symlink_to("nowhere")
    (b / "blob").rename(tmp_path / "blob")
    (b / "same").symlink_to(tmp_path / "blob")
    found = compare_folders(a, b)
    assert found.result is Result.BYTE_IDENTICAL
    assert found.note == "2 entries that are not regular files were left out."


def test_a_link_to_a_folder_is_refused_since_nothing_there_would_be_compared(
    tmp_path: Path,
) -> None:
    a, b = write(tmp_path / "a", {"same": b"1"}), write(tmp_path / "b", {"same": b"1"})
    (a / "round").symlink_to(".", target_is_directory=True)
    with pytest.raises(Unusable, match="link to a folder"):
        compare_folders(a, b)


def test_a_file_name_that_is_not_utf8_is_escaped_in_json(tmp_path: Path) -> None:
    for side in "ab":
        write(tmp_path / side, {os.fsdecode(b"w\xff"): side.encode()})
    document = compare_folders(tmp_path / "a", tmp_path / "b").to_json()
    assert json.loads(json.dumps(document))["first_difference"]["file"] == "w\\xff"


def test_folders_without_files_are_nothing_to_compare(tmp_path: Path) -> None:
    with pytest.raises(NothingFound):
        compare_folders(tmp_path, tmp_path)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, Path.exists])
def test_what_cannot_be_opened_as_a_file_is_refused(
    tmp_path: Path, make: Callable[[Path], object]
) -> None:
    make(tmp_path / "it")
    with pytest.raises(Unusable, match="it"):
        FileReadable(tmp_path / "it")
    with pytest.raises(Unusable):
        compare_folders(tmp_path / "it" / "deeper", tmp_path)


def test_a_file_that_shrinks_meanwhile_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    write(tmp_path, {"a": safetensors(b"1234"), "b": safetensors(b"1234")})
    with FileReadable(tmp_path / "a") as a, FileReadable(tmp_path / "b") as b:
        os.truncate(tmp_path / "b", 50)
        with pytest.raises(Unusable, match="became shorter") as caught:
            compare(a, b)
    assert caught.value.remedy


def test_a_refusal_of_the_kernel_is_not_permitted() -> None:
    assert isinstance(unreadable("x", PermissionError(13, "Permission denied")), NotPermitted)
