"""Configurations of single consumer groups. (CGH-31)"""

import pytest

from reference.controller.configs import (
    DEFAULT,
    DELETE,
    DYNAMIC_GROUP,
    SET,
    STATIC_BROKER,
    Alteration,
    Configuration,
    alter_configs,
)
from reference.controller.group_configs import GROUP_RESOURCE, HEARTBEAT_INTERVAL, SESSION_TIMEOUT, check_bounds
from reference.controller.image import MetadataImage
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import NodeId


def altered(image: MetadataImage, *changes: Alteration, group: str = "g") -> None:
    for record in alter_configs(image, GROUP_RESOURCE, group, changes):
        image.apply(record)


def test_a_group_s_own_value_is_the_strongest() -> None:
    image = MetadataImage()
    configuration = Configuration(NodeId(1), {"group.consumer.session.timeout.ms": "50000"}, image)
    assert configuration.group_integer("g", SESSION_TIMEOUT) == 50_000
    assert configuration.group_setting("g", SESSION_TIMEOUT).source == STATIC_BROKER
    assert configuration.group_setting("g", HEARTBEAT_INTERVAL).source == DEFAULT
    altered(image, Alteration(SESSION_TIMEOUT, SET, "55000"))
    assert configuration.group_integer("g", SESSION_TIMEOUT) == 55_000
    assert configuration.group_setting("g", SESSION_TIMEOUT).source == DYNAMIC_GROUP
    assert configuration.group_integer("other", SESSION_TIMEOUT) == 50_000
    altered(image, Alteration(SESSION_TIMEOUT, DELETE, None))
    assert configuration.group_integer("g", SESSION_TIMEOUT) == 50_000


@pytest.mark.parametrize(
    ("group", "name", "value", "code"),
    [
        ("g", "consumer.session.timeout", "50000", ErrorCode.INVALID_CONFIG),
        ("g", "retention.ms", "50000", ErrorCode.INVALID_CONFIG),
        ("g", SESSION_TIMEOUT, "long", ErrorCode.INVALID_CONFIG),
        ("g", SESSION_TIMEOUT, "0", ErrorCode.INVALID_CONFIG),
        ("", SESSION_TIMEOUT, "50000", ErrorCode.INVALID_REQUEST),
    ],
)
def test_settings_that_are_refused(group: str, name: str, value: str, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        alter_configs(MetadataImage(), GROUP_RESOURCE, group, [Alteration(name, SET, value)])
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("configs", "is_allowed"),
    [
        ({}, True),
        ({SESSION_TIMEOUT: "45000", HEARTBEAT_INTERVAL: "15000"}, True),
        ({SESSION_TIMEOUT: "44999"}, False),
        ({SESSION_TIMEOUT: "60001"}, False),
        ({HEARTBEAT_INTERVAL: "4999"}, False),
        ({HEARTBEAT_INTERVAL: "15001"}, False),
        ({"consumer.assignment.interval.ms": "0"}, True),
        ({"consumer.assignment.interval.ms": "15001"}, False),
    ],
)
def test_the_broker_s_bounds(configs: dict[str, str], is_allowed: bool) -> None:
    broker = Configuration(NodeId(1), {}, MetadataImage())
    if is_allowed:
        check_bounds(configs, broker.integer)
        return
    with pytest.raises(KafkaError) as refused:
        check_bounds(configs, broker.integer)
    assert refused.value.code == ErrorCode.INVALID_CONFIG


def test_a_session_outlasts_a_heartbeat() -> None:
    broker = Configuration(NodeId(1), {"group.consumer.max.heartbeat.interval.ms": "60000"}, MetadataImage())
    with pytest.raises(KafkaError):
        check_bounds({HEARTBEAT_INTERVAL: "45000"}, broker.integer)
