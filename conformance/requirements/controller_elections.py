"""ELE: elections of the active controller, and the description of the quorum."""

from contextlib import suppress
from typing import Any

from conformance.broker import Broker
from conformance.cluster import NO_ID, QUICK, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.cluster_state import Writes
from conformance.moments import ATTEMPTS
from conformance.requirement import requirement
from conformance.wire import Failed
from linearizability.client.requests import Topic

DEADLINE_S = 180.0
ENDS = ("kill", "restart")


@requirement(
    "ELE-16",
    notices="stuck: no leader is chosen and no topic is made any more",
    source="KIP-500; KIP-595",
    sentence="When the active controller dies, produce and fetch go on, another one of the quorum becomes active in a later "
    "epoch, and topics can be made again.",
    accepted="50 writes without an error right after the kill, and fetches that give all of them, which may end after the "
    "election; another controller in a later epoch; a new topic",
    nodes=3, hooks=ENDS, configs=QUICK, apis={"DescribeQuorum": 0}, deadline_s=DEADLINE_S,
)  # fmt: skip
def the_controller_dies(broker: Broker) -> None:
    with cluster(broker) as nodes:
        goes_on = any(writes_go_on(nodes) for _ in range(ATTEMPTS))
        broker.expect(goes_on, "produce and fetch go on without an error when the active controller dies")


def writes_go_on(nodes: JudgedCluster) -> bool:
    """Kill the active controller; return whether a writer and a reader saw no error. Another controller must become active and
    work.

    On a busy machine a write may time out, because a follower that lags leaves the ISR only through a controller.
    """
    broker, (leader, follower, active) = nodes.broker, nodes.cast()
    topic, writes = nodes.topic(leader, follower), Writes()
    nodes.write_some(topic, writes, 10)
    failures, before = len(writes.errors), nodes.quorum()
    if before.leader_id not in nodes.addresses:
        broker.skip(f"the active controller {before.leader_id} is no broker: no hook reaches it")
    if before.leader_id != active:
        broker.skip("the active controller changed before it was ended")
    nodes.kill(active)
    nodes.write_some(topic, writes, 50)
    reads = reads_go_on(nodes, topic, writes)
    broker.saw(f"{len(writes.errors) - failures} errors for 50 records")

    def replaced() -> Any:
        with suppress(Failed):  # a node that forwards the request may wait for the dead controller
            now = nodes.quorum()
            return now if now.leader_id not in (active, NO_ID) else None
        return None

    after = broker.eventually(replaced, "another controller is active", within_s=STATE_WITHIN_S)
    broker.expect(after.leader_epoch > before.leader_epoch, f"node {after.leader_id} is active in a later epoch")

    def made() -> Topic | None:
        with suppress(
            Failed
        ):  # a target that ignores assignments may choose the dead node, until it is fenced (REP-05)
            return nodes.topic(leader, follower)
        return None

    nodes.write_some(broker.eventually(made, "a topic can be made again", within_s=STATE_WITHIN_S), Writes(), 5)
    nodes.expect_kept(topic, writes)
    nodes.mend()
    return reads and len(writes.errors) == failures


def reads_go_on(nodes: JudgedCluster, topic: Topic, writes: Writes) -> bool:
    """Whether what was written can be read now. On a busy machine the leader may change meanwhile."""
    try:
        nodes.expect_kept(topic, writes)
    except Failed as failure:
        nodes.broker.saw(f"not read while no controller is active: {failure}")
        return False
    return True


@requirement(
    "ELE-18",
    notices="tool: kafka-metadata-quorum describe shows the quorum's state by it",
    source="KIP-595; DescribeQuorum",
    sentence="DescribeQuorum, asked of any broker, reports the active controller, its epoch, a high watermark up to which its "
    "log reaches, and every voter with its log end.",
    accepted="the same leader and epoch from every broker; the leader among the voters; voters that come up to the high "
    "watermark",
    nodes=3, configs=QUICK, apis={"DescribeQuorum": 0}, deadline_s=DEADLINE_S,
)  # fmt: skip
def the_quorum_described(broker: Broker) -> None:
    with cluster(broker) as nodes:

        def agreed() -> bool:
            reported: set[tuple[int, int]] = set()
            for node in nodes.reachable:
                broker.entrance = nodes.address(node)
                quorum = nodes.quorum()
                ends = {one.replica_id: one.log_end_offset for one in quorum.current_voters}
                if not ends.get(quorum.leader_id, 0) >= quorum.high_watermark > 0:  # in an election neither is known
                    return False
                reported.add((quorum.leader_id, quorum.leader_epoch))
            return len(reported) == 1

        what = (
            "all brokers report the same leader and epoch, and a voter as leader whose log reaches the high watermark"
        )
        broker.eventually(agreed, what, within_s=STATE_WITHIN_S)
        first = nodes.quorum()

        def followed() -> bool:
            ends = {one.replica_id: one.log_end_offset for one in nodes.quorum().current_voters}
            return min(ends.values()) >= first.high_watermark

        broker.eventually(followed, f"every voter comes up to {first.high_watermark}", within_s=STATE_WITHIN_S)
