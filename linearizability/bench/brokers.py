"""The brokers of a benchmark: started as their own projects start them, and measured by the system's accounting.

Everywhere else Kafka's nodes are made small (`targets/kafka.py`): a heap of 256 MB, one garbage collector thread, and only
the first of the JVM's two compilers. That suits thousands of short runs and would be unfair here, so a benchmark uses the
options of Kafka's start script, and its default threads and buffers.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from linearizability.targets import Target, TargetError, open_target
from linearizability.targets.cluster import ClusterTarget

TICKS_PER_S = os.sysconf("SC_CLK_TCK")

DEFAULT_HEAP = ("-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
"""The options of Kafka's own start script."""

DEFAULT_BROKER = {
    "log.cleaner.dedupe.buffer.size": "134217728",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "background.threads": "10",
}
"""Kafka's defaults of the properties that small targets reduce."""


def open_for_bench(
    spec: str,
    folder: Path,
    config: Mapping[str, str] | None = None,
    nodes: int | None = None,
    protocol: str = "PLAINTEXT",
) -> ClusterTarget:
    """The target, not yet started; Kafka with its default memory, compilers and threads. Errors: TargetError."""
    from linearizability.targets.kafka import KafkaCluster

    target: Target = open_target(spec, folder=folder, config=config, nodes=nodes, protocol=protocol)
    if not isinstance(target, ClusterTarget):
        raise TargetError(f"{spec}: a benchmark needs the brokers' processes; use reference or kafka:VERSION")
    if isinstance(target, KafkaCluster):
        target.jvm = DEFAULT_HEAP
        target.given = DEFAULT_BROKER | target.given
    return target


def process_ids(target: ClusterTarget) -> list[int]:
    """The pids of all nodes. Errors: TargetError where one does not run."""
    processes = [target.member(node.id).process for node in target.nodes]
    ended = [process for process in processes if process.pid is None]
    if ended:
        ends = "".join(f"\n{process.name}: its log ends:\n{process.tail()}" for process in ended)
        raise TargetError(f"{target.spec}: {len(ended)} of {len(processes)} nodes do not run{ends}")
    return [process.pid for process in processes if process.pid is not None]


def cpu_seconds(pid: int) -> float:
    """User and system CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def cluster_cpu_seconds(target: ClusterTarget) -> float:
    """User and system CPU seconds of all nodes together."""
    return sum(map(cpu_seconds, process_ids(target)))


def resident_mb(pid: int) -> float:
    """The resident memory of a process, in MiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def cluster_resident_mb(target: ClusterTarget) -> float:
    """The resident memory of all nodes together, in MiB."""
    return sum(map(resident_mb, process_ids(target)))


def descriptors(pid: int) -> int:
    """The number of open files and sockets of a process."""
    return len([*Path(f"/proc/{pid}/fd").iterdir()])
