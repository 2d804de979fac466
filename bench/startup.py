"""How long `--help` takes, of the command and of each sub-command.

The yardstick is the same interpreter importing click, without which no answer is possible.
"""

from __future__ import annotations

import sys
from pathlib import Path

from _harness import Floor, Table, alternate, import_click, machine, options, place, reef_recover

from reefkit.cli import RECOVER

FLOOR = Floor(2.5)
CLICK = "click"


def main() -> int:
    """Measure, print, judge."""
    asked = options(__doc__, size=len(RECOVER), size_is="sub-commands to try", repeat=15)
    with place(asked) as here:
        helps = {"": [*reef_recover(), "--help"]}
        for name in list(RECOVER)[: asked.size]:
            helps[name] = [*reef_recover(), name, "--help"]
        sides = {name: here.side(*command) for name, command in helps.items()}
        times = alternate({CLICK: here.side(*import_click()), **sides}, asked.repeat)
        table = Table("start-up", asked)
        for name in helps:
            what = " ".join(["reef-recover", *filter(None, [name]), "--help"])
            table.ratio(what, times[name], times[CLICK], "import click", FLOOR)
        how = "console script" if Path(reef_recover()[0]).name == "reef-recover" else "python -m"
        table.note(f"Started as a {how}; bytecode compiled and files in the page cache, all sides.")
        table.note(machine(here.root))
    return table.end()


if __name__ == "__main__":
    sys.exit(main())
