"""Broker settings that may change at run time, for which brokers, and under which names (KIP-226, KIP-412).

A setting for all brokers has the empty resource name. A name that Kafka does not know is accepted, as from a file, because it
may be a plugin's. Its value is not reported, because it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from reference.controller.config_definition import Definition, InvalidConfig
from reference.controller.config_table import BROKER
from reference.protocol.addresses import host_of
from reference.protocol.errors import ErrorCode, KafkaError


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


CLUSTER_WIDE = _names(
    """
    background.threads compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    config.providers follower.fetch.last.tiered.offset.enable follower.replication.throttled.rate
    group.consumer.assignment.interval.ms group.coordinator.cached.buffer.max.bytes
    group.share.assignment.interval.ms group.streams.assignment.interval.ms leader.replication.throttled.rate
    log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms
    log.cleaner.threads log.cleanup.policy log.flush.interval.messages log.flush.interval.ms
    log.index.interval.bytes log.index.size.max.bytes log.local.retention.bytes log.local.retention.ms
    log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.message.timestamp.type
    log.preallocate log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes
    log.segment.delete.delay.ms max.connection.creation.rate max.connections max.connections.per.ip
    max.connections.per.ip.overrides message.max.bytes metric.reporters min.insync.replicas num.io.threads
    num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers producer.id.expiration.ms
    remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.follower.thread.pool.size remote.log.reader.threads
    replica.alter.log.dirs.io.max.bytes.per.second share.coordinator.cached.buffer.max.bytes
    transaction.partition.verification.enable unclean.leader.election.enable
    """
)
"""Settings that may be changed for one broker or for all."""

PER_BROKER = _names(
    """
    cordoned.log.dirs listener.security.protocol.map listeners principal.builder.class sasl.enabled.mechanisms
    sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds
    sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    sasl.mechanism.inter.broker.protocol ssl.cipher.suites ssl.client.auth ssl.enabled.protocols
    ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password
    ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm
    ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
    """
)
"""Settings that may be changed for one broker only. Both sets are those of Apache Kafka 4.3.1; a test compares them."""

DYNAMIC = CLUSTER_WIDE | PER_BROKER

THROTTLES = {
    name: Definition("long", None, lowest=0)
    for name in (
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
}
"""Bytes per second. They cannot be set in a file (KIP-73). They are stored and reported, and throttle nothing here."""

FIXED = {"listeners", "listener.security.protocol.map", "principal.builder.class"}
"""Dynamic in Kafka and refused here, like all TLS and SASL settings but Kerberos: a new value would have no effect."""

UNKNOWN = Definition("unknown", None)
PER_IP = "max.connections.per.ip"
PER_ADDRESS = f"{PER_IP}.overrides"

_OF_LISTENER = re.compile(r"listener\.name\.[^.]+\.")
_CLUSTER_WIDE_OF_LISTENER = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})

_LEAST_ONE = frozenset({"max.connections", "max.connection.creation.rate"})
"""0 is allowed in files only: a running broker would accept no more connections, over which it could be changed back."""

_LOG_TIMES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
SYNONYMS = {name: names for names in _LOG_TIMES for name in names} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}
"""Name -> its synonyms, the one that takes precedence first; a name that is not listed has no other synonym."""


def connections_by_address(text: str) -> dict[str, int]:
    """The limits of max.connections.per.ip.overrides: `ADDRESS:COUNT,…`.

    Errors: InvalidConfig, also for a host name, which would have to be resolved here.
    """
    found: dict[str, int] = {}
    for item in text.split(","):
        address, _, count = item.strip().rpartition(":")
        if not item.strip():
            continue
        try:
            found[host_of(address.strip("[]"))] = int(count)
        except ValueError:
            raise InvalidConfig(
                f"Invalid value {item.strip()} for configuration {PER_ADDRESS}: ADDRESS:COUNT is needed"
            ) from None
    return found


def base_name(name: str) -> str:
    """The name without its listener prefix: `listener.name.x.max.connections` is a max.connections."""
    return _OF_LISTENER.sub("", name)


def synonyms_of(name: str) -> tuple[str, ...]:
    """The names of a setting in order of precedence. The own name comes first, except for the log's times."""
    base = base_name(name)
    return SYNONYMS.get(name) or ((name,) if base == name else (name, base))


def definition_of(name: str) -> Definition:
    """The definition of a broker setting; also of a throttle, which no file has, and of an unknown name."""
    base = base_name(name)
    return BROKER.get(base) or THROTTLES.get(base) or UNKNOWN


def validate_broker_configs(configs: Mapping[str, str | None], for_one_broker: bool) -> None:
    """Refuse settings that cannot change at run time. Errors: KafkaError INVALID_REQUEST with Kafka's messages."""
    fixed = [name for name in configs if _known_name(name) in BROKER and _known_name(name) not in DYNAMIC]
    _refuse_all(fixed, "Cannot update these configs dynamically")
    _refuse_all(
        [name for name in configs if name in DYNAMIC and name.startswith("ssl.")],
        "These security configs can be dynamically updated only per-listener using the listener prefix",
    )
    for name, text in configs.items():
        if text is not None:
            try:
                definition_of(name).parse(name, text)
                if base_name(name) == PER_ADDRESS:
                    connections_by_address(text)
                if base_name(name) in _LEAST_ONE and int(text) == 0:
                    raise InvalidConfig(f"Invalid {base_name(name)} {text.strip()}")
            except InvalidConfig as error:
                raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error
    if configs.get(PER_IP) and int(configs[PER_IP] or "1") == 0 and not (configs.get(PER_ADDRESS) or "").strip():
        # Kafka also looks for the overrides in the broker's file.
        why = f"{PER_IP} can be set to zero only if {PER_ADDRESS} property is set."
        raise KafkaError(ErrorCode.INVALID_REQUEST, why)
    if not for_one_broker:
        _refuse_all(
            [name for name in configs if name in PER_BROKER or _is_one_listeners(name)],
            "Cannot update these configs at default cluster level, broker id must be specified",
        )
    _refuse_all([name for name in configs if _is_fixed(name)], "This broker cannot change these configs while it runs")


def _is_fixed(name: str) -> bool:
    base = base_name(name)
    # Kerberos settings have no effect, here as in a Kafka without GSSAPI listeners.
    return base in FIXED or (base.startswith(("ssl.", "sasl.")) and not base.startswith("sasl.kerberos."))


def _known_name(name: str) -> str:
    """The name in the table, without a listener and a mechanism, as in `scram-sha-256.sasl.jaas.config`."""
    base = base_name(name)
    return base if base == name or base in BROKER else base.partition(".")[2]


def _is_one_listeners(name: str) -> bool:
    base = base_name(name)
    return base != name and base not in _CLUSTER_WIDE_OF_LISTENER


def _refuse_all(names: list[str], why: str) -> None:
    if names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{why}: [{', '.join(sorted(names))}]")
