"""What `doctor` prints and answers; needs no rights."""

from __future__ import annotations

import os
import subprocess

from victims import reef


def test_a_row_for_each_route_and_one_line_to_type() -> None:
    child = subprocess.Popen(["true"], stdout=subprocess.PIPE)
    try:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        answer = reef("doctor", "--pid", child.pid)
    finally:
        child.communicate()
    lines = answer.out.splitlines()
    assert answer.code == 2
    assert [line.split()[0] for line in lines[:4]] == ["ROUTE", "map_files", "fd", "memory"]
    assert [line.split()[1] for line in lines[:4]] == ["STATE", *["blocked"] * 3]
    assert lines[4].startswith("For map_files, fd, memory: `reef-recover pins`")
    assert f"process {child.pid} (true)" in answer.err


def test_without_a_pid_it_examines_the_caller() -> None:
    answer = reef("doctor")
    assert answer.code == 0
    assert "on a child of doctor's own" in answer.err
    assert answer.out.splitlines()[2].split()[:2] == ["fd", "open"]


def test_json_is_all_that_stdout_holds() -> None:
    document = reef("doctor", "--json", "--quiet").json
    assert document["schema"] == "reefkit.doctor/1"
    assert [row["route"] for row in document["routes"]] == ["map_files", "fd", "memory"]
    assert document["caller"]["uid"] == os.geteuid()
    assert document["target"] is None


def test_an_absent_process_is_an_error_with_exit_code_2() -> None:
    answer = reef("doctor", "--pid", 1 << 22, "--json")
    assert (answer.code, answer.json["schema"]) == (2, "reefkit.error/1")
