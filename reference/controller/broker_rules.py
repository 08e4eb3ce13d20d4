"""Rules for a broker's settings together; the table of names has the rules for each setting.

A file and the result of a dynamic change follow the same rules. A change is also checked for whether a running broker can apply
it. Settings of parts that are not implemented here (share groups, Streams groups, tiered storage) are checked too, so that a
file that Kafka refuses is refused here.
Source: kafka.server.KafkaConfig.validateValues; GroupCoordinatorConfig, ShareGroupConfig; the `validateReconfiguration` of
DynamicThreadPool, LogCleaner, DataPlaneAcceptor, DynamicLogConfig, DynamicRemoteLogConfig and DynamicMetricsReporters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from reference.controller.broker_configs import PER_ADDRESS, PER_IP, SYNONYMS, base_name
from reference.controller.config_table import BROKER

CORDONED, ALL_DIRECTORIES = "cordoned.log.dirs", "*"
FIRST_WITH_CORDONS = 30
"""The level of metadata.version, 4.3-IV0, whose records have cordoned log directories (KIP-1066)."""
REPORTERS = "metric.reporters"
SERVED_REPORTERS = ("org.apache.kafka.common.metrics.JmxReporter",)
"""Kafka's default, which reports measurements over JMX; this broker has none."""
UNLIMITED, AS_RETENTION = -1, -2
"""Retentions without a limit, and local retentions like the whole one."""
BYTES_OF_A_CLEANER = 1 << 20
NO_COMPRESSION, MOST_COMPRESSION = 0, 4
"""The first and the last id of a codec."""

Value = Callable[[str], Any]
"""Returns the effective value of a name."""
Values = Mapping[str, str]
"""Names -> texts, merged from all sources."""


def _bounded(kind: str, *names: str) -> list[tuple[str, str]]:
    """The pairs of (lower, upper) names for each of a group's settings and its min and max settings."""
    pairs: list[tuple[str, str]] = []
    for name in names:
        own, lowest, highest = (f"group.{kind}.{bound}{name}" for bound in ("", "min.", "max."))
        pairs += [(lowest, highest), (lowest, own), (own, highest)]
    return pairs


TIMES = ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms")
AT_MOST: list[tuple[str, str]] = [
    *(pair for kind in ("consumer", "share", "streams") for pair in _bounded(kind, *TIMES)),
    ("group.share.delivery.count.limit", "group.share.max.delivery.count.limit"),
    ("group.share.min.delivery.count.limit", "group.share.delivery.count.limit"),
    ("group.share.partition.max.record.locks", "group.share.max.partition.max.record.locks"),
    ("group.share.min.partition.max.record.locks", "group.share.partition.max.record.locks"),
    ("group.share.min.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"),
    ("group.share.max.size", "group.share.max.share.sessions"),
    ("group.streams.num.standby.replicas", "group.streams.max.standby.replicas"),
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
]
"""The first is at most the second."""

LESS = [(f"group.{kind}.{TIMES[0]}", f"group.{kind}.{TIMES[1]}") for kind in ("consumer", "share", "streams")]
"""The first is less than the second."""

NETWORK_THREADS = "num.network.threads"
RESIZED = (
    "background.threads", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir",
    "num.replica.fetchers", "log.cleaner.threads", "remote.log.reader.threads", "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size", "remote.log.manager.follower.thread.pool.size",
)  # fmt: skip
"""Numbers of threads: a change may at most double or halve the present number."""

LOCAL_RETENTIONS = (
    ("log.local.retention.ms", "log.retention.ms"),
    ("log.local.retention.bytes", "log.retention.bytes"),
)
RETENTION = "log.retention.ms"
NEVER_EMPTY = frozenset({
    "advertised.listeners", "controller.listener.names", "group.consumer.assignors", "group.coordinator.rebalance.protocols",
    "inter.broker.listener.name", "log.dir", "remote.log.metadata.manager.class.name",
    "remote.log.metadata.manager.impl.prefix", "remote.log.metadata.manager.listener.name",
    "remote.log.storage.manager.class.name", "remote.log.storage.manager.impl.prefix",
    "sasl.oauthbearer.assertion.algorithm",
})  # fmt: skip
"""Names that must have a value if a file sets them; settings of type `class` are like these."""
CODECS = ("offsets.topic.compression.codec", "share.coordinator.state.topic.compression.codec")
_UNIT_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}


def values_of(texts: Values) -> Value:
    """Returns the values of these texts, or else Kafka's defaults. The log's times use the synonym with precedence, in
    milliseconds.

    Errors: InvalidConfig.
    """

    def value(name: str) -> Any:
        for each in SYNONYMS.get(name, (name,)):
            definition = BROKER[each]
            text = texts.get(each, definition.default)
            if text is not None:
                found = definition.parse(each, text)
                if each != name and isinstance(found, int):
                    found *= _UNIT_MS.get(each.rpartition(".")[2], 1)
                return UNLIMITED if name == RETENTION and isinstance(found, int) and found < 0 else found
        return None

    return value


