"""Settings that a file may have and that change nothing here: those of parts that Kafka has and this broker has not.

The file of a running Kafka must start here, so they are accepted; the log names each as without effect. A setting on which
clients or operators depend is not among them: it is served, or refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference.controller.config_table import BROKER

WITHOUT_EFFECT: dict[str, tuple[str, ...]] = {
    "threads, of which this broker needs no number": (
        "background.threads", "group.coordinator.background.threads", "group.coordinator.threads", "log.cleaner.threads",
        "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir", "num.replica.alter.log.dirs.threads",
        "num.replica.fetchers",
    ),
    "queues and buffers, which have bounds of their own here": (
        "delete.records.purgatory.purge.interval.requests", "fetch.purgatory.purge.interval.requests",
        "group.coordinator.append.linger.ms", "group.coordinator.cached.buffer.max.bytes", "log.cleaner.io.buffer.size",
        "offsets.load.buffer.size", "producer.purgatory.purge.interval.requests", "queued.max.request.bytes",
        "queued.max.requests", "replica.socket.receive.buffer.bytes", "transaction.state.log.load.buffer.size",
        "internal.metadata.max.batch.size.in.bytes", "controller.quorum.append.linger.ms",
    ),
    "how much is compressed, and codecs use their own levels here": (
        "compression.gzip.level", "compression.lz4.level", "compression.zstd.level", "offsets.topic.compression.codec",
    ),
    "waits for other nodes, which are Kafka's defaults here": (
        "replica.socket.timeout.ms", "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
    ),
    "when checkpoints and the metadata log are written, which is as by default here": (
        "internal.metadata.delete.delay.millis", "internal.metadata.log.segment.bytes",
        "log.flush.offset.checkpoint.interval.ms", "log.flush.start.offset.checkpoint.interval.ms",
        "metadata.log.segment.bytes", "metadata.log.segment.ms", "metadata.max.idle.interval.ms",
    ),
    "measurements and telemetry, which tidegauge.metrics.listener has in its own way": (
        "controller.performance.always.log.threshold.ms", "controller.performance.sample.period.ms",
        "kafka.metrics.polling.interval.secs", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
        "telemetry.max.bytes",
    ),
    "throttled replication, and nothing is slowed down here": (
        "alter.log.dirs.replication.quota.window.num", "alter.log.dirs.replication.quota.window.size.seconds",
        "replication.quota.window.num", "replication.quota.window.size.seconds",
    ),
    "tiered storage, which is not served": (
        "follower.fetch.last.tiered.offset.enable", "log.local.retention.bytes", "log.local.retention.ms",
        "remote.fetch.max.wait.ms", "remote.list.offsets.request.timeout.ms", "remote.log.",
    ),
    "share groups and Streams groups, which are not served": (
        "group.share.", "group.streams.", "share.coordinator.", "share.fetch.",
    ),
    "parts that are not finished in Kafka, or a limit of its start": (
        "server.max.startup.time.ms", "unstable.api.versions.enable", "unstable.feature.versions.enable",
    ),
}  # fmt: skip
"""Subject -> names, or prefixes that end in a dot."""


def about(name: str) -> str | None:
    """The subject of a setting without effect; None where it has one."""
    return next((what for what, names in WITHOUT_EFFECT.items() if any(_is(name, each) for each in names)), None)


def _is(name: str, each: str) -> bool:
    return name.startswith(each) if each.endswith(".") else name == each


def without_effect(properties: Mapping[str, str]) -> list[str]:
    """A sentence for each setting that is not Kafka's default and changes nothing."""
    return [
        f"{name} has no effect: it is about {what}"
        for name, value in properties.items()
        if (what := about(name)) is not None and value.strip() != (BROKER[name].default or "")
    ]
