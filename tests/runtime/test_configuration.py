"""The configuration file: Kafka's names, every wrong line named in one sentence."""

import re
from pathlib import Path
from typing import Any

import pytest

import reference
from reference.controller.broker_rules import AT_MOST
from reference.controller.config_table import BROKER, TOPIC
from reference.node.preferred_replicas import SELECTORS
from reference.node.release import BEFORE_IDS, RELEASE, peers_release_of
from reference.runtime.configuration import (
    ConfigurationError,
    check_configuration,
    load_configuration,
    parse_properties,
    remarks,
)
from reference.runtime.security import ASKS_FOR, OF_BEARERS, SERVED, begins
from reference.runtime.without_effect import about

LIMITED = [name for pair in AT_MOST for name in pair if name.startswith("group.consumer.")]
BY_RULES = {"cordoned.log.dirs", "metric.reporters"}
"""Read by a constant of `broker_rules`."""
GOOD = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "data",
}


@pytest.mark.parametrize("server", ["localhost:9093", "h:9093"])
def test_a_node_that_names_itself_alone_is_the_only_voter(server: str) -> None:
    """As in the `server.properties` of Apache Kafka 4, whose controller listener has no host."""
    itself = {"controller.quorum.bootstrap.servers": server, "listeners": "PLAINTEXT://:1,CONTROLLER://:9093"}
    itself["advertised.listeners"] = "PLAINTEXT://h:1,CONTROLLER://h:9093"
    given = {name: value for name, value in GOOD.items() if name != "controller.quorum.voters"} | itself
    assert check_configuration(given, "f").voters == []


def test_a_node_that_names_other_controllers_asks_them_who_votes() -> None:
    given = {name: value for name, value in GOOD.items() if name != "controller.quorum.voters"}
    given |= {
        "controller.quorum.bootstrap.servers": "localhost:9093, other:9093",
        "listeners": "PLAINTEXT://:1,CONTROLLER://:9093",
    }
    assert check_configuration(given, "f").other_controllers == [("other", 9093)]


def test_a_good_file_is_understood() -> None:
    configuration = check_configuration(GOOD, "f")
    assert [listener.name for listener in configuration.listeners] == ["PLAINTEXT", "CONTROLLER"]
    assert configuration.is_controller_listener("CONTROLLER")
    assert configuration.folder == Path("data").absolute()
    assert configuration.advertised(configuration.listeners[0]).host == "127.0.0.1"


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"tidegauge.log.fromat": "json"}, "f: unknown configuration name 'tidegauge.log.fromat'"),
        ({"node.id": "x"}, "f: Invalid value x for configuration node.id: Not a number of type INT"),
        ({"node.id": "-1"}, "f: Invalid value -1 for configuration node.id: Value must be at least 0"),
        ({"node.id": None}, "f: node.id is missing"),
        ({"process.roles": None}, "f: process.roles is missing"),
        ({"process.roles": "king"}, "f: Invalid value king for configuration process.roles: String must be one of: broker, controller"),
        ({"log.dirs": None}, "f: log.dirs is missing"),
        ({"listeners": "PLAINTEXT:9092"}, "f: listeners: 'PLAINTEXT:9092' is no listener: NAME://HOST:PORT is needed"),
        ({"listeners": "A://h:70000"}, "f: listeners: 'A://h:70000': port 70000 is not between 0 and 65535"),
        ({"listeners": "A://h:1,A://h:2"}, "f: listeners: the name A is used twice"),
        ({"controller.listener.names": "X"}, "f: controller.listener.names: X is not among the listeners PLAINTEXT, CONTROLLER"),
        ({"controller.quorum.voters": "1-h:1"}, "f: controller.quorum.voters: '1-h:1' is no voter: ID@HOST:PORT is needed"),
        ({"controller.quorum.voters": "2@h:1"}, "f: node.id 1 has the role controller, but is not among controller.quorum.voters"),
        ({"controller.quorum.voters": None, "process.roles": "broker"},
         "f: node.id 1 is no controller, and neither controller.quorum.voters nor controller.quorum.bootstrap.servers names one"),
        ({"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "other"},
         "f: controller.quorum.bootstrap.servers: 'other' is not HOST:PORT"),
        ({"log.retention.ms": "soon"}, "f: Invalid value soon for configuration log.retention.ms: Not a number of type LONG"),
        ({"log.segment.bytes": "10"}, "f: Invalid value 10 for configuration log.segment.bytes: Value must be at least 1048576"),
        ({"auto.create.topics.enable": "maybe"}, "f: Invalid value maybe for configuration auto.create.topics.enable: Expected value to be either true or false"),
    ],
)  # fmt: skip
def test_wrong_lines_are_named(change: dict[str, str | None], sentence: str) -> None:
    properties = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(ConfigurationError) as error:
        check_configuration(properties, "f")
    assert str(error.value).startswith(sentence)
    assert "\n" not in str(error.value)


