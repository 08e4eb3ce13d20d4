"""franz-go's fake cluster, built from its Go module with a small program of ours (kfake/main.go)."""

import hashlib
import shutil
from pathlib import Path
from typing import Any

from linearizability.targets.strangers.fetching import cached, run
from linearizability.targets.strangers.server import Server
from linearizability.targets.target import TargetError

SOURCE = Path(__file__).parent / "kfake"
HONOURED = {
    "auto.create.topics.enable", "num.partitions", "compression.type", "connections.max.reauth.ms",
    "default.replication.factor", "fetch.max.bytes", "group.consumer.heartbeat.interval.ms",
    "group.consumer.session.timeout.ms", "group.max.session.timeout.ms", "group.max.size", "group.min.session.timeout.ms",
    "log.cleaner.backoff.ms", "log.message.timestamp.type", "log.retention.bytes", "log.retention.ms", "log.roll.ms",
    "log.segment.bytes", "max.incremental.fetch.session.cache.slots", "message.max.bytes", "min.insync.replicas",
    "offsets.retention.check.interval.ms", "offsets.retention.minutes", "transaction.max.timeout.ms",
    "transactional.id.expiration.ms",
}  # fmt: skip
"""The broker properties that kfake honours. It stores and describes any other one too, without effect."""
NAMED_OTHERWISE = {"log.retention.check.interval.ms": "log.cleaner.backoff.ms"}
"""Kafka's name -> kfake's: it compacts and removes in one pass, `compactAll`."""
HELD = {("auto.leader.rebalance.enable", "false")}
"""Properties that hold by default: kfake never moves a leader by itself."""


class Kfake(Server):
    """`kfake[:NODES]`. It stores its data on disk, so that a restart keeps them, as far as kfake does."""

    software = "kfake"
    version = "v0.0.0-20260918054303-01f206a7e32c"
    """The version in kfake/go.mod."""
    most_nodes = 9
    binary = Path()

    def __init__(self, spec: str, **more: Any) -> None:
        super().__init__(spec, **more)
        known = HONOURED | NAMED_OTHERWISE.keys()
        self.unknown_config = tuple(
            name for name, value in self.given.items() if name not in known and (name, value) not in HELD
        )

    def prepare(self) -> None:
        sources = sorted(SOURCE.iterdir())
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
        self.binary = cached(f"kfake-{digest}", _build)

    def command(self) -> list[str | Path]:
        named = {NAMED_OTHERWISE[name]: value for name, value in self.given.items() if name in NAMED_OTHERWISE}
        named |= {name: value for name, value in self.given.items() if name in HONOURED}
        configs = [f"-config={name}={value}" for name, value in named.items()]
        return [self.binary, f"-ports={','.join(map(str, self.ports))}", f"-data={self.data}", *configs]


def _build(target: Path) -> None:
    if shutil.which("go") is None:
        raise TargetError("the target kfake is built with Go 1.26 or newer, and there is no `go` on the PATH")
    run(["go", "build", "-C", str(SOURCE), "-mod=readonly", "-trimpath", "-o", str(target), "."], target.parent)
