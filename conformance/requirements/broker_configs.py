"""CFG: settings of a single broker that are changed at run time."""

from conformance.answers import error_name, only
from conformance.broker import BROKER_RESOURCE, Broker
from conformance.requirement import requirement
from conformance.requirements.config_changes import DELETE, SET
from conformance.requirements.config_defaults import (
    BATCH,
    IN_TIME_S,
    OF_BROKER,
    OF_TOPIC,
    await_batches,
    topic_on_every_node,
)
from conformance.requirements.configs import DYNAMIC_BROKER, describe
from conformance.results import Lack
from conformance.steps import built_on
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

LIMIT = 10_000
"""The limit of the first broker, smaller than the batch; each of the others has one that is larger by one."""

Address = tuple[str, int]


def alter_broker(broker: Broker, node: int, operation: int, value: str | None, to: Address) -> int:
    """The error code of IncrementalAlterConfigs for one setting of a broker, asked of the broker at this address."""
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=OF_BROKER, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(node), configs=[change]
    )
    answer = broker.call(IncrementalAlterConfigsRequest(resources=[resource]), to=to)
    return only(answer.responses, f"result for broker {node}").error_code


Described = tuple[str | None, int]
"""A value and its source."""


@built_on("BAS-12")
def described_by(broker: Broker, node: int, address: Address) -> Described | None:
    """The setting as the broker describes itself; None where it does not."""
    result = only(describe(broker, (BROKER_RESOURCE, str(node)), keys=[OF_BROKER], to=address), f"result for {node}")
    broker.expect_error(result.error_code, ErrorCode.NONE, what=f"DescribeConfigs of broker {node}")
    found = [(one.value, one.config_source) for one in result.configs if one.name == OF_BROKER]
    return found[0] if found else None


def await_described(broker: Broker, node: int, address: Address, wanted: Described | None, when: str) -> None:
    """Wait until the broker describes the setting with this value and source."""
    what = f"broker {node} describes (value, source) {wanted} for {OF_BROKER}, {when}"
    broker.eventually(lambda: described_by(broker, node, address) == wanted, what, within_s=IN_TIME_S)
    broker.saw(what)


@requirement(
    "CFG-17",
    notices="operator: kafka-configs --entity-type brokers --entity-name fails for a broker, or sets nothing there",
    source="KIP-226; ConfigAdminManager.preprocess; DynamicBrokerConfig.updateBrokerConfig",
    sentence="Each broker takes changes of its own settings (IncrementalAlterConfigs of the broker by its id, sent to that "
    "broker), whichever one is the controller: it describes them and follows them at once, and no longer when they are removed.",
    accepted="NONE(0) from each broker for its own message.max.bytes, another value each; each describes its own with source 2, "
    "and refuses a batch above it with MESSAGE_TOO_LARGE(10); after DELETE each has what it had, and takes the batch. A target "
    "that refuses the setting on each of its brokers is not judged",
    since="2.3",
    hooks=("config",),
    exclusive=True,
    apis={"IncrementalAlterConfigs": 0},
    deadline_s=90.0,
)  # fmt: skip
def own_settings(broker: Broker) -> None:
    if OF_TOPIC in broker.subject.profile.pinned:
        broker.skip(f"needs a target with Kafka's default of {OF_BROKER}", Lack.CONFIGURATION)
    brokers = {one.node_id: (one.host, one.port) for one in broker.metadata([]).brokers}
    topic, small = topic_on_every_node(broker), topic_on_every_node(broker, **{OF_TOPIC: str(LIMIT)})
    await_batches(broker, topic, ErrorCode.NONE, "by default")
    heeds_limits = broker.produce(small, BATCH).error_code == ErrorCode.MESSAGE_TOO_LARGE
    before = {node: described_by(broker, node, address) for node, address in brokers.items()}
    if missing := [node for node, found in before.items() if found is None]:
        broker.skip(f"needs brokers that describe {OF_BROKER}, which {missing} do not", Lack.CONFIGURATION)
    values = {node: str(LIMIT + number) for number, node in enumerate(sorted(brokers))}
    codes: dict[int, int] = {}
    try:
        for node, address in brokers.items():
            codes[node] = alter_broker(broker, node, SET, values[node], address)
        if ErrorCode.NONE not in codes.values():
            refusals = ", ".join(f"broker {node}: {error_name(code)}" for node, code in codes.items())
            broker.skip(f"needs brokers whose own settings can change: {OF_BROKER}: {refusals}", Lack.CONFIGURATION)
        for node, code in codes.items():
            broker.expect_error(code, ErrorCode.NONE, what=f"SET {OF_BROKER} on broker {node}")
        for node, address in brokers.items():
            await_described(broker, node, address, (values[node], DYNAMIC_BROKER), "as it was set there")
        if heeds_limits:  # else PRD-07 fails
            await_batches(broker, topic, ErrorCode.MESSAGE_TOO_LARGE, f"under its own {OF_BROKER}")
    finally:
        left = {
            node: alter_broker(broker, node, DELETE, None, brokers[node])
            for node, code in codes.items()
            if code == ErrorCode.NONE
        }
    for node, code in left.items():
        broker.expect_error(code, ErrorCode.NONE, what=f"DELETE {OF_BROKER} on broker {node}")
    for node, address in brokers.items():
        await_described(broker, node, address, before[node], "after DELETE")
    await_batches(broker, topic, ErrorCode.NONE, "afterwards")