def test_properties_are_javas() -> None:
    text = "# comment\n! comment\n\n a = 1 \nb=x=y\nc=one,\\\n   two\n"
    assert parse_properties(text, "f") == {"a": "1", "b": "x=y", "c": "one,two"}


@pytest.mark.parametrize(
    ("text", "sentence"), [("a\n", "f, line 1: 'a' is not NAME=VALUE"), ("a=1\na=2", "f, line 2: a is set twice")]
)
def test_lines_that_are_no_properties_are_named(text: str, sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        parse_properties(text, "f")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_configuration(tmp_path / "none.properties")


def test_names_that_mean_nothing_here_are_taken_and_named() -> None:
    """Kafka 4.3.1 starts with each of them; the topic's name and ZooKeeper's are reported as without effect."""
    given = {"num.network.threads": "3", "ssl.client.auth": "none", "zookeeper.connect": "z", "retention.ms": "1"}
    configuration = check_configuration({**GOOD, **given}, "f")
    assert remarks(configuration) == [
        "unknown configuration name 'zookeeper.connect': it has no effect",
        "unknown configuration name 'retention.ms': it has no effect; for topics' default the broker's name is log.retention.ms",
    ]


def test_each_setting_is_read_refused_or_named_as_one_without_effect() -> None:
    """Names that begin with one of `parts` are put together in the code, and count as read."""
    tables = {"broker_configs.py", "broker_rules.py", "config_table.py", "security.py", "without_effect.py"}
    sources = [path for path in Path(reference.__file__).parent.rglob("*.py") if path.name not in tables]
    read = {name for path in sources for name in re.findall(r'"([a-z][a-z.]+)"', path.read_text())}
    topics = {name for definition in TOPIC.values() for name in definition.synonyms}
    parts = ("log.cleaner.", "offsets.topic.", "transaction.state.log.", "group.consumer.m")
    for name in BROKER:
        is_read = name in read | topics or name.startswith(parts) or name in SERVED | OF_BEARERS | {*LIMITED}
        is_refused = any(begins(name, start) for start in ASKS_FOR) or name in BY_RULES
        assert is_read or is_refused or about(name), name
        assert not (about(name) and name in read), name


def test_settings_without_effect_are_named() -> None:
    given = {"num.io.threads": "9", "num.network.threads": "3", "group.share.max.size": "7"}
    assert [remark.partition(" ")[0] for remark in remarks(check_configuration({**GOOD, **given}, "f"))] == [
        "num.io.threads",
        "group.share.max.size",
    ]


def test_without_process_roles_zookeeper_coordinates() -> None:
    left = ("process.roles", "controller.quorum.voters", "controller.listener.names")
    given = {name: value for name, value in GOOD.items() if name not in left}
    given |= {"zookeeper.connect": "z:2181/k", "listeners": "PLAINTEXT://127.0.0.1:0"}
    configuration = check_configuration(given, "f")
    assert configuration.zookeeper == "z:2181/k" and configuration.process_roles == ["broker"]
    assert peers_release_of(configuration.properties) == "3.9.2" and remarks(configuration) == []
    with pytest.raises(ConfigurationError, match=r"f: zookeeper\.connect is empty"):
        check_configuration({**given, "zookeeper.connect": " "}, "f")


BY_ZOOKEEPER = {
    "broker.id": "1",
    "zookeeper.connect": "z:2181",
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.dirs": "d",
}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("zookeeper.set.acl", "true", "asks for znodes that brokers alone may change"),
        ("zookeeper.ssl.client.enable", "true", "asks for TLS to ZooKeeper"),
        ("zookeeper.metadata.migration.enable", "true", "asks for a migration to KRaft"),
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer", "asks for an authorizer"),
        ("sasl.enabled.mechanisms", "PLAIN,SCRAM-SHA-256", "asks for SCRAM"),
        ("listener.name.plaintext.sasl.enabled.mechanisms", "SCRAM-SHA-512", "asks for SCRAM"),
    ],
)
def test_what_is_not_served_with_zookeeper_is_refused(name: str, value: str, sentence: str) -> None:
    assert check_configuration(BY_ZOOKEEPER, "f").zookeeper == "z:2181"
    with pytest.raises(ConfigurationError, match=f"f: {re.escape(name)} {sentence}"):
        check_configuration({**BY_ZOOKEEPER, name: value}, "f")
    assert check_configuration({**BY_ZOOKEEPER, "zookeeper.set.acl": "false"}, "f").zookeeper == "z:2181"


