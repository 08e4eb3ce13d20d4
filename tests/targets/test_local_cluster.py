"""`tidegauge cluster`: it forms, shows what changes, stops cleanly, goes on where it ended, and names what cannot be."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from linearizability.local_cluster import METRICS
from linearizability.targets.ports import free_ports
from tests.targets.numbers import consumed, produce
from tests.waiting import await_true

HOST = "127.0.0.1"
COMMAND = (sys.executable, "-m", "tidegauge", "cluster")
WITHIN_S = 90


def base_port() -> int:
    """A port with room behind it: controllers listen 100 above."""
    while True:
        (port,) = free_ports(1, HOST)
        if port < 60_000:
            return port


@pytest.mark.timeout(300)
def test_the_command_shows_the_cluster_stops_at_sigterm_and_goes_on(tmp_path: Path) -> None:
    port = base_port()
    servers = ",".join(f"{HOST}:{port + number}" for number in range(3))
    metrics = f"{METRICS}={HOST}:{port + 50}"
    command = [*COMMAND, "--nodes", "3", "--port", str(port), "--json", "--folder", str(tmp_path / "c")]
    for run in range(2):
        process = subprocess.Popen(
            [*command, "--set", metrics], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        assert (first["alive"], first["ended"], bool(first["partitions"])) == ([1, 2, 3], [], run == 1)
        if run == 0:
            produce(servers, [7])
        else:
            assert consumed(servers, 1) == [7]
        process.terminate()  # as Ctrl-C: one handler for both
        out, _ = process.communicate(timeout=WITHIN_S)
        assert json.loads(out.splitlines()[-1])["stopped"] is True
        assert process.returncode == 0
    for number in (1, 2, 3):
        log = (tmp_path / "c" / f"node-{number}" / "node.log").read_text()
        assert log.rstrip().endswith("stopped") and "Traceback" not in log
        assert f"metrics at http://{HOST}:{port + 49 + number}/" in log


def serving(folder: Path) -> set[int]:
    """The processes that serve a node of this folder, ended ones that no parent waited for left out."""
    found: set[int] = set()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{folder}/node-".encode() in (entry / "cmdline").read_bytes():
                found.add(int(entry.name))
    return found


@pytest.mark.timeout(300)
def test_nodes_end_when_the_command_is_killed(tmp_path: Path) -> None:
    command = [*COMMAND, "--nodes", "2", "--port", str(base_port()), "--folder", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None and b"alive" in process.stdout.readline()
        assert len(serving(tmp_path)) == 2
        process.kill()
        await_true(lambda: not serving(tmp_path))
    finally:
        for pid in (process.pid, *serving(tmp_path)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--nodes", "0"], "the number of nodes is 1 to 9"),
        (["--set", "num.partitions=none"], "Invalid value none"),
        (["--set", f"{METRICS}=127.0.0.1:{{taken}}"], "cannot be bound: Address already in use"),
        (["--set", f"{METRICS}=nowhere.invalid:9100"], "cannot be bound: "),
        (["--set", f"{METRICS}=127.0.0.1"], "'127.0.0.1' is not HOST:PORT"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(options: list[str], reason: str, tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        options = [option.format(taken=taken.getsockname()[1]) for option in options]
        command = [*COMMAND, "--nodes", "1", "--port", str(base_port()), "--folder", str(tmp_path / "c"), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 3 and reason in line, line


def test_a_port_that_another_process_serves_is_named(tmp_path: Path) -> None:
    """A broker there would answer in the name of the node that cannot have it, and the command would show its topics."""
    port = base_port()
    with socket.create_server((HOST, port + 1)):
        command = [*COMMAND, "--nodes", "2", "--port", str(port), "--folder", str(tmp_path / "c")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (3, "")
    assert line == f"{HOST}:{port + 1} is served by another process: --port gives node 1 another one"
