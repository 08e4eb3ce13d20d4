"""COO: coordinators in a cluster: one broker for each key, and another one when it fails."""

from contextlib import suppress

from conformance.answers import only
from conformance.broker import Broker
from conformance.classic_groups import Group
from conformance.cluster import QUICK, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.committed_offsets import LOADING, commit, committed, expect_committed
from conformance.requirement import requirement
from conformance.transaction_client import CLASSIC, TransactionalClient
from conformance.wire import Failed, Misbehaved
from linearizability.client.requests import GROUP, TRANSACTION, Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.init_producer_id import InitProducerIdRequest

DEADLINE_S = 240
ENDS = ("kill", "restart")


def not_coordinating(broker: Broker, nodes: JudgedCluster, key: str, kind: int) -> list[tuple[int, tuple[str, int]]]:
    """The nodes that do not coordinate a key, with their addresses; expects all nodes but one."""
    at = broker.coordinator(key, kind)
    others = [(node, address) for node, address in sorted(nodes.addresses.items()) if address != at]
    reported = f"{len(others)} of {len(nodes.addresses)} brokers do not coordinate {key}"
    broker.expect(len(others) == len(nodes.addresses) - 1, reported)
    return others


@requirement(
    "COO-04",
    notices="data: two brokers coordinate one group or transaction, and each knows half of it",
    source="GroupCoordinatorService; TransactionStateManager.getTransactionState",
    sentence="A request about a group or a transactional id to a broker that does not coordinate it is refused with "
    "NOT_COORDINATOR.",
    accepted="NOT_COORDINATOR(16) from each other broker, for JoinGroup, SyncGroup, Heartbeat, OffsetCommit, OffsetFetch, "
    "InitProducerId, AddPartitionsToTxn and EndTxn",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def not_the_coordinator(broker: Broker) -> None:
    with cluster(broker) as nodes:
        topic, group = broker.topic(), Group(broker)
        group.await_coordinator()
        coordinator = group.address
        for node, address in not_coordinating(broker, nodes, group.name, GROUP):
            group.address, member = address, group.member(id="somebody")
            found = {
                "JoinGroup": group.member().ask_to_join().error_code,
                "SyncGroup": member.sync(generation=1).error_code,
                "Heartbeat": member.heartbeat(1),
                "OffsetCommit": only(
                    list(commit(broker, group.name, {(topic, 0): 5}, to=address).values()), "partition"
                ),
                "OffsetFetch": reported_by_offset_fetch(broker, group.name, topic, address),
            }
            group.address = coordinator
            for api, code in found.items():
                broker.expect_error(code, ErrorCode.NOT_COORDINATOR, what=f"{api} at node {node}")
        if InitProducerIdRequest.KEY not in broker.subject.api_versions:
            return
        client = TransactionalClient(broker, CLASSIC, initialised=False)
        for node, address in not_coordinating(broker, nodes, client.name, TRANSACTION):
            client.asked = address
            codes = {
                "InitProducerId": client.init(patient=False).error_code,
                "AddPartitionsToTxn": client.add(topic, identity=(1, 0), patient=False),
                "EndTxn": client.end(committed=True, identity=(1, 0), patient=False).error_code,
            }
            for api, code in codes.items():
                broker.expect_error(code, ErrorCode.NOT_COORDINATOR, what=f"{api} at node {node}")


def reported_by_offset_fetch(broker: Broker, group: str, topic: Topic, address: tuple[str, int]) -> int:
    """The error of OffsetFetch: the group's, or the partition's in versions without an error of the group."""
    found = committed(broker, group, [(topic, 0)], to=address)
    return found.error_code or next(iter(found.errors.values()), ErrorCode.NONE)


@requirement(
    "COO-05",
    notices="stuck: groups whose coordinator died get no other one, or lose what they committed for good",
    source="GroupCoordinatorService.onElection; CoordinatorLoaderImpl",
    sentence="When a group's coordinator dies another broker coordinates the group, and reports what was committed; until it has "
    "loaded the group's state it refuses requests.",
    accepted="FindCoordinator names another broker; then COORDINATOR_LOAD_IN_PROGRESS(14), COORDINATOR_NOT_AVAILABLE(15) or "
    "NOT_COORDINATOR(16) until the committed offset is reported; for a moment -1, where the high watermark lags (REP-12)",
    draft="it was thought never to say that nothing is committed: Kafka 4.3.1 does for a moment, as after any fail-over",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S, requires=("COO-01",),
)  # fmt: skip
def coordinator_dies(broker: Broker) -> None:
    with cluster(broker) as nodes:
        group = a_group_of_another(broker, nodes, nodes.cast()[2])
        dead = broker.coordinator(group)
        topic = nodes.topic(next(node for node in reversed(nodes.cast()) if nodes.address(node) != dead))
        for node in nodes.reachable:
            broker.eventually(
                lambda node=node: knows(nodes, topic, node), f"node {node} knows {topic.name}", within_s=STATE_WITHIN_S
            )
        expect_committed(broker, group, {(topic, 0): 5})
        nodes.kill(nodes.node_at(dead))
        empty = 0

        def reported() -> bool:
            nonlocal empty
            try:
                at = broker.coordinator(group)
                if at == dead:
                    return False
                found = committed(broker, group, [(topic, 0)], to=at)
            except Misbehaved:
                return False
            code = found.error_code or next(iter(found.errors.values()), ErrorCode.NONE)
            if code in LOADING:
                return False
            broker.expect_error(code, ErrorCode.NONE, what="OffsetFetch of the new coordinator")
            offset = only([*found.partitions.values()], "partition").offset
            empty += offset == -1
            return offset == 5

        broker.eventually(reported, "another broker reports the committed offset", within_s=STATE_WITHIN_S)
        if empty:
            broker.saw(f"{empty} answers said that nothing is committed")
        expect_committed(broker, group, {(topic, 0): 6})


def knows(nodes: JudgedCluster, topic: Topic, node: int) -> bool:
    """Whether a node's Metadata has the topic already."""
    with suppress(Failed):
        return nodes.state(topic, node).leader >= 0
    return False


def a_group_of_another(broker: Broker, nodes: JudgedCluster, avoided: int) -> str:
    """The name of a group that another node than `avoided` coordinates, or the last of 60 names if none does."""
    name = broker.unused_name("group")
    for _ in range(59):
        if broker.coordinator(name) != nodes.address(avoided):
            break
        name = broker.unused_name("group")
    return name
