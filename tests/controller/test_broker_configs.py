"""Settings of brokers that change while they run: which are accepted, for which brokers, and where a value comes from.

The expectations are what Apache Kafka 4.3.1 answered and described, but for what is marked as this broker's own.
"""

from __future__ import annotations

import pytest

from reference.controller.broker_configs import validate_broker_configs
from reference.controller.configs import Configuration
from reference.controller.image import BROKER_RESOURCE, MetadataImage
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import NodeId

ONE, ALL = True, False
DYNAMIC, EVERYWHERE, FILE, DEFAULT = 2, 3, 4, 5


@pytest.mark.parametrize(
    ("name", "value", "for_one"),
    [
        ("background.threads", "5", ONE), ("background.threads", "5", ALL), ("log.retention.ms", "1000000", ALL),
        ("leader.replication.throttled.rate", "1000", ONE), ("follower.replication.throttled.rate", "0", ALL),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "1000", ONE), ("unknown.name", "x", ALL), ("retention.ms", "5", ONE),
        ("listener.name.plaintext.max.connections", "9", ALL), ("max.connections", "10", ALL), ("cordoned.log.dirs", "", ONE),
    ],
)  # fmt: skip
def test_settings_that_are_accepted(name: str, value: str, for_one: bool) -> None:
    validate_broker_configs({name: value}, for_one)


def test_an_address_may_have_connections_where_others_may_have_none() -> None:
    validate_broker_configs({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"}, ONE)


FOR_ONE_ONLY = "Cannot update these configs at default cluster level, broker id must be specified"
BY_LISTENER = "These security configs can be dynamically updated only per-listener using the listener prefix"
OURS = "This broker cannot change these configs while it runs"


@pytest.mark.parametrize(
    ("name", "value", "for_one", "sentence"),
    [
        ("num.partitions", "2", ONE, "Cannot update these configs dynamically: [num.partitions]"),
        ("log.retention.hours", "1", ALL, "Cannot update these configs dynamically: [log.retention.hours]"),
        ("background.threads", "0", ONE, "Invalid value 0 for configuration background.threads"),
        ("follower.replication.throttled.rate", "-1", ONE, "Invalid value -1 for configuration follower.replication"),
        ("listeners", "PLAINTEXT://:1", ALL, f"{FOR_ONE_ONLY}: [listeners]"),
        ("ssl.keystore.location", "/x", ONE, f"{BY_LISTENER}: [ssl.keystore.location]"),
        ("listener.name.a.ssl.keystore.location", "/x", ALL, f"{FOR_ONE_ONLY}: [listener.name.a.ssl.keystore.location]"),
        ("listener.name.a.ssl.keystore.location", "/x", ONE, OURS), ("listeners", "PLAINTEXT://:1", ONE, OURS),
        ("sasl.jaas.config", "x", ONE, OURS), ("max.connections", "0", ALL, "Invalid max.connections 0"),
        ("max.connection.creation.rate", " 0", ONE, "Invalid max.connection.creation.rate 0"),
        ("listener.name.a.max.connections", "0", ALL, "Invalid max.connections 0"),
        ("max.connections.per.ip", "0", ALL, "max.connections.per.ip can be set to zero only if max.connections.per.ip.overr"),
    ],
)  # fmt: skip
def test_settings_that_are_refused(name: str, value: str, for_one: bool, sentence: str) -> None:
    with pytest.raises(KafkaError) as refused:
        validate_broker_configs({name: value}, for_one)
    assert refused.value.code is ErrorCode.INVALID_REQUEST and (refused.value.message or "").startswith(sentence)


def test_kerberos_settings_are_taken_as_by_a_kafka_without_gssapi() -> None:
    """librdkafka's own test 0081 changes one."""
    validate_broker_configs({"sasl.kerberos.min.time.before.relogin": "58000"}, ONE)


def configured(one: dict[str, str], every: dict[str, str], file: dict[str, str]) -> Configuration:
    image = MetadataImage()
    image.configs[BROKER_RESOURCE, "1"] = one
    image.configs[BROKER_RESOURCE, ""] = every
    return Configuration(NodeId(1), file, image)


def test_a_setting_names_all_places_that_it_could_come_from() -> None:
    configuration = configured(
        {"background.threads": "5", "listener.name.a.max.connections": "9"},
        {"background.threads": "6", "log.retention.ms": "1000", "max.connections": "1000", "unknown.name": "x"},
        {"background.threads": "4", "log.retention.hours": "2"},
    )
    threads = [("background.threads", value, source) for value, source in (("5", 2), ("6", 3), ("4", 4), ("10", 5))]
    assert configuration.broker_setting("background.threads").synonyms == tuple(threads)
    assert configuration.broker_setting("log.retention.ms").synonyms == (
        ("log.retention.ms", "1000", EVERYWHERE),
        ("log.retention.hours", "2", FILE),
        ("log.retention.hours", "168", DEFAULT),
    )
    assert configuration.broker_setting("listener.name.a.max.connections").synonyms == (
        ("listener.name.a.max.connections", "9", DYNAMIC),
        ("max.connections", "1000", EVERYWHERE),
        ("max.connections", "2147483647", DEFAULT),
    )
    assert "unknown.name" in [each.name for each in configuration.broker_settings()]
    assert {each.name: each.synonyms for each in configuration.default_broker_settings()}["max.connections"] == (
        ("max.connections", "1000", EVERYWHERE),
    )


def test_a_value_given_under_another_name_is_no_synonym_of_the_setting() -> None:
    configuration = configured({}, {}, {"log.retention.hours": "2"})
    assert configuration.broker_setting("log.retention.ms").synonyms == ()
    assert configuration.broker_setting("log.retention.ms").source == DEFAULT
    assert configuration.broker_setting("log.retention.hours").synonyms[0] == ("log.retention.hours", "2", FILE)
