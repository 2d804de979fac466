"""`reef-recover doctor`."""

from __future__ import annotations

from ..errors import ExitCode
from ..records.names import printable
from ..recover.doctor.report import Report, examine
from .frame import Terminal, declare, pid_option, table, with_options


@declare(
    "doctor",
    help_text="""Say which ways to the bytes are open, and how to open the others.

    Tries everything that dump would do, without stopping or changing the process: map_files gives
    the file itself, fd the files that are held open, memory what the process sees. A closed route
    comes with what closes it and one line to type.

    Without --pid, the process that is tried is a child of doctor's own. The exit code is 0 when a
    route is open, else 2.""",
    examples="""
reef-recover doctor --pid 4242
reef-recover doctor
reef-recover doctor --pid 4242 --json | jq -r '.routes[] | .route, .cause, .remedy'
""",
)
@with_options(pid_option)
def command(terminal: Terminal, pid: int | None) -> int:
    """Examine, and print a row for each route."""
    report = examine(pid)
    terminal.document(report.to_json())
    terminal.say(_introduction(report))
    rows = [
        (row.route.value, "open" if row.open else "blocked", row.explanation) for row in report.rows
    ]
    terminal.product(table(("ROUTE", "STATE", "WHY"), rows))
    remedies: dict[str, list[str]] = {}
    for row in report.rows:
        if row.remedy is not None:
            remedies.setdefault(row.remedy, []).append(row.route.value)
    for remedy, routes in remedies.items():
        terminal.product(f"For {', '.join(routes)}: {printable(remedy)}")
    count = report.processes
    terminal.product(
        f"Of {count.accessible + count.refused} processes with memory that /proc shows, "
        f"{count.refused} may not be looked into."
    )
    return ExitCode.HOLDS if report.best_route else ExitCode.CANNOT_JUDGE


def _introduction(report: Report) -> str:
    caller, target = report.caller, report.target
    where = {"host": "on the host", "other-container": "in a container"}
    namespace = "" if caller.initial_user_namespace else ", in a user namespace of its own"
    who = f"uid {caller.uid} {where.get(caller.place.value, f'in {caller.place.value}')}{namespace}"
    if target.own_child:
        return f"Tried by {who}, on a child of doctor's own:"
    name = f" ({printable(target.command)})" if target.command else ""
    return f"Tried by {who}, on process {target.pid}{name}:"
