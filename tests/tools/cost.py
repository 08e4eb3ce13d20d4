"""Counts what an acknowledged record costs three nodes: instructions and system calls, which do not depend on the machine's load.

    python -m tests.tools.cost [--records N] [--json FILE]
    python -m tests.tools.cost --in-process [--records N]

One record of 100 B a request, one request at a time, RF 3, acks=all, min.insync.replicas=2. Each node runs under Valgrind's callgrind,
which counts the instructions of the process, without those of system calls, between the first request and the last response. The
instructions of an idle node in the same time are subtracted. Then the same nodes, without Valgrind, are loaded under `strace -c`.

The rows are those of the leader, and of the two followers together:

    instructions    thousands per record
    receives        recv, recvfrom, recvmsg: requests and responses, and tries that found nothing
    sends           send, sendto, sendmsg, writev, sendfile: responses and requests; a follower's are its fetches
    wake-ups        epoll_wait
    reads, writes   pread64, pwrite64, pwritev, write
    other           all other system calls

With --in-process three nodes run in one process, without sockets, on simulated disks (`tests.tools.way`): the instructions of the
core, with the client's share, in half a minute on any machine. The other way needs a machine that is not too busy: a node that
does not answer within 90 seconds ends it.

Needs `valgrind` and `strace` (and the right to trace processes): exits with 3 where one is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from linearizability.bench.load import PRODUCE, PRODUCE_VERSION, check, connect, make_batch, make_topic, produce_body
from linearizability.targets import TargetError
from linearizability.targets.cluster import Member
from linearizability.targets.reference import ReferenceCluster
from reference.protocol.frames import encode_request
from tests.tools.way import Operations

ENGINE_ERROR = 3
NODES = 3
WARM_UP = 100
"""Records before the first that is counted: codecs are compiled, sockets and sessions are open."""
IDLE_S = 5.0
TOOL_TIMEOUT_S = 60.0
PATIENT = {
    "controller.quorum.fetch.timeout.ms": "60000",
    "controller.quorum.election.timeout.ms": "30000",
    "broker.session.timeout.ms": "120000",
    "replica.lag.time.max.ms": "300000",
    "replica.fetch.wait.max.ms": "60000",
    "replica.socket.timeout.ms": "60000",
}
"""Timeouts that no node reaches under Valgrind, which makes it fifty times slower. Idle followers wait long and so fetch seldom;
a loaded follower's fetches do not reach their timeout either."""

GROUPS: dict[str, tuple[str, ...]] = {
    "receives": ("recvfrom", "recvmsg", "recv"),
    "sends": ("sendto", "sendmsg", "send", "writev", "sendfile"),
    "wake-ups": ("epoll_wait", "epoll_pwait"),
    "reads": ("pread64", "preadv"),
    "writes": ("pwrite64", "pwritev", "write"),
}
"""The rows of system calls."""
ROWS = ("instructions", *GROUPS, "other")


class UnderCallgrind(ReferenceCluster):
    """Three nodes whose instructions can be counted."""

    def command(self, member: Member) -> list[str | Path]:
        out = member.folder / "callgrind.out"
        return [
            "valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", *super().command(member)
        ]  # fmt: skip

    def control(self, *words: str) -> None:
        """Send a command to callgrind in every node. Errors: CalledProcessError, TimeoutExpired."""
        for pid in processes(self).values():
            command = ["callgrind_control", *words, str(pid)]
            subprocess.run(command, check=True, capture_output=True, timeout=TOOL_TIMEOUT_S)

    def counted(self, does: Callable[[], None]) -> dict[int, int]:
        """Node -> the instructions that it executes during `does`."""
        files = {member.node.id: set(member.folder.glob("callgrind.out.*")) for member in self.members}
        self.control("-i", "on")
        does()
        self.control("-i", "off")
        self.control("-d")
        found: dict[int, int] = {}
        for member in self.members:
            new = {*member.folder.glob("callgrind.out.*")} - files[member.node.id]
            found[member.node.id] = sum(map(total_of, new))
        return found


def write_under_callgrind(records: int) -> None:
    """Write records in this process, which runs under callgrind; count its instructions from the first record to the last."""
    nodes = Operations()

    def control(*words: str) -> None:
        command = ["callgrind_control", *words, str(os.getpid())]
        subprocess.run(command, check=True, capture_output=True, timeout=TOOL_TIMEOUT_S)

    for _ in range(WARM_UP):
        nodes.write()
    control("-i", "on")
    for _ in range(records):
        nodes.write()
    control("-i", "off")
    control("-d")