def refused_file(texts: Values, directories: Sequence[str]) -> str | None:
    """The reason why a file's settings are invalid together; None if they are valid. Errors: InvalidConfig."""
    for name, text in texts.items():
        if not text.strip() and name in BROKER and (name in NEVER_EMPTY or BROKER[name].type == "class"):
            return f"{name} must not be empty"
    if texts.get("broker.id", texts.get("node.id")) != texts.get("node.id", texts.get("broker.id")):
        return "node.id and broker.id are both set: they must be the same"
    return contradiction(texts) or refused_cordon(texts, directories)


def contradiction(texts: Values) -> str | None:
    """The first contradiction between settings; None if there is none. Errors: InvalidConfig."""
    return next(_contradictions(values_of(texts), texts), None)


def _contradictions(value: Value, texts: Values) -> Iterator[str]:
    for lower, upper in AT_MOST:
        if value(lower) > value(upper):
            yield f"{lower}={value(lower)} must be less than or equal to {upper}={value(upper)}"
    for lower, upper in LESS:
        if value(lower) >= value(upper):
            yield f"{lower}={value(lower)} must be less than {upper}={value(upper)}"
    if value("log.roll.ms") < 1:
        yield "log.roll.ms must be greater than or equal to 1"
    if value("log.roll.jitter.ms") < 0:
        yield "log.roll.jitter.ms must be greater than or equal to 0"
    if value(RETENTION) == 0:
        yield f"{RETENTION} must be unlimited (-1) or, greater than or equal to 1"
    if "classic" not in value("group.coordinator.rebalance.protocols"):
        yield "group.coordinator.rebalance.protocols: Disabling the 'classic' protocol is not supported"
    if value("group.share.assignors") != ("simple",):
        yield "group.share.assignors must be the one assignor that there is, simple"
    cleaners = value("log.cleaner.threads")
    if cleaners < 1 or value("log.cleaner.dedupe.buffer.size") // cleaners <= BYTES_OF_A_CLEANER:
        yield "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread, and log.cleaner.threads at least 1"
    if 0 < value("queued.max.request.bytes") < value("socket.request.max.bytes"):
        yield "queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
    if value(PER_IP) == 0 and not texts.get(PER_ADDRESS, "").strip():
        yield f"{PER_IP} can be set to zero only if {PER_ADDRESS} property is set."
    failed, idle = "connection.failed.authentication.delay.ms", "connections.max.idle.ms"
    if 0 <= value(idle) <= value(failed):
        yield f"{failed}={value(failed)} should always be less than {idle}={value(idle)}"
    for name in CODECS:
        if not NO_COMPRESSION <= value(name) <= MOST_COMPRESSION:
            yield f"{name}: Unknown compression type id: {value(name)}"
    if (strange := [each for each in value(REPORTERS) if each not in SERVED_REPORTERS]) != []:
        yield f"{REPORTERS}={','.join(strange)}: {', '.join(SERVED_REPORTERS)} alone can be served"


def refused_cordon(texts: Values, directories: Sequence[str]) -> str | None:
    """The reason why cordoned directories are invalid: all must be the broker's own, or `*` alone (KIP-1066). None if they are
    valid."""
    cordoned: Sequence[str] = values_of(texts)(CORDONED)
    if ALL_DIRECTORIES in cordoned:
        alone = len(cordoned) == 1
        return None if alone else f"When {CORDONED} is set to {ALL_DIRECTORIES}, it must not contain other values"
    unknown = [each for each in cordoned if each not in directories]
    if unknown:
        return (
            f"All entries in {CORDONED} must be present in log.dirs or log.dir. Missing entries: {', '.join(unknown)}"
        )
    return None


def refused_change(before: Values, after: Values, directories: Sequence[str]) -> str | None:
    """The reason why a running broker refuses a change of its settings; None if it can apply it. Errors: InvalidConfig."""
    return contradiction(after) or refused_cordon(after, directories) or next(_not_followed(before, after), None)


def _threads(value: Value, texts: Values, name: str) -> int:
    """The number of threads for a name: the listener's own setting, or else the one of all listeners."""
    return BROKER[NETWORK_THREADS].parse(name, texts[name]) if name in texts else value(base_name(name))  # type: ignore[return-value]


def _not_followed(before: Values, after: Values) -> Iterator[str]:
    old, new = values_of(before), values_of(after)
    for name in (*RESIZED, *(each for each in after if each.endswith(f".{NETWORK_THREADS}"))):
        runs, wanted = _threads(old, before, name), _threads(new, after, name)
        said = f"Dynamic thread count update validation failed for {name}={wanted}"
        if wanted < runs // 2:
            yield f"{said}, value should be at least half the current value {runs}"
        if wanted > runs * 2:
            yield f"{said}, value should not be greater than double the current value {runs}"
    if not any(before.get(name) != after.get(name) for name in before.keys() | after.keys() if name.startswith("log.")):
        return
    for local, whole in LOCAL_RETENTIONS:
        kept, kept_here = new(whole), new(local)
        if kept > UNLIMITED and kept_here != AS_RETENTION and (kept_here == UNLIMITED or kept_here > kept):
            yield f"{local}={kept_here}: Value must not be more than {whole} property value: {kept}"
