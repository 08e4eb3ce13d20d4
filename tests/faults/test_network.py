"""Network namespaces: links are cut and joined one by one, and nothing outlives the sandbox."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from linearizability.faults.network import groups_cut
from linearizability.faults.sandbox import obstacle, unshare
from tests.faults.sandboxed import REPOSITORY, sandboxed
from tests.waiting import await_true

NAP_S = str(1_000_000 + os.getpid())
"""The argument by which this run's sleepers are found among the processes of the machine."""

SCRIPT = """
import subprocess, sys
from linearizability.faults.network import CLIENTS, Network

SERVE = '''
import socket, sys
server = socket.create_server((sys.argv[1], 7000))
print("up", flush=True)
while True:
    server.accept()[0].close()
'''
CONNECT = '''
import socket, sys
socket.create_connection((sys.argv[1], 7000), timeout=0.5)
'''

with Network(3) as network:
    hosts = network.hosts
    servers = [
        subprocess.Popen([*host.prefix, sys.executable, "-c", SERVE, host.address], stdout=subprocess.PIPE) for host in hosts
    ]
    for server in servers:
        server.stdout.readline()

    def reaches(sender, receiver):
        prefix = hosts[sender - 1].prefix if sender else ()
        command = [*prefix, sys.executable, "-c", CONNECT, hosts[receiver - 1].address]
        return subprocess.run(command, stderr=subprocess.DEVNULL).returncode == 0

    def seen():
        return "".join(str(int(reaches(s, r))) for s in range(4) for r in (1, 2, 3) if s != r)

    print("whole", seen())
    network.cut(1, 2)
    print("cut 1>2", seen())
    network.cut(1, 2)
    network.join(1, 2)
    print("still", seen())
    network.join(1, 2)
    print("joined", seen())
    network.cut(CLIENTS, 3)
    print("clients>3", seen())
    network.heal()
    print("healed", seen())
    for server in servers:
        server.kill()
"""


@pytest.fixture(scope="module", autouse=True)
def sandbox():
    reason = obstacle()
    if reason:
        pytest.skip(f"no sandbox on this machine: {reason}")


def test_links_are_cut_in_one_direction_and_joined():
    done = sandboxed(SCRIPT)
    # Columns: clients to 1 2 3, then 1 to 2 3, 2 to 1 3, 3 to 1 2. A connection needs both directions.
    assert done.stdout.splitlines() == [
        "whole 111111111",
        "cut 1>2 111010111",
        "still 111010111",
        "joined 111111111",
        "clients>3 110111111",
        "healed 111111111",
    ], done.stderr


def test_another_network_can_follow_in_the_same_sandbox():
    done = sandboxed(SCRIPT + SCRIPT)
    lines = done.stdout.splitlines()
    assert len(lines) == 12 and lines[:6] == lines[6:], done.stderr


def test_a_program_outside_reaches_no_node_and_sends_nothing():
    code = "import socket; socket.create_connection(('127.77.0.1', 7000), timeout=2)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    assert "ConnectionRefusedError" in done.stderr


def test_ctrl_c_leaves_the_network_to_those_who_heal():
    """The signal reaches all processes of the group. The network must stay, for a node that is down is started again in it."""
    code = (
        "import os, signal, subprocess, time\nfrom linearizability.faults.network import Line, Network\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "with Network(1) as network:\n"
        "    network.spoil(1, Line(delay_ms=1))\n"
        "    try:\n        os.killpg(0, signal.SIGINT)\n        time.sleep(60)\n"
        "    except KeyboardInterrupt:\n        time.sleep(0.5)\n"
        "    code = subprocess.run([*network.hosts[0].prefix, 'true']).returncode\n"
        "    code = code or network._relays[1].poll()\n"
        "    print('gone' if code else 'left')"
    )
    done = sandboxed(code, in_a_session=True)
    assert done.stdout == "left\n", done.stderr


def test_nothing_outlives_the_sandbox():
    code = (
        "import os, time\nfrom linearizability.faults.network import Network\n"
        "with Network(1) as network:\n"
        f"    os.spawnvp(os.P_NOWAIT, 'nsenter', [*network.hosts[0].prefix, 'sleep', '{NAP_S}'])\n"
        "    print('built', flush=True)\n    time.sleep(600)"
    )
    with subprocess.Popen(
        [*unshare(), sys.executable, "-c", code], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    ) as outer:
        try:
            assert outer.stdout is not None and outer.stdout.readline() == "built\n"
            await_true(lambda: _sleepers() != [], "the start of the sleepers")
        finally:
            os.kill(outer.pid, signal.SIGKILL)
    await_true(lambda: _sleepers() == [], "their end")


def _sleepers() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if NAP_S.encode() in path.read_bytes().split(b"\0"):
                found.append(str(path))
        except OSError:
            continue
    return found


def test_groups_are_cut_in_both_directions():
    assert sorted(groups_cut([[1], [2, 3]])) == [(1, 2), (1, 3), (2, 1), (3, 1)]
    assert len(groups_cut([[1], [2], [3]])) == 6
    assert groups_cut([[1, 2, 3]]) == []
