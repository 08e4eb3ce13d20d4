"""EPO: leader epochs over several leaders. Every later reader must see the same record and epoch at an offset."""

from collections.abc import Iterable

from conformance.batches import batch, batches
from conformance.broker import Broker
from conformance.cluster import QUICK, JudgedCluster, cluster
from conformance.moments import in_time
from conformance.requirement import requirement
from conformance.wire import Failed
from linearizability.client.requests import Topic

LEADER_EPOCHS = 3
TAIL = 4
"""The number of records that only the leader has when it is killed."""


class EpochsByOffset:
    """The records that readers received: offset -> (leader epoch, value)."""

    def __init__(self) -> None:
        self.at: dict[int, tuple[int, bytes | None]] = {}
        self.answers = 0

    def take(self, data: bytes, who: str) -> None:
        """Compare the records that a node serves with all earlier ones. Errors: Failed if they differ."""
        self.answers += 1
        for one in batches(data):
            for record in one.records():
                seen = one.partition_leader_epoch, record.value
                known = self.at.setdefault(record.offset, seen)
                if known != seen:
                    raise Failed(f"offset {record.offset} is {seen} at {who}, and was {known}: epochs and records")


def change_the_leader(nodes: JudgedCluster, topic: Topic, reported: EpochsByOffset, leader: int, follower: int) -> bool:
    """Kill the leader with records that no other node has, write to the follower as leader, and restart the old leader.

    Returns False if the machine was too slow for it; then both are in sync again.
    """
    broker = nodes.broker
    epoch = nodes.state(topic).epoch
    broker.append(topic, batch(b"shared, epoch %d" % epoch))
    with nodes.paused(follower) as moment:
        for number in range(TAIL):
            broker.append(topic, batch(b"tail %d, epoch %d" % (number, epoch)), acks=1)
        reported.take(broker.log(topic), f"the leader, node {leader}, with its tail")
        lasts = follower in nodes.state(topic).isr  # else it may be fenced, and cannot become the leader
        nodes.kill(leader)
        lasts = lasts and moment.lasts
    if lasts:
        nodes.await_leader(topic, follower, above=epoch)
        for number in range(TAIL):
            broker.append(topic, batch(b"after %d, epoch %d" % (number, epoch)))
        reported.take(broker.log(topic), f"the new leader, node {follower}")
    nodes.restart(leader)
    nodes.await_isr(topic, leader, follower)
    return lasts


def look_everywhere(nodes: JudgedCluster, topic: Topic, reported: EpochsByOffset, places: Iterable[int]) -> None:
    """Read the log of each of these nodes up to its end, and compare it with all earlier records."""
    end = nodes.broker.end_offset(topic)
    for node in places:
        reported.take(nodes.log_from(topic, node, end), f"node {node}")


@requirement(
    "EPO-10",
    notices="data: two consumers read different records at one offset",
    source="KIP-101; KIP-320; documentation, design, replication",
    sentence="What a consumer has read at an offset stays there, with its leader epoch, whichever replica leads and whichever "
    "replica serves it.",
    accepted="over three leaders, each ended with records that only the leader had: one record and one epoch for every offset "
    "that was shown, at every node",
    nodes=3, hooks=("pause", "resume", "kill", "restart"), configs=QUICK, apis={"Fetch": 11}, deadline_s=300.0,
    draft="the draft asks for one record of each offset and epoch; without unclean elections an offset has one epoch, too",
)  # fmt: skip
def one_record_an_offset(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic, reported = nodes.topic(leader, follower), EpochsByOffset()

        def once() -> bool:
            first = nodes.state(topic).leader
            second = follower if first == leader else leader
            return change_the_leader(nodes, topic, reported, first, second)

        for _ in range(LEADER_EPOCHS):
            in_time(broker, once)
            look_everywhere(nodes, topic, reported, (leader, follower))
        epochs = {epoch for epoch, _ in reported.at.values()}
        broker.expect(len(epochs) > LEADER_EPOCHS, f"records of {len(epochs)} epochs were read, of one for each leader")
        broker.saw(f"{reported.answers} answers report the same of {len(reported.at)} offsets")
