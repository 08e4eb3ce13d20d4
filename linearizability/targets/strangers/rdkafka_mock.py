"""librdkafka's mock cluster in its own process: this module, run as a program, is that process.

The mock chooses its ports itself and has no storage, so it cannot be started again at the same address: no hook `restart`.
"""

import json
import signal
import sys
from importlib.metadata import version
from pathlib import Path

from linearizability.targets.strangers.server import Server

NODES_FILE = "ports.json"


class RdkafkaMock(Server):
    """`rdkafka-mock[:NODES]`."""

    software = "librdkafka's mock cluster"
    version = f"confluent-kafka {version('confluent-kafka')}"
    most_nodes = 9
    keeps_its_ports = False

    def prepare(self) -> None:
        """Do nothing: the mock is part of confluent-kafka, which the project needs anyway."""

    def command(self) -> list[str | Path]:
        return [sys.executable, "-m", __name__, str(self.size), self._ports_file]

    def listening(self) -> list[int]:
        return json.loads(self._ports_file.read_text()) if self._ports_file.exists() else []

    def revive(self) -> None:
        self._ports_file.unlink(missing_ok=True)
        super().revive()

    @property
    def _ports_file(self) -> Path:
        return self.home / NODES_FILE


def serve(nodes: int, ports_file: Path) -> None:
    """Run a mock cluster until a signal ends the process, and write its ports to the file as soon as they are known."""
    from confluent_kafka import Producer

    producer = Producer({"test.mock.num.brokers": nodes, "topic.metadata.refresh.interval.ms": -1})
    listed = producer.list_topics(timeout=30).brokers
    unfinished = ports_file.with_suffix(".unfinished")
    unfinished.write_text(json.dumps([listed[node].port for node in sorted(listed)]))
    unfinished.rename(ports_file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        signal.pause()


if __name__ == "__main__":
    serve(int(sys.argv[1]), Path(sys.argv[2]))
