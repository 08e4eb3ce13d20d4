"""CFG: configurations that survive failures of brokers and controllers."""

from contextlib import suppress

from conformance.answers import only
from conformance.broker import TOPIC_RESOURCE, Broker
from conformance.cluster import QUICK, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.requirement import requirement
from conformance.wire import Misbehaved
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

DEADLINE_S = 240
SET = 0
"""An operation of IncrementalAlterConfigs."""
ENDS = ("kill", "restart")


@requirement(
    "CFG-10",
    notices="data: records are kept or deleted by a retention that is no longer configured",
    source="KIP-339; ConfigurationControlManager.replay; metadata log",
    sentence="A change of a topic's configuration stays when the active controller dies and when every broker starts again.",
    accepted="each broker describes the value that was set, with another active controller and after all were restarted one by "
    "one",
    nodes=3, hooks=ENDS, configs=QUICK, apis={"IncrementalAlterConfigs": 0}, deadline_s=DEADLINE_S,
)  # fmt: skip
def configs_stay(broker: Broker) -> None:
    with cluster(broker) as nodes:
        one, other, active = nodes.cast()
        topic = nodes.topic(one, other)
        entry = IncrementalAlterConfigsRequest.AlterableConfig(
            name="retention.ms", config_operation=SET, value="123456789"
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic.name, configs=[entry]
        )
        answer = broker.call(IncrementalAlterConfigsRequest(resources=[resource]))
        broker.expect_error(only(answer.responses, "result").error_code, ErrorCode.NONE, what="IncrementalAlterConfigs")
        for node in (active, one, other):
            nodes.kill(node)
            for witness in nodes.reachable:
                expect_retention(broker, nodes, witness, topic, f"while node {node} is dead")
            nodes.restart(node)
            expect_retention(broker, nodes, node, topic, "it was killed and is back")


def expect_retention(broker: Broker, nodes: JudgedCluster, node: int, topic: Topic, when: str) -> None:
    """Wait until the node describes the retention that was set."""
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=topic.name, configuration_keys=["retention.ms"]
    )

    def reported() -> bool:
        with suppress(Misbehaved):
            answer = broker.call(DescribeConfigsRequest(resources=[resource]), to=nodes.address(node))
            found = only(answer.results, "result")
            return found.error_code == ErrorCode.NONE and [one.value for one in found.configs] == ["123456789"]
        return False

    broker.eventually(reported, f"node {node} describes retention.ms=123456789, {when}", within_s=STATE_WITHIN_S)
    broker.saw(f"node {node} describes it, {when}")
