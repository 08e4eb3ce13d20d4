"""How many connections a node takes, and by whose address."""

from __future__ import annotations

import pytest

from reference.controller.broker_configs import connections_by_address
from reference.controller.config_definition import InvalidConfig
from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.protocol.addresses import host_of
from reference.protocol.primitives import NodeId
from reference.runtime.connection_limits import ConnectionLimits


@pytest.mark.parametrize(
    ("file", "setting"),
    [
        ({"max.connections": "2"}, "max.connections"),
        ({"max.connections.per.ip": "2"}, "max.connections.per.ip"),
        ({"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "192.0.2.1:2"}, "max.connections.per.ip"),
        ({"listener.name.out.max.connections": "2"}, "listener.name.out.max.connections"),
    ],
)
def test_a_connection_too_many_is_refused_by_the_settings_name(file: dict[str, str], setting: str) -> None:
    limits = ConnectionLimits(Configuration(NodeId(1), file, MetadataImage()))
    for _ in range(2):
        assert limits.refuses("OUT", "192.0.2.1") is None
        limits.opened("OUT", "192.0.2.1")
    assert limits.refuses("OUT", "192.0.2.1") == setting
    limits.closed("OUT", "192.0.2.1")
    assert limits.refuses("OUT", "192.0.2.1") is None


def test_the_limit_of_one_address_is_not_that_of_another() -> None:
    limits = ConnectionLimits(Configuration(NodeId(1), {"max.connections.per.ip": "1"}, MetadataImage()))
    limits.opened("OUT", "192.0.2.1")
    assert limits.refuses("OUT", "192.0.2.1") and not limits.refuses("OUT", "192.0.2.2")


@pytest.mark.parametrize("text", ["a", "localhost:1", "127.0.0.1:x", ":1"])
def test_an_override_that_is_none_is_named(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"max\.connections\.per\.ip\.overrides"):
        connections_by_address(text)


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a:0:1", "2001:db8:0:0:0:a:0:1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_an_address_is_written_as_java_writes_it(address: str, host: str) -> None:
    assert host_of(address) == host