@pytest.mark.parametrize(
    ("protocol", "release"), [({}, "3.9.2"), ("3.9-IV0", "3.9.2"), ("2.8", BEFORE_IDS), ("2.8-IV1", BEFORE_IDS)]
)
def test_brokers_are_asked_as_their_inter_broker_protocol_says(protocol: Any, release: str) -> None:
    given = {"inter.broker.protocol.version": protocol} if protocol else {}
    configuration = check_configuration({**BY_ZOOKEEPER, **given}, "f")
    assert peers_release_of(configuration.properties) == release
    said = ["transaction.partition.verification.enable"] if release == BEFORE_IDS else []
    assert [each.split()[0] for each in remarks(configuration)] == said, (
        "what cannot be verified is not passed over in silence"
    )


def test_other_inter_broker_protocols_are_refused() -> None:
    with pytest.raises(
        ConfigurationError, match=r"f: inter.broker.protocol.version=3.3: only 3.9, 3.9-IV0, 2.8, 2.8-IV1"
    ):
        check_configuration({**BY_ZOOKEEPER, "inter.broker.protocol.version": "3.3"}, "f")
    with pytest.raises(ConfigurationError, match=r"2.8 has no metadata quorum"):
        check_configuration({**GOOD, "tidegauge.peers.release": "2.8"}, "f")


def test_a_name_without_effect_does_not_change_how_other_nodes_are_asked() -> None:
    assert peers_release_of(GOOD) == peers_release_of({**GOOD, "zookeeper.connect": "z:2181"}) == RELEASE


def test_a_setting_of_a_listener_has_an_effect_where_that_listener_is() -> None:
    name = "listener.name.{}.ssl.client.auth"
    given = {
        **GOOD,
        name.format("plaintext"): "none",
        name.format("other"): "none",
        "listener.name.plaintext.max.connections": "1",
        "listener.name.plaintext.num.network.threads": "1",
    }
    assert [remark.partition("'")[2].partition("'")[0] for remark in remarks(check_configuration(given, "f"))] == [
        name.format("other"),
        "listener.name.plaintext.num.network.threads",
    ]


