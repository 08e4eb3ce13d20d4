"""CFG: configurations as they are described: values, sources, types and documentation."""

from collections.abc import Collection
from typing import Any

from conformance.answers import AnswerParts, only
from conformance.broker import BROKER_RESOURCE, TOPIC_RESOURCE, Broker
from conformance.given_topics import skip_unknown_configs
from conformance.requirement import requirement
from conformance.steps import built_on
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_configs import DescribeConfigsRequest

DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_CLUSTER, STATIC_BROKER = 1, 2, 3, 4
"""Sources of a configuration: set on the topic, on the broker or on all brokers at run time, or in the broker's file."""
OF_BROKERS = (DYNAMIC_BROKER, DYNAMIC_CLUSTER, STATIC_BROKER)
SOURCES = range(1, 9)
"""All sources that Kafka has."""
NO_SUCH_TYPE = 99
"""A type of resource that does not exist."""
UNKNOWN_BROKER = "99999"

DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "index.interval.bytes": "4096",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""The documented defaults (4.x) of a topic without configurations, on a broker without configurations."""

CAME_WITH = {
    "max.compaction.lag.ms": "2.3",
    "message.timestamp.after.max.ms": "3.6",
    "message.timestamp.before.max.ms": "3.6",
}
"""Configuration -> its first release, for those that not every release has (KIP-354, KIP-937)."""

TYPES = {
    "preallocate": 1, "compression.type": 2, "segment.bytes": 3, "retention.ms": 5, "min.cleanable.dirty.ratio": 6,
    "cleanup.policy": 7,
}  # fmt: skip
"""One configuration of each type of value (v3+): boolean 1, string 2, int 3, long 5, double 6, list 7."""


# ---- requests


def plain_topic(broker: Broker, configs: dict[str, str] | None = None) -> Topic:
    """A topic with these configurations only; `Broker.topic` sets further ones."""
    name = broker.unused_name()
    made = broker.create_topic(name, configs=configs)
    skip_unknown_configs(broker, made.error_code, configs or {})
    broker.expect_error(made.error_code, ErrorCode.NONE, what=f"CreateTopics with {configs or 'nothing'}")
    return broker.await_topic(name)


def describe(
    broker: Broker,
    *resources: tuple[int, str],
    keys: Collection[str] | None = None,
    version: int | None = None,
    to: tuple[str, int] | None = None,
    **options: bool,
) -> list[Any]:
    """The results of DescribeConfigs for resources (type, name)."""
    asked = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=None if keys is None else list(keys)
        )
        for kind, name in resources
    ]
    return broker.call(DescribeConfigsRequest(resources=asked, **options), version, to=to).results


def described(broker: Broker, topic: Topic, keys: Collection[str] | None = None, **options: Any) -> dict[str, Any]:
    """The configurations of a topic by name."""
    result = only(describe(broker, (TOPIC_RESOURCE, topic.name), keys=keys, **options), f"result for {topic.name}")
    broker.expect_error(result.error_code, ErrorCode.NONE, what="DescribeConfigs", message=result.error_message)
    if keys is None or len(keys):
        expect_some(broker, result)
    return AnswerParts({one.name: one for one in result.configs})


@built_on("CFG-01")
def expect_some(broker: Broker, result: Any) -> None:
    """Expect that DescribeConfigs lists at least one configuration."""
    broker.expect(
        bool(result.configs), f"DescribeConfigs lists {len(result.configs)} configurations of {result.resource_name}"
    )


def set_on(broker: Broker, topic: Topic) -> dict[str, str | None]:
    """The configurations set on the topic itself. Before 1.1 (KIP-226) the response has `is_default` in place of a source."""
    named = broker.version_for(DescribeConfigsRequest) >= 1
    return {
        name: one.value
        for name, one in described(broker, topic).items()
        if (one.config_source == DYNAMIC_TOPIC if named else not one.is_default)
    }


# ---- judgements


@requirement(
    "CFG-01",
    notices="tool: kafka-configs and consoles show values and sources by it; Connect reads cleanup.policy of its topics",
    source="KIP-133, KIP-226 (sources, synonyms), KIP-569 (types); DescribeConfigsResponse schema",
    sentence="DescribeConfigs of a topic gives each of its configurations once, with value, source, and whether it is "
    "read-only or sensitive; no keys mean all (an empty list since 2.7.1), keys mean those, unknown keys are left out.",
    accepted="the documented names; source 1 for what was set on the topic and another for what was not; neither read-only nor "
    "sensitive; types from v3 on, synonyms where asked for",
    draft="an empty list of keys was thought to mean none: Kafka 4.3.1 gives all of them, as for null",
)
def describe_topic_configs(broker: Broker) -> None:
    topic = plain_topic(broker, {"retention.ms": "12345", "cleanup.policy": "compact"})
    lowest, highest = broker.versions_of(DescribeConfigsRequest)
    for version in range(lowest, highest + 1):
        with broker.case(f"v{version}"):
            found = only(describe(broker, (TOPIC_RESOURCE, topic.name), version=version), "result")
            broker.expect_error(found.error_code, ErrorCode.NONE)
            names = [one.name for one in found.configs]
            broker.expect_equal("names that come twice", sorted({n for n in names if names.count(n) > 1}), [])
            documented = {name for name in DEFAULTS if broker.is_kafka(CAME_WITH.get(name, "0"))}
            broker.expect_equal("documented names that are missing", sorted(documented - set(names)), [])
            held = AnswerParts({one.name: one for one in found.configs})
            wanted = {"retention.ms": "12345", "cleanup.policy": "compact"}
            if "segment.ms" not in broker.subject.profile.pinned:
                wanted["segment.ms"] = DEFAULTS["segment.ms"]
            broker.expect_equal("their values", {name: held[name].value for name in wanted}, wanted)
            if version >= 1:
                own = sorted(name for name in names if held[name].config_source == DYNAMIC_TOPIC)
                broker.expect_equal("what was set on the topic", own, ["cleanup.policy", "retention.ms"])
                broker.expect(
                    all(held[name].config_source in SOURCES for name in names), "every config source is one of Kafka's"
                )
            flags = {(one.read_only, one.is_sensitive) for one in found.configs}
            broker.expect_equal("whether they are read-only and sensitive", flags, {(False, False)})
            some = described(broker, topic, ["segment.bytes", "no.such.config", "retention.ms"], version=version)
            broker.expect_equal(
                "what two keys and an unknown one give", sorted(some), ["retention.ms", "segment.bytes"]
            )
            every = described(broker, topic, [], version=version)
            wanted_names = sorted(names) if broker.is_kafka("2.7.1") else []  # KAFKA-12235
            broker.expect_equal("what an empty list of keys gives", sorted(every), wanted_names)
    if highest >= 3:
        with broker.case("types and synonyms"):
            full = described(broker, topic, include_synonyms=True)
            types = {name: full[name].config_type for name in TYPES if name in full}
            broker.expect_equal("the types", types, TYPES)
            own = [(one.value, one.source) for one in full["retention.ms"].synonyms]
            broker.expect_equal("the first synonym of retention.ms", own[:1], [("12345", DYNAMIC_TOPIC)])
            plain = described(broker, topic)
            broker.expect_equal("synonyms where not asked for", sum(len(one.synonyms) for one in plain.values()), 0)


@requirement(
    "CFG-02",
    since="2.0",
    notices="tool: kafka-configs shows configurations of what does not exist, or fails for all that it asked",
    source="ConfigHelper.describeConfigs; KAFKA-6778",
    sentence="DescribeConfigs of a topic that does not exist is UNKNOWN_TOPIC_OR_PARTITION, of an illegal name "
    "INVALID_TOPIC_EXCEPTION, of another broker's id, of no id at all or of an unknown type INVALID_REQUEST; a topic beside "
    "them has its own answer.",
    accepted="3, 17 and 42 without configurations, and NONE(0) for the topic beside all but the unknown type; the unknown topic "
    "is not created",
    draft="of an illegal name nothing was said; an unknown type makes Kafka 4.3.1 refuse the whole request",
)
def describe_unknown(broker: Broker) -> None:
    topic, unknown = plain_topic(broker), broker.unused_name()
    asked = {
        (TOPIC_RESOURCE, unknown): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (TOPIC_RESOURCE, "not/legal"): ErrorCode.INVALID_TOPIC_EXCEPTION,
        (BROKER_RESOURCE, UNKNOWN_BROKER): ErrorCode.INVALID_REQUEST,
        (BROKER_RESOURCE, "no-number"): ErrorCode.INVALID_REQUEST,
        (NO_SUCH_TYPE, "x"): ErrorCode.INVALID_REQUEST,
    }
    for (kind, name), error in asked.items():
        with broker.case(f"type {kind}, {'unknown' if name == unknown else name!r}"):
            beside = [] if kind == NO_SUCH_TYPE else [(TOPIC_RESOURCE, topic.name)]
            results = describe(broker, (kind, name), *beside)
            found = AnswerParts({(one.resource_type, one.resource_name): one for one in results})
            if kind == NO_SUCH_TYPE and not broker.by_kraft() and (0, name) in found:
                found[kind, name] = found.pop((0, name))  # such a broker answers with type 0, which means unknown
            broker.expect_equal("the resources", set(found), {(kind, name), *beside})
            broker.expect_error(found[kind, name].error_code, error)
            broker.expect_equal("its configurations", found[kind, name].configs, [])
            for key in beside:
                broker.expect_error(found[key].error_code, ErrorCode.NONE, what="the other topic")
    broker.expect_error(broker.describe_topic(unknown).error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=unknown)


@requirement(
    "CFG-11",
    notices="operator: topics are kept for another time, or with other limits, than the documentation says",
    source="Documentation, Topic Configs; LogConfig",
    sentence="A topic on which nothing is set has the documented defaults, where the broker's own configuration leaves them.",
    accepted=", ".join(f"{name}={value}" for name, value in DEFAULTS.items()),
    since="4.0",
)
def documented_defaults(broker: Broker) -> None:
    found = described(broker, plain_topic(broker))
    missing = sorted(set(DEFAULTS) - set(found))
    broker.expect_equal("documented configurations that are missing", missing, [])
    for name, value in DEFAULTS.items():
        # Kafka 4.3.1 calls segment.ms a default where the broker has log.roll.hours
        if found[name].config_source in OF_BROKERS or name in broker.subject.profile.pinned:
            broker.saw(f"{name}={found[name].value} is the broker's own")
        else:
            broker.expect_equal(name, found[name].value, value)


@requirement(
    "CFG-12",
    since="1.1",
    notices="tool: kafka-configs --describe --all of a broker, with which administrators find what is set where",
    source="KIP-226; ConfigHelper.describeConfigs",
    sentence="DescribeConfigs of a broker's own id gives its configurations: what its file sets with source 4, its default "
    "with source 5; what cannot be changed while it runs is read-only.",
    accepted="group.initial.rebalance.delay.ms as it was set, with source 4 and read-only; at least 50 configurations",
    configs={"group.initial.rebalance.delay.ms": "0"},
)
def describe_broker(broker: Broker) -> None:
    brokers = broker.metadata([]).brokers
    broker.expect(bool(brokers), f"{len(brokers)} brokers, at least one, are in Metadata")
    resource, address = (BROKER_RESOURCE, str(brokers[0].node_id)), (brokers[0].host, brokers[0].port)
    result = only(describe(broker, resource, to=address), f"result for broker {resource[1]}")
    broker.expect_error(result.error_code, ErrorCode.NONE)
    found = AnswerParts({one.name: one for one in result.configs})
    broker.expect(len(found) >= 50, f"{len(found)} configurations, at least 50, are described")
    name = "group.initial.rebalance.delay.ms"
    broker.expect(name in found, f"{name} is described")
    seen = found[name].value, found[name].config_source, found[name].read_only
    broker.expect_equal(name, seen, ("0", STATIC_BROKER, True))
    one = only(describe(broker, resource, keys=[name], to=address), f"result for broker {resource[1]}")
    broker.expect_equal("the configurations for this name alone", [config.name for config in one.configs], [name])


@requirement(
    "CFG-14",
    notices="tool: Java's Admin with includeDocumentation, which consoles show, lacks the text",
    source="KIP-569; DescribeConfigsResponse schema",
    sentence="From v3 on, DescribeConfigs documents each configuration where it is asked to, and only there.",
    accepted="words for every documented name where asked for, null or nothing where not",
    since="2.6",
    apis={"DescribeConfigs": 3},
)
def documentation(broker: Broker) -> None:
    topic = plain_topic(broker)
    full = described(broker, topic, include_documentation=True)
    wordless = sorted(name for name in DEFAULTS if name in full and not full[name].documentation)  # CFG-01: it is there
    broker.expect_equal("names without documentation", wordless, [])
    reported = [name for name, one in described(broker, topic).items() if one.documentation]
    broker.expect_equal("documented where not asked for", reported, [])


@requirement(
    "CFG-15",
    notices="tool: Java's ConfigEntry.type is UNKNOWN, and consoles offer a text where a number or a choice is asked for",
    source="KIP-569; DescribeConfigsResponse schema",
    sentence="From v3 on, DescribeConfigs gives each configuration's type.",
    accepted="BOOLEAN(1), STRING(2), INT(3), LONG(5), DOUBLE(6) or LIST(7), as Kafka defines the name",
    since="2.6",
    apis={"DescribeConfigs": 3},
)
def types(broker: Broker) -> None:
    found = described(broker, plain_topic(broker), TYPES)  # CFG-01 judges that each name is there
    wanted = {name: kind for name, kind in TYPES.items() if name in found} or TYPES
    broker.expect_equal("the types", AnswerParts({name: found[name].config_type for name in found}), wanted)
