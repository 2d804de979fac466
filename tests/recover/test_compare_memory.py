"""Sources made on the fly and compared in a process of its own, to see what that one takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

MEASURED = """
import sys
from pathlib import Path
from reefkit.recover.compare import compare

class Endless:
    def __init__(self, filling):
        self.head, self.filling, self.label = sys.argv[1].encode(), filling, "x"
        self.head = len(self.head).to_bytes(8, "little") + self.head
        self.size = len(self.head) + int(sys.argv[2])

    def read(self, offset, length):
        length = max(0, min(length, self.size - offset))
        head = self.head[offset : offset + length]
        return head + self.filling * (length - len(head))

found = compare(Endless(b"a"), Endless(sys.argv[3].encode()))
status = Path("/proc/self/status").read_text()
peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
print(found.result.value, found.different_elements, int(peak) // 1024, "numpy" in sys.modules)
"""


def measured(size: int, dtype: str, filling: str) -> list[str]:
    """Compare sources of `size` bytes in a process of its own; gives what that one printed."""
    shape = size * 8 // {"BF16": 16, "F64": 64, "F4": 4, "F6_E2M3": 6}[dtype]
    header = {"w": {"dtype": dtype, "shape": [shape], "data_offsets": [0, size]}}
    arguments = [json.dumps(header), str(size), filling]
    package = Path(sys.modules["reefkit"].__path__[0]).parent
    run = subprocess.run(
        [sys.executable, "-c", MEASURED, *arguments],
        env={**os.environ, "PYTHONPATH": str(package)},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.split()


@pytest.mark.parametrize("dtype", ["BF16", "F64", "F4", "F6_E2M3"])
def test_memory_is_bounded_when_every_element_differs(dtype: str) -> None:
    size = 3 << 26
    result, elements, peak, _ = measured(size, dtype, "b")
    assert (result, int(elements) > 0) == ("different", True)
    assert int(peak) < 100


def test_numpy_is_not_loaded_for_the_same_bytes() -> None:
    result, _, peak, numpy_loaded = measured(3 << 26, "BF16", "a")
    assert (result, numpy_loaded) == ("byte-identical", "False")
    assert int(peak) < 50
