"""CFG: a change of configurations has exactly the requested effect."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from conformance.answers import AnswerParts, only
from conformance.batches import LOG_APPEND_TIME, Record, batch, batches
from conformance.broker import BROKER_RESOURCE, TOPIC_RESOURCE, Broker
from conformance.changes import refusals
from conformance.given_topics import skip_unknown_configs
from conformance.requirement import WITHOUT_ZOOKEEPER, requirement
from conformance.requirements.configs import NO_SUCH_TYPE, UNKNOWN_BROKER, described, plain_topic, set_on
from conformance.steps import built_on
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_configs import AlterConfigsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

SET, DELETE, APPEND, SUBTRACT = range(4)
"""Operations of IncrementalAlterConfigs."""

NO_SUCH_OPERATION = 9
POLICY, THROTTLED = "cleanup.policy", "leader.replication.throttled.replicas"
"""Two configurations that are lists."""

Change = tuple[str, int, str | None]
"""Name, operation, value."""


def alter(broker: Broker, *resources: tuple[int, str, Sequence[Change]], validate_only: bool = False) -> list[Any]:
    """The results of IncrementalAlterConfigs for resources (type, name, changes)."""
    config = IncrementalAlterConfigsRequest.AlterableConfig
    asked = [
        IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[config(name=key, config_operation=operation, value=value) for key, operation, value in changes],
        )
        for kind, name, changes in resources
    ]
    return broker.call(IncrementalAlterConfigsRequest(resources=asked, validate_only=validate_only)).responses


def alter_topic(broker: Broker, topic: Topic, *changes: Change, validate_only: bool = False) -> Any:
    """The result of IncrementalAlterConfigs for one topic."""
    results = alter(broker, (TOPIC_RESOURCE, topic.name, changes), validate_only=validate_only)
    return only(results, f"result for {topic.name}")


def replace_all(broker: Broker, topic: str, configs: dict[str, str], *, validate_only: bool = False) -> Any:
    """The result of the legacy AlterConfigs for one topic."""
    config = AlterConfigsRequest.AlterableConfig
    asked = AlterConfigsRequest.AlterConfigsResource(
        resource_type=TOPIC_RESOURCE,
        resource_name=topic,
        configs=[config(name=name, value=value) for name, value in configs.items()],
    )
    request = AlterConfigsRequest(resources=[asked], validate_only=validate_only)
    return only(broker.call(request).responses, f"result for {topic}")


def expect_set(broker: Broker, topic: Topic, wanted: dict[str, str], what: str) -> None:
    """Wait until exactly these configurations are set on the topic: a broker may learn of a change after the response."""

    def agrees() -> bool:
        return set_on(broker, topic) == wanted

    await_listed(broker, topic, wanted)
    broker.eventually(agrees, f"{what}: {wanted or 'nothing'} is set on the topic", within_s=5)
    broker.saw(f"{what}: {wanted or 'nothing'} is set on the topic")


@built_on("CFG-01")
def await_listed(broker: Broker, topic: Topic, names: Collection[str]) -> None:
    """Wait until DescribeConfigs lists these names: a missing name must not count as a wrong value."""
    broker.eventually(
        lambda: {*names} <= described(broker, topic).keys(), f"DescribeConfigs lists {', '.join(names)}", within_s=5
    )


def altered(broker: Broker, topic: Topic, *changes: Change) -> None:
    """Change a topic's configurations; the broker must accept it. Skips if it does not have a configuration."""
    result = alter_topic(broker, topic, *changes)
    skip_unknown_configs(broker, result.error_code, [name for name, operation, _ in changes if operation == SET])
    broker.expect_error(result.error_code, ErrorCode.NONE, what=shown(*changes), message=result.error_message)


