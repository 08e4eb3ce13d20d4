"""CFG: topic defaults that are changed for all brokers at run time."""

from collections.abc import Generator
from contextlib import contextmanager

from conformance.answers import error_name, only
from conformance.batches import batch
from conformance.broker import BROKER_RESOURCE, Broker
from conformance.requirement import requirement
from conformance.requirements.config_changes import DELETE, SET, alter
from conformance.requirements.configs import described
from conformance.results import Lack
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode

ALL_BROKERS = ""
"""The name of the broker resource whose configurations apply to all brokers (KIP-226)."""
OF_ALL_BROKERS = 3
"""The config source of such a value: DYNAMIC_DEFAULT_BROKER."""
OF_BROKER, OF_TOPIC = "message.max.bytes", "max.message.bytes"
LIMIT, ENOUGH = 10_000, 50_000
BATCH = batch(bytes(20_000))
"""A batch larger than the smaller limit, and smaller than the larger one and the default."""
IN_TIME_S = 10.0


@contextmanager
def set_for_all_brokers(broker: Broker, name: str, value: str) -> Generator[None]:
    """Set a configuration for all brokers within the block; skips if the target refuses it."""

    def change(operation: int, value: str | None) -> int:
        return only(alter(broker, (BROKER_RESOURCE, ALL_BROKERS, [(name, operation, value)])), "result").error_code

    refused = change(SET, value)
    if refused != ErrorCode.NONE:
        broker.skip(
            f"needs a target whose settings for all brokers can change: it refuses {name} with {error_name(refused)}",
            Lack.CONFIGURATION,
        )
    try:
        yield
    finally:
        left = change(DELETE, None)
    broker.expect_error(left, ErrorCode.NONE, what=f"DELETE {name}")


def topic_on_every_node(broker: Broker, **configs: str) -> Topic:
    """A topic with these configurations only, and one partition for each node."""
    name = broker.unused_name()
    made = broker.create_topic(name, max(1, broker.subject.nodes), configs=configs)
    broker.expect_error(made.error_code, ErrorCode.NONE, what="CreateTopics")
    return broker.await_topic(name, max(1, broker.subject.nodes))


def await_batches(broker: Broker, topic: Topic, error: ErrorCode, when: str) -> None:
    """Wait until each partition's leader answers the batch with this error."""
    for partition in range(max(1, broker.subject.nodes)):
        broker.eventually(
            lambda partition=partition: broker.produce(topic, BATCH, partition=partition).error_code == error,
            f"the leader of partition {partition} answers {error.name}, {when}",
            within_s=IN_TIME_S,
        )


@requirement(
    "CFG-16",
    notices="operator: a limit that is set for the whole cluster holds for no topic until every broker is restarted",
    source="KIP-226; DynamicBrokerConfig.updateDefaultConfig; DynamicLogConfig.reconfigure",
    sentence="A setting for all brokers (IncrementalAlterConfigs of the broker without a name) is at once the default of topics "
    "that have no value of their own, and no longer when it is removed: no broker is restarted.",
    accepted="while message.max.bytes is 10000, each leader refuses a batch of 20000 bytes with MESSAGE_TOO_LARGE(10), the topic "
    "is described with that value and source 3, and a topic with max.message.bytes=50000 takes the batch; afterwards both take "
    "it. A target that refuses the setting is not judged",
    since="2.3",
    hooks=("config",),
    exclusive=True,
    apis={"IncrementalAlterConfigs": 0},
    deadline_s=60.0,
)  # fmt: skip
def cluster_wide_default(broker: Broker) -> None:
    if OF_TOPIC in broker.subject.profile.pinned:
        broker.skip(f"needs a target with Kafka's default of {OF_BROKER}", Lack.CONFIGURATION)
    plain, own = topic_on_every_node(broker), topic_on_every_node(broker, **{OF_TOPIC: str(ENOUGH)})
    await_batches(broker, plain, ErrorCode.NONE, "by default")
    with set_for_all_brokers(broker, OF_BROKER, str(LIMIT)):
        await_batches(broker, plain, ErrorCode.MESSAGE_TOO_LARGE, f"under {OF_BROKER}={LIMIT}")
        await_batches(broker, own, ErrorCode.NONE, f"with {OF_TOPIC}={ENOUGH} of its own")
        found = described(broker, plain, [OF_TOPIC])[OF_TOPIC]
        broker.expect_equal("its value and source", (found.value, found.config_source), (str(LIMIT), OF_ALL_BROKERS))
    await_batches(broker, plain, ErrorCode.NONE, f"without {OF_BROKER}")
