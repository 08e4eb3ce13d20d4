"""crabka, a broker in Rust with its own replication, built from its crate with a small program of ours (crabka/main.rs)."""

import hashlib
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.strangers.fetching import cached, run
from linearizability.targets.target import TargetError, WrongTarget

SOURCES = sorted((Path(__file__).parent / "crabka").iterdir())
VERSION = "0.3.8"
BUILT_WITHIN_S = 3600
"""500 crates take some ten minutes on two idle cores."""
BUILD = {"CARGO_PROFILE_RELEASE_OPT_LEVEL": "1", "CARGO_PROFILE_RELEASE_DEBUG": "0"}
"""Fast enough for the suite, and built in half the time."""
HONOURED = {
    "auto.leader.rebalance.enable", "broker.heartbeat.interval.ms", "broker.rack", "broker.session.timeout.ms",
    "group.consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms", "leader.imbalance.check.interval.seconds",
    "log.cleaner.delete.retention.ms", "log.retention.bytes", "log.retention.ms", "log.roll.ms", "log.segment.bytes",
    "max.incremental.fetch.session.cache.slots", "replica.lag.time.max.ms",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms",
}  # fmt: skip
"""The broker properties that main.rs passes on. crabka supports no other property that requirements set."""


class CrabkaCluster(ClusterTarget):
    """`crabka[:NODES]`: each node is a process, broker and controller, in crabka's own quorum."""

    joins_kafka = False
    binary = Path()

    def __init__(self, spec: str, *, config: Mapping[str, str] | None = None, **more: Any) -> None:
        super().__init__(spec, config=config, **more)
        self.unknown_config = tuple(name for name in self.given if name not in HONOURED)
        self.cluster_id = str(uuid.uuid4())

    @property
    def several(self) -> bool:
        """True for one node, which is light."""
        return self.size == 1 and self.links is None

    def secure(self, protocol: str) -> None:
        raise WrongTarget(f"{self.spec!r} is not secured here")

    def prepare(self) -> None:
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
        self.binary = cached(f"crabka-{digest}", _build)

    def properties(self, member: Member) -> dict[str, str]:
        return self.kraft_properties(member) | {"cluster.uuid": self.cluster_id}

    def format(self, member: Member) -> None:
        member.data.mkdir(parents=True, exist_ok=True)

    def command(self, member: Member) -> list[str | Path]:
        return [self.binary, member.properties_file]

    def environment(self, member: Member) -> dict[str, str]:
        return super().environment(member) | {"RUST_LOG": "info,crabka_broker::network=warn"}

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"software": "crabka", "version": VERSION}


def _build(target: Path) -> None:
    if shutil.which("cargo") is None:
        raise TargetError("the target crabka is built with Rust 1.95 or newer, and there is no `cargo` on the PATH")
    with TemporaryDirectory(dir=target.parent) as folder:
        sources = Path(folder)
        for source in SOURCES:
            shutil.copy(source, sources)
        run(["cargo", "vendor", "--quiet", "vendor"], sources)
        crate, built = sources / "vendor" / "crabka-broker", sources / "built"
        shutil.copyfile(sources / "main.rs", crate / "src" / "bin" / "broker.rs")
        build = [
            "cargo",
            "build",
            "--quiet",
            "--release",
            "--locked",
            "--ignore-rust-version",
            "--bin",
            "crabka-broker",
        ]
        run([*build, "--target-dir", str(built)], crate, within_s=BUILT_WITHIN_S, environment=BUILD)
        shutil.copyfile(built / "release" / "crabka-broker", target)