def shown(*changes: Change) -> str:
    """The changes as text."""
    words = {SET: "SET", DELETE: "DELETE", APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
    return ", ".join(f"{words.get(operation, operation)} {name}={value}" for name, operation, value in changes)


def expect_unchanged(broker: Broker, topic: Topic, before: dict[str, str | None]) -> None:
    """Expect that a refused change had no effect, also after a later change has become visible."""
    altered(broker, topic, ("delete.retention.ms", SET, "1"))
    broker.eventually(lambda: "delete.retention.ms" in set_on(broker, topic), "a later change is known", within_s=5)
    altered(broker, topic, ("delete.retention.ms", DELETE, None))
    broker.eventually(lambda: "delete.retention.ms" not in set_on(broker, topic), "it is taken back", within_s=5)
    broker.expect_equal("what is set on the topic", set_on(broker, topic), before)


def refusals_of_configs(broker: Broker, error: ErrorCode) -> tuple[ErrorCode, ...]:
    """The accepted errors: with ZooKeeper also those that Kafka returns instead, INVALID_REQUEST for an invalid value or
    UNKNOWN_SERVER_ERROR."""
    zookeepers = {
        ErrorCode.INVALID_CONFIG: (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
        ErrorCode.INVALID_REQUEST: (ErrorCode.UNKNOWN_SERVER_ERROR,),
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: (ErrorCode.UNKNOWN_SERVER_ERROR,),  # before 2.7, KAFKA-10033
        ErrorCode.INVALID_TOPIC_EXCEPTION: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,),  # from 2.7 on
    }
    return (error,) if broker.by_kraft() else (error, *zookeepers.get(error, ()))


@requirement(
    "CFG-03",
    notices="data: a change of one configuration sets retention of a topic back to its default",
    source="KIP-339; ConfigurationControlManager.incrementalAlterConfigs",
    sentence="SET and DELETE of IncrementalAlterConfigs change the configurations that they name and no others; a deleted one "
    "has its default again.",
    accepted="exactly what was set and not deleted has source 1; the deleted one has the value and source of before",
    apis={"IncrementalAlterConfigs": 0},
)
def set_and_delete(broker: Broker) -> None:
    topic, other = (plain_topic(broker, {"retention.bytes": "70000"}) for _ in range(2))
    before = described(broker, topic)["retention.ms"]
    altered(broker, topic, ("retention.ms", SET, "1000"), ("max.message.bytes", SET, "5000"))
    wanted = {"retention.bytes": "70000", "retention.ms": "1000", "max.message.bytes": "5000"}
    expect_set(broker, topic, wanted, "two SET")
    altered(broker, topic, ("retention.ms", SET, "2000"))
    expect_set(broker, topic, wanted | {"retention.ms": "2000"}, "SET again")
    altered(broker, topic, ("retention.ms", DELETE, None), ("retention.bytes", SET, "80000"))
    expect_set(broker, topic, {"retention.bytes": "80000", "max.message.bytes": "5000"}, "DELETE and SET")
    after = described(broker, topic)["retention.ms"]
    seen = after.value, after.config_source
    broker.expect_equal("retention.ms after DELETE", seen, (before.value, before.config_source))
    altered(broker, topic, ("retention.ms", DELETE, None))
    expect_set(broker, topic, {"retention.bytes": "80000", "max.message.bytes": "5000"}, "DELETE of what is not set")
    altered(broker, topic)
    expect_set(broker, other, {"retention.bytes": "70000"}, "the other topic")


@requirement(
    "CFG-04",
    since=WITHOUT_ZOOKEEPER,
    kraft=True,
    notices="tool: Java's AlterConfigOp.APPEND and SUBTRACT replace a list, or lose what was in it",
    source="KIP-339; ConfigurationControlManager.incrementalAlterConfigResource",
    sentence="APPEND adds to a list what it does not hold yet, SUBTRACT takes away what it holds; on any other configuration, "
    "and for a value that the list may not hold, they are refused with INVALID_CONFIG.",
    accepted="cleanup.policy, and leader.replication.throttled.replicas where it is described, without doubles, in any order; "
    "INVALID_CONFIG(40) for retention.ms and for cleanup.policy=shred",
    apis={"IncrementalAlterConfigs": 0},
)
def append_and_subtract(broker: Broker) -> None:
    topic = plain_topic(broker, {POLICY: "compact"})
    for change, wanted in (
        ((POLICY, APPEND, "compact"), "compact"),
        ((POLICY, APPEND, "delete"), "compact,delete"),
        ((POLICY, APPEND, "delete,compact"), "compact,delete"),
        ((POLICY, SUBTRACT, "compact"), "delete"),
        ((POLICY, SUBTRACT, "compact"), "delete"),
    ):
        altered(broker, topic, change)
        expect_lists(broker, topic, {POLICY: wanted}, shown(change))
    untouched = plain_topic(broker)
    before = described(broker, untouched)
    held = (before[POLICY].value or "").split(",")
    missing = "delete" if "compact" in held else "compact"
    altered(broker, untouched, (POLICY, APPEND, missing))
    lists = {POLICY: ",".join({*held, missing})}
    expect_lists(broker, untouched, lists, f"APPEND to the default {before[POLICY].value}")
    if THROTTLED in before:
        for change, wanted in (
            ((THROTTLED, APPEND, "0:1"), "0:1"),
            ((THROTTLED, APPEND, "0:1,0:2"), "0:1,0:2"),
            ((THROTTLED, SUBTRACT, "0:1"), "0:2"),
        ):
            altered(broker, untouched, change)
            expect_lists(broker, untouched, lists | {THROTTLED: wanted}, shown(change))
    for change in (
        ("retention.ms", APPEND, "5"),
        ("retention.ms", SUBTRACT, "5"),
        (POLICY, APPEND, "shred"),
    ):
        with broker.case(shown(change)):
            broker.expect_error(alter_topic(broker, topic, change).error_code, ErrorCode.INVALID_CONFIG)
            expect_unchanged(broker, topic, {POLICY: "delete"})


def expect_lists(broker: Broker, topic: Topic, wanted: dict[str, str], what: str) -> None:
    """Wait until exactly these lists are set on the topic; the order in them says nothing."""

    def parts(found: Mapping[str, str | None]) -> dict[str, list[str]]:
        return {name: sorted((value or "").split(",")) for name, value in found.items()}

    await_listed(broker, topic, wanted)
    sentence = f"{what}: {wanted} is set on the topic"
    broker.eventually(lambda: parts(set_on(broker, topic)) == parts(wanted), sentence, within_s=5)
    broker.saw(sentence)


@requirement(
    "CFG-05",
    notices="operator: a wrong value is stored, or half of a change",
    source="ConfigurationControlManager.validateAlterConfig; LogConfig.validate",
    sentence="A change with an unknown name or an impossible value is INVALID_CONFIG, one without a value or of the same name "
    "twice INVALID_REQUEST; one of an unknown topic is UNKNOWN_TOPIC_OR_PARTITION, of an illegal name INVALID_TOPIC_EXCEPTION, "
    "of an unknown type or broker INVALID_REQUEST. Nothing of the resource is changed then, and the others are.",
    accepted="40 (with ZooKeeper 42 too), 42, 3, 17, 42; an operation that does not exist INVALID_REQUEST(42) or "
    "UNKNOWN_SERVER_ERROR(-1); the topic's "
    "configurations stay, those of another topic in the same request change",
    draft="an operation that does not exist was not thought of: Kafka 4.3.1 refuses the whole request as its own error",
    apis={"IncrementalAlterConfigs": 0},
)
def refused_changes(broker: Broker) -> None:
    topic, other = plain_topic(broker, {"retention.ms": "1000"}), plain_topic(broker)
    good: Change = ("retention.bytes", SET, "60000")
    refused: dict[tuple[Change, ...], ErrorCode] = {
        (good, ("no.such.config", SET, "1")): ErrorCode.INVALID_CONFIG,
        (good, ("retention.ms", SET, "soon")): ErrorCode.INVALID_CONFIG,
        (good, ("min.insync.replicas", SET, "0")): ErrorCode.INVALID_CONFIG,
        (good, ("cleanup.policy", SET, "shred")): ErrorCode.INVALID_CONFIG,
        (good, ("retention.ms", SET, None)): ErrorCode.INVALID_REQUEST,
        (("retention.ms", SET, "5"), ("retention.ms", DELETE, None)): ErrorCode.INVALID_REQUEST,
    }
    for number, (changes, error) in enumerate(refused.items()):
        with broker.case(shown(*changes)):
            beside = str(60_000 + number)
            results = alter(
                broker,
                (TOPIC_RESOURCE, topic.name, changes),
                (TOPIC_RESOURCE, other.name, [("retention.bytes", SET, beside)]),
            )
            found = AnswerParts({one.resource_name: one.error_code for one in results})
            broker.expect_equal("the resources of the answer", set(found), {topic.name, other.name})
            broker.expect_error(found[topic.name], *refusals_of_configs(broker, error))
            broker.expect_error(found[other.name], ErrorCode.NONE, what="the other topic")
            expect_set(broker, other, {"retention.bytes": beside}, "the other topic")
            expect_unchanged(broker, topic, {"retention.ms": "1000"})
    with broker.case("an operation that does not exist"):
        result = alter_topic(broker, topic, good, ("retention.ms", NO_SUCH_OPERATION, "5"))
        broker.expect_error(result.error_code, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR)
        expect_unchanged(broker, topic, {"retention.ms": "1000"})
    for what, kind, name, error in (
        ("an unknown topic", TOPIC_RESOURCE, broker.unused_name(), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("an illegal name", TOPIC_RESOURCE, "not/legal", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("an unknown type", NO_SUCH_TYPE, topic.name, ErrorCode.INVALID_REQUEST),
        ("an unknown broker", BROKER_RESOURCE, UNKNOWN_BROKER, ErrorCode.INVALID_REQUEST),
    ):
        with broker.case(what):
            result = only(alter(broker, (kind, name, [good])), "result")
            broker.expect_error(result.error_code, *refusals_of_configs(broker, error))


@requirement(
    "CFG-06",
    notices="tool: a rehearsal with validateOnly changes the topic",
    source="IncrementalAlterConfigsRequest schema (validateOnly); ControllerApis.handleIncrementalAlterConfigs",
    sentence="With validate_only a change is checked and answered for as otherwise, and not made.",
    accepted="NONE(0) or the usual error; the configurations stay, for IncrementalAlterConfigs and AlterConfigs",
    apis={"IncrementalAlterConfigs": 0},
)
def validate_only(broker: Broker) -> None:
    topic = plain_topic(broker, {"retention.ms": "1000"})
    for change, error in (
        (("retention.ms", SET, "5"), ErrorCode.NONE),
        (("retention.ms", DELETE, None), ErrorCode.NONE),
        (("retention.ms", SET, "soon"), ErrorCode.INVALID_CONFIG),
        (("no.such.config", SET, "1"), ErrorCode.INVALID_CONFIG),
    ):
        with broker.case(shown(change)):
            result = alter_topic(broker, topic, change, validate_only=True)
            broker.expect_error(result.error_code, *refusals_of_configs(broker, error))
            expect_unchanged(broker, topic, {"retention.ms": "1000"})
    with broker.case("AlterConfigs"):
        result = replace_all(broker, topic.name, {"retention.bytes": "60000"}, validate_only=True)
        broker.expect_error(result.error_code, ErrorCode.NONE)
        expect_unchanged(broker, topic, {"retention.ms": "1000"})


@requirement(
    "CFG-07",
    notices="tool: sarama's AlterConfig and older tools set a topic's whole configuration like this",
    source="KIP-133; ConfigurationControlManager.legacyAlterConfigs",
    sentence="The legacy AlterConfigs replaces all that is set on the topic: what it leaves out has its default again. What it "
    "refuses changes nothing.",
    accepted="exactly what was given is set; INVALID_CONFIG(40) for an unknown name or an impossible value, "
    "UNKNOWN_TOPIC_OR_PARTITION(3) for an unknown topic (UNKNOWN_SERVER_ERROR(-1) before 2.7, KAFKA-10033)",
    apis={"AlterConfigs": 0},
)
def replace_configs(broker: Broker) -> None:
    topic = plain_topic(broker, {"retention.ms": "1000", "retention.bytes": "60000"})
    for configs in ({"retention.ms": "2000", "max.message.bytes": "5000"}, {"retention.bytes": "70000"}):
        result = replace_all(broker, topic.name, configs)
        broker.expect_error(result.error_code, ErrorCode.NONE, what=f"AlterConfigs {configs}")
        expect_set(broker, topic, configs, f"AlterConfigs {configs}")
    for configs in (
        {"no.such.config": "1"},
        {"retention.ms": "soon"},
        {"retention.ms": "5", "cleanup.policy": "shred"},
    ):
        with broker.case(f"{configs}"):
            result = replace_all(broker, topic.name, configs)
            broker.expect_error(result.error_code, *refusals_of_configs(broker, ErrorCode.INVALID_CONFIG))
            expect_set(broker, topic, {"retention.bytes": "70000"}, "afterwards")
    result = replace_all(broker, broker.unused_name(), {})
    wanted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if broker.is_kafka("2.7") else ErrorCode.UNKNOWN_SERVER_ERROR
    broker.expect_error(result.error_code, wanted, what="an unknown topic")
    result = replace_all(broker, topic.name, {})
    broker.expect_error(result.error_code, ErrorCode.NONE, what="AlterConfigs with nothing")
    expect_set(broker, topic, {}, "AlterConfigs with nothing")


@requirement(
    "CFG-08",
    since=WITHOUT_ZOOKEEPER,
    kraft=True,
    notices="none seen: Java's Admin and librdkafka send each resource once",
    source="ConfigAdminManager.preprocess",
    sentence="A resource that comes twice in one IncrementalAlterConfigs is refused with INVALID_REQUEST; others are changed.",
    accepted="INVALID_REQUEST(42) for it, once or twice in the answer, and it stays; NONE(0) for the other topic",
    draft="the legacy AlterConfigs was thought to refuse it as well: Kafka 4.3.1 never answers",
    apis={"IncrementalAlterConfigs": 0},
)
def twice_in_one_request(broker: Broker) -> None:
    twice, other = plain_topic(broker, {"retention.ms": "1000"}), plain_topic(broker)
    results = alter(
        broker,
        (TOPIC_RESOURCE, twice.name, [("retention.ms", SET, "5")]),
        (TOPIC_RESOURCE, other.name, [("retention.ms", SET, "6")]),
        (TOPIC_RESOURCE, twice.name, [("retention.bytes", SET, "60000")]),
    )
    found = {(one.resource_name, one.error_code) for one in results}
    wanted = {(twice.name, int(ErrorCode.INVALID_REQUEST)), (other.name, int(ErrorCode.NONE))}
    broker.expect_equal("the results", found, wanted)
    expect_set(broker, other, {"retention.ms": "6"}, "the other topic")
    expect_unchanged(broker, twice, {"retention.ms": "1000"})


@requirement(
    "CFG-09",
    notices="operator: retention, limits and timestamps are not what the administrator set, until a restart",
    source="TopicConfigHandler.processConfigChanges; KIP-226",
    sentence="A changed topic configuration takes effect without a restart, and so does taking it back.",
    accepted="soon after the change: a lower max.message.bytes refuses what fitted before, message.timestamp.type=LogAppendTime "
    "stamps records, cleanup.policy=compact refuses records without a key; and the opposite after DELETE",
    apis={"IncrementalAlterConfigs": 0},
)
def takes_effect(broker: Broker) -> None:
    topic = broker.topic()
    pinned = broker.subject.profile.pinned

    def take_back(name: str) -> None:
        """Let the topic have Kafka's default again, which the broker may have to be asked for."""
        altered(broker, topic, (name, SET, pinned[name]) if name in pinned else (name, DELETE, None))

    def answered(data: bytes, errors: Collection[ErrorCode]) -> bool:
        return broker.produce(topic, data).error_code in errors

    without_key, tolerated = refusals(broker, (ErrorCode.INVALID_RECORD,))
    for name, value, data, errors in (
        ("max.message.bytes", "1000", batch(bytes(2000)), {ErrorCode.MESSAGE_TOO_LARGE}),
        ("cleanup.policy", "compact", batch(b"no key"), {*without_key, *tolerated}),
    ):
        expected = " or ".join(error.name for error in errors)
        broker.append(topic, data)
        altered(broker, topic, (name, SET, value))
        broker.eventually(lambda data=data, errors=errors: answered(data, errors), f"{name}={value}: {expected}")
        take_back(name)
        broker.eventually(lambda data=data: answered(data, {ErrorCode.NONE}), f"{name} is the default again: NONE")
        broker.saw(f"{name}={value} led to {expected}, and its default to NONE")

    def stamped() -> bool:
        offset = broker.append(topic, batch(Record(b"x", timestamp=1)))
        stored = only(batches(broker.log(topic, offset=offset)), "batch")
        return bool(stored.attributes & LOG_APPEND_TIME) and stored.max_timestamp > 1

    broker.expect(not stamped(), "with CreateTime the record keeps its timestamp")
    altered(broker, topic, ("message.timestamp.type", SET, "LogAppendTime"))
    broker.eventually(stamped, "LogAppendTime stamps records")
    take_back("message.timestamp.type")
    broker.eventually(lambda: not stamped(), "CreateTime is in force again")
    broker.saw("LogAppendTime stamped records, and after DELETE they kept their timestamps")


@requirement(
    "CFG-13",
    notices="none seen: tools take away what they were shown before",
    source="KIP-339; ConfigurationControlManager.incrementalAlterConfigResource",
    sentence="DELETE of a name that the broker does not know is no error, so that what an older version set can be taken away.",
    accepted="NONE(0), and nothing changes",
    draft="an unknown name was thought to be INVALID_CONFIG for every operation",
    apis={"IncrementalAlterConfigs": 0},
)
def delete_unknown(broker: Broker) -> None:
    topic = plain_topic(broker, {"retention.ms": "1000"})
    altered(broker, topic, ("no.such.config", DELETE, None))
    expect_unchanged(broker, topic, {"retention.ms": "1000"})
