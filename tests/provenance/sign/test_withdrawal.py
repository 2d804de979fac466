"""Evidence that is out already is withdrawn, or superseded, by a signed statement beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Command = Callable[..., Any]
OTHER = "ab" * 32


@pytest.mark.parametrize(
    ("options", "verdict", "kind"),
    [((), "FAILED", "withdrawn"), (("--superseded-by", OTHER), "VERIFIED", "superseded")],
)
def test_verify_reports_what_was_signed(
    options: tuple[str, ...], verdict: str, kind: str, tmp_path: Path, reef_archive: Command
) -> None:
    key, folder = tmp_path / "lab", tmp_path / "run"
    folder.mkdir()
    (folder / "log.txt").write_text("step 8\n")
    reef_archive("keygen", "--out", key, "--identity", "e@lab")
    assert reef_archive("sign", folder, "--key", key).code == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    saying = ("sign", folder, "--key", key, "--withdraw", "The clock was wrong.", *options)
    assert reef_archive(*saying, "--json").code == 0
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.keys() - before.keys() == {"withdrawn.json", "withdrawn.json.sig"}
    assert before.items() <= after.items()
    told = reef_archive("verify", folder, "--signers", f"{key}.allowed_signers", "--json")
    assert told.document["verdict"] == verdict, told.document["findings"]
    (finding,) = (each for each in told.document["findings"] if each["kind"] == kind)
    assert "The clock was wrong." in finding["diagnosis"]
    assert reef_archive(*saying).code == 2


def test_a_successor_needs_a_reason_and_a_target_a_list(
    tmp_path: Path, reef_archive: Command
) -> None:
    key = tmp_path / "lab"
    reef_archive("keygen", "--out", key, "--identity", "e@lab")
    assert reef_archive("sign", tmp_path, "--key", key, "--superseded-by", OTHER).code == 2
    (tmp_path / "e").mkdir()
    assert reef_archive("sign", tmp_path / "e", "--key", key, "--withdraw", "x").code == 2