MAP = "listener.security.protocol.map"
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
SASL: dict[str, str | None] = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    JAAS: 'x.PlainLoginModule required user_a="b";',
}
"""A listener with SASL beside the others."""


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"authorizer.class.name": "A"}, "authorizer.class.name=A: org.apache.kafka.metadata.authorizer.StandardAuthorizer alone"),
        ({"super.users": "User:a;b"}, "super.users: 'b' is no principal"),
        ({"sasl.server.callback.handler.class": "C"}, "sasl.server.callback.handler.class asks for a kind of authentication that is not"),
        ({"listener.name.a.gssapi.sasl.kerberos.service.name": "kafka"}, "listener.name.a.gssapi.sasl.kerberos.service.name asks for a kind"),
        ({"sasl.jaas.config": "x"}, "sasl.jaas.config has no effect on a broker: listener.name.NAME.MECHANISM.sasl.jaas.config has"),
        ({"listener.name.a.sasl.jaas.config": "x"}, "listener.name.a.sasl.jaas.config has no effect on a broker"),
        ({"ssl.cipher.suites": "x"}, "ssl.cipher.suites asks for a kind of TLS that is not served here"),
        ({"listener.name.a.ssl.engine.factory.class": "x"}, "listener.name.a.ssl.engine.factory.class asks for a kind of TLS"),
        ({"delegation.token.master.key": "x"}, "delegation.token.master.key asks for a kind of delegation tokens"),
        ({"create.topic.policy.class.name": "P"}, "create.topic.policy.class.name asks for a policy"),
        ({"alter.config.policy.class.name": "P"}, "alter.config.policy.class.name asks for a policy"),
        ({"config.providers": "file"}, "config.providers asks for values of another place"),
        ({"kafka.metrics.reporters": "A"}, "kafka.metrics.reporters asks for classes that report metrics"),
        ({"remote.log.storage.system.enable": "true"}, "remote.log.storage.system.enable asks for tiered storage"),
        ({"group.consumer.assignors": "uniform,A"}, "group.consumer.assignors=A: only uniform, range can be served"),
        ({"security.inter.broker.protocol": "SSL"}, "listeners: the inter-broker listener SSL is not among PLAINTEXT"),
        ({"listeners": "SSL://:1,CONTROLLER://:2"}, "listeners: listener SSL: ssl.keystore.location is missing"),
        ({**SASL, "listener.name.sasl_plaintext.sasl.enabled.mechanisms": ""}, "listeners: the listener SASL_PLAINTEXT has no mechanism"),
        ({"listeners": "SASL_PLAINTEXT://:1,CONTROLLER://:2"}, "listeners: listener SASL_PLAINTEXT: sasl.enabled.mechanisms=GSSAPI cannot be served"),
        ({**SASL, JAAS: None}, f"listeners: listener SASL_PLAINTEXT: {JAAS} is missing"),
        ({**SASL, JAAS: "x.Mine required;"}, f"listeners: {JAAS}: x.Mine cannot be served; PlainLoginModule can"),
        ({**SASL, JAAS: "x.PlainLoginModule"}, f"listeners: {JAAS}: sasl.jaas.config is not: LOGIN-MODULE required"),
        ({**SASL, "inter.broker.listener.name": "SASL_PLAINTEXT"}, "listeners: sasl.mechanism.inter.broker.protocol=GSSAPI cannot be served"),
        ({**SASL, "inter.broker.listener.name": "SASL_PLAINTEXT", "sasl.mechanism.inter.broker.protocol": "PLAIN"},
         f"listeners: {JAAS} has no username and password"),
        ({MAP: "PLAINTEXT:PLAINTEXT,CONTROLLER:TLS"}, "listeners: the listener CONTROLLER is to speak TLS: that is none of PLAINTEXT, SSL"),
        ({"listeners": "OUT://:1,CONTROLLER://:2"}, f"listeners: {MAP} has no protocol for the listener OUT"),
        ({MAP: "PLAINTEXT:PLAINTEXT"}, f"listeners: {MAP} has no protocol for the listener CONTROLLER"),
    ],
)  # fmt: skip
def test_what_cannot_be_protected_is_refused(change: dict[str, str | None], sentence: str) -> None:
    properties = {name: value for name, value in {**GOOD, **change}.items() if value is not None}
    with pytest.raises(ConfigurationError) as error:
        check_configuration(properties, "f")
    assert str(error.value).startswith(f"f: {sentence}") and "\n" not in str(error.value)


@pytest.mark.parametrize("selector", SELECTORS)
def test_replicas_are_selected_by_a_class_of_kafka_or_not_at_all(selector: str) -> None:
    check_configuration({**GOOD, "replica.selector.class": selector}, "f")
    with pytest.raises(
        ConfigurationError, match=r"^f: replica\.selector\.class=com\.example\.Mine: only .* can be served$"
    ):
        check_configuration({**GOOD, "replica.selector.class": "com.example.Mine"}, "f")


def test_a_listener_beyond_loopback_is_named() -> None:
    protocols = "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT"
    listeners = "IN://localhost:1,OUT://:2,CONTROLLER://[::1]:3"
    (remark,) = remarks(check_configuration({**GOOD, "listeners": listeners, MAP: protocols}, "f"))
    assert remark.startswith("listener OUT://:2 is open to everyone who can reach it")
