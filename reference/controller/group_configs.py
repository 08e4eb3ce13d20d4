"""A consumer group's own settings (KIP-848), which override the broker's.

A group need not exist to be configured. The names that Apache Kafka 4.3.1 has for share groups and Streams groups are not
supported. Source: org.apache.kafka.coordinator.group.GroupConfig.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from reference.controller.config_definition import Definition
from reference.protocol.errors import ErrorCode, KafkaError

GROUP_RESOURCE = 32
"""The type of configuration resource (org.apache.kafka.common.config.ConfigResource)."""

HEARTBEAT_INTERVAL, SESSION_TIMEOUT = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
ASSIGNMENT_INTERVAL = "consumer.assignment.interval.ms"

GROUP: dict[str, Definition] = {
    ASSIGNMENT_INTERVAL: Definition("int", "1000", lowest=0, synonyms=("group.consumer.assignment.interval.ms",)),
    HEARTBEAT_INTERVAL: Definition("int", "5000", lowest=1, synonyms=("group.consumer.heartbeat.interval.ms",)),
    SESSION_TIMEOUT: Definition("int", "45000", lowest=1, synonyms=("group.consumer.session.timeout.ms",)),
}


def check_bounds(configs: Mapping[str, str], broker: Callable[[str], int]) -> None:
    """Check a group's settings against the broker's bounds, and that the session timeout exceeds the heartbeat interval.

    Errors: KafkaError INVALID_CONFIG.
    """
    for name, text in configs.items():
        if name not in GROUP:
            continue
        kind = name.removeprefix("consumer.")
        lowest, highest = f"group.consumer.min.{kind}", f"group.consumer.max.{kind}"
        if int(text) < broker(lowest):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be greater than or equal to {lowest}")
        if int(text) > broker(highest):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} must be less than or equal to {highest}")
    heartbeat, session = (_value(configs, name, broker) for name in (HEARTBEAT_INTERVAL, SESSION_TIMEOUT))
    if session <= heartbeat:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{SESSION_TIMEOUT} must be greater than {HEARTBEAT_INTERVAL}")


def _value(configs: Mapping[str, str], name: str, broker: Callable[[str], int]) -> int:
    return int(configs[name]) if name in configs else broker(GROUP[name].synonyms[0])
