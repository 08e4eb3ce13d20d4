"""No security setting of Kafka is silently ignored: each is served, or refused by its name.

The names are Kafka's own: `config_table` is compared with those of its jars (tests/controller/test_config_table.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

import reference
from reference.controller.broker_configs import validate_broker_configs
from reference.controller.config_table import BROKER
from reference.protocol.errors import KafkaError
from reference.runtime.configuration import ConfigurationError, check_configuration

OF_SECURITY = re.compile(
    r"(ssl|sasl|security|authorizer|principal|delegation|password|connection|connections|max\.connection\w*|early|(client\.|controller\.)?quota)\..*"
    r"|listener\.security\.protocol\.map|inter\.broker\.listener\.name|(create|alter)\..*\.policy\.class\.name"
)
NAMES = sorted(name for name in BROKER if OF_SECURITY.fullmatch(name))
OTHERS = ["password.encoder.secret", "delegation.token.master.key", "super.users"]
"""Of older releases, and of the authorizer."""

TAKES_ANY_TEXT = "delegation.token.secret.key"
NUMBERS = {"int", "long", "short", "double", "boolean"}
FOREIGN = "x.Foreign"
FOREIGN_NUMBERS = {"boolean": "true", "int": "7", "long": "7", "short": "7", "double": "0.7"}
REFUSED_WITHOUT_NAME = {
    "ssl.keystore.location": "keystore",
    "ssl.keystore.password": "keystore",
    "ssl.truststore.password": "truststore",
}
"""What is named instead, where a store cannot be read."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A node whose every listener has SASL over TLS."""
    folder = tmp_path_factory.mktemp("secrets")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(folder / "own.pem")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = f'{module} required username="a" password="b" user_a="b";'
    return {
        "node.id": "1",
        "process.roles": "broker,controller",
        "listeners": "SASL_SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SASL_SSL",
        "security.inter.broker.protocol": "SASL_SSL",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@127.0.0.1:9093",
        "log.dirs": "data",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "own.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": login,
        "listener.name.controller.plain.sasl.jaas.config": login,
    }


@pytest.fixture(scope="module")
def read() -> frozenset[str]:
    """All string constants in the broker's code, but for the tables of setting names."""
    return frozenset(constants(Path(reference.__file__).parent))


def constants(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.py"):
        if path.name not in ("config_table.py", "broker_configs.py", "security.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def foreign(name: str) -> str:
    """A value that Kafka's table allows, and that nothing here can serve; of numbers any but the default."""
    definition = BROKER.get(name)
    return FOREIGN_NUMBERS.get(definition.type, FOREIGN) if definition else FOREIGN


def test_there_are_names() -> None:
    assert len(NAMES) > 90


def test_the_file_without_foreign_values_is_served(good: dict[str, str]) -> None:
    check_configuration(good, "f")


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_a_setting_of_the_file_is_served_or_refused(good: dict[str, str], read: frozenset[str], name: str) -> None:
    try:
        check_configuration({**good, name: foreign(name)}, "f")
    except ConfigurationError as error:
        assert REFUSED_WITHOUT_NAME.get(name, name) in str(error)
    else:
        assert BROKER[name].type in NUMBERS or name == TAKES_ANY_TEXT, f"{name}={FOREIGN} is taken"
        assert name in read, f"{name} is taken, and nothing reads it"


PER_LISTENER = [name for name in NAMES if name.startswith(("ssl.", "sasl.", "principal.", "connections.max.re"))]


@pytest.mark.parametrize("name", PER_LISTENER)
def test_a_setting_of_one_listener_is_served_or_refused(good: dict[str, str], read: frozenset[str], name: str) -> None:
    own = f"listener.name.sasl_ssl.{name}"
    try:
        check_configuration({**good, own: foreign(name)}, "f")
    except ConfigurationError as error:
        assert REFUSED_WITHOUT_NAME.get(name, name) in str(error)
    else:
        assert BROKER[name].type in NUMBERS, f"{own}={FOREIGN} is taken"
        assert name in read, f"{own} is taken, and nothing reads it"


DYNAMIC_AND_SERVED = {
    "max.connection.creation.rate",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
}


@pytest.mark.parametrize("prefix", ["", "listener.name.sasl_ssl."])
@pytest.mark.parametrize("name", NAMES)
def test_a_setting_that_changes_while_the_broker_runs_is_served_or_refused(name: str, prefix: str) -> None:
    try:
        validate_broker_configs({prefix + name: foreign(name)}, for_one_broker=True)
    except KafkaError as error:
        assert name in (error.message or "")
    else:
        # Without a listener that offers GSSAPI, Kerberos' settings mean nothing, as in Kafka.
        is_kerberos = name.startswith("sasl.kerberos.")
        assert is_kerberos or name in DYNAMIC_AND_SERVED, f"{prefix}{name} is taken while the broker runs"
