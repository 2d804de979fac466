"""The commands, run in this process: what they print, and their exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from reefkit.cli import archive, run


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def reef_archive(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    def call(*arguments: object) -> Answer:
        capsys.readouterr()
        code = run(archive, [str(each) for each in arguments])
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return call