def in_process(records: int) -> float:
    """Thousands of instructions of one record on three nodes in one process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "callgrind.out")
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}", sys.executable]
        command += ["-c", f"from tests.tools.cost import write_under_callgrind; write_under_callgrind({records})"]
        subprocess.run(command, check=True, capture_output=True)
        return sum(map(total_of, Path(folder).iterdir())) / records / 1000


def total_of(path: Path) -> int:
    """The total instructions of a callgrind file."""
    found = re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE)
    return int(found[1]) if found is not None else 0


def calls_of(summary: str) -> dict[str, int]:
    """System call -> number of calls, from the table of `strace -c`."""
    lines = [line.split() for line in summary.splitlines()]
    return {
        words[-1]: int(words[3]) for words in lines if len(words) >= 5 and words[3].isdigit() and words[-1] != "total"
    }


def grouped(calls: Mapping[str, int]) -> dict[str, int]:
    """The rows of system calls."""
    rows = {name: sum(calls.get(each, 0) for each in members) for name, members in GROUPS.items()}
    return rows | {"other": sum(calls.values()) - sum(rows.values())}


def processes(cluster: ReferenceCluster) -> dict[int, int]:
    """Node -> its process. Errors: TargetError where one has ended."""
    found = {member.node.id: member.process.pid for member in cluster.members}
    running = {node: pid for node, pid in found.items() if pid is not None}
    if len(running) < NODES:
        raise TargetError("a node has ended")
    return running


class Load:
    """A producer of one record after the other, to the leader of a topic of its own."""

    def __init__(self, cluster: ReferenceCluster) -> None:
        address = make_topic(connect(cluster.bootstrap.split(",")[0]), "cost", replicas=NODES)
        self.leader = next(node.id for node in cluster.nodes if f"{node.host}:{node.port}" == address)
        self._connection = connect(address)
        body = produce_body("cost", make_batch(1, 100), acks=-1)
        self._request = encode_request(PRODUCE, PRODUCE_VERSION, 1, "cost", body)
        self.produce(WARM_UP)

    def produce(self, records: int) -> None:
        """Send records one after the other. Errors: RuntimeError if one is not acknowledged."""
        for _ in range(records):
            self._connection.socket.sendall(self._request)
            check(PRODUCE, PRODUCE_VERSION, self._connection.receive())


def by_role(counts: Mapping[int, float], leader: int) -> dict[str, float]:
    """The leader's count, and the sum of both followers'."""
    return {"leader": counts[leader], "followers": sum(counts.values()) - counts[leader]}


def instructions(folder: Path, records: int) -> dict[str, float]:
    """Role -> thousands of instructions per record."""
    cluster = UnderCallgrind("reference:3", nodes=NODES, folder=folder, config=PATIENT)
    try:
        cluster.open()
        load = Load(cluster)
        idle = cluster.counted(lambda: time.sleep(IDLE_S))
        began = time.monotonic()
        busy = cluster.counted(lambda: load.produce(records))
        seconds = time.monotonic() - began
    finally:
        cluster.close()
    spent = {node: (busy[node] - idle[node] * seconds / IDLE_S) / records / 1000 for node in busy}
    return by_role(spent, load.leader)


def system_calls(folder: Path, records: int) -> dict[str, dict[str, float]]:
    """Row -> role -> system calls per record."""
    cluster = ReferenceCluster("reference:3", nodes=NODES, folder=folder, config=PATIENT)
    try:
        cluster.open()
        load = Load(cluster)
        tracers = {
            node: subprocess.Popen(["strace", "-c", "-f", "-p", str(pid)], stderr=subprocess.PIPE, text=True)
            for node, pid in processes(cluster).items()
        }
        for each in tracers.values():
            assert each.stderr is not None
            each.stderr.readline()  # attached
        load.produce(records)
        counts: dict[int, dict[str, int]] = {}
        for node, each in tracers.items():
            each.send_signal(signal.SIGINT)
            counts[node] = grouped(calls_of(each.communicate(timeout=TOOL_TIMEOUT_S)[1]))
    finally:
        cluster.close()
    return {row: by_role({node: each[row] / records for node, each in counts.items()}, load.leader) for row in ROWS[1:]}


def measure(records: int) -> dict[str, dict[str, float]]:
    """Row -> role -> the cost of one record."""
    with tempfile.TemporaryDirectory() as folder:
        rows = {"instructions": instructions(Path(folder, "callgrind"), records)}
        return rows | system_calls(Path(folder, "strace"), 10 * records)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--records", type=int, default=300, help="counted under Valgrind; ten times as many under strace"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--in-process", action="store_true", help="three nodes in one process, without sockets")
    options = parser.parse_args(arguments)
    if missing := [tool for tool in ("valgrind", "callgrind_control", "strace") if shutil.which(tool) is None]:
        print(f"there is no {missing[0]}", file=sys.stderr)
        return ENGINE_ERROR
    if options.in_process:
        print(f"{in_process(options.records):.0f} thousand instructions per record")
        return 0
    rows = measure(options.records)
    print(f"{'per record':20}{'leader':>12}{'followers':>12}{'all':>12}")
    for name, row in rows.items():
        print(f"{name:20}{row['leader']:12.1f}{row['followers']:12.1f}{sum(row.values()):12.1f}")
    if options.json is not None:
        rounded = {name: {role: round(number, 1) for role, number in row.items()} for name, row in rows.items()}
        options.json.write_text(json.dumps({"records": options.records, "rows": rounded}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
