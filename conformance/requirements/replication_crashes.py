"""REP: acknowledged or consumed records survive crashes and pauses of leaders and followers."""

from collections.abc import Callable
from contextlib import suppress

from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.cluster import QUICK, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.cluster_state import Writes
from conformance.moments import in_time
from conformance.requirement import requirement
from conformance.requirements.replication import DEADLINE_S, ENDS, FREEZES
from conformance.wire import Failed
from linearizability.client.requests import Topic


def survive_on_the_follower(nodes: JudgedCluster, leader: int, follower: int) -> tuple[Topic, list[bytes]] | None:
    """A topic whose leader was killed with records that no other node has, and whose follower leads now.

    Returns the topic and the values in the new leader's log; the last one is new, at an offset where the dead leader has a lost
    record. None if the machine was too slow. The dead leader stays down. The follower may have some of its records, because a
    fetch that waited when the follower froze gets the first append as its response.
    """
    broker = nodes.broker
    topic = nodes.topic(leader, follower)
    written = [b"kept", *(b"lost, perhaps %d" % number for number in range(4))]
    broker.append(topic, batch(written[0]))
    epoch = nodes.state(topic).epoch
    with nodes.paused(follower) as moment:
        for value in written[1:]:
            broker.append(topic, batch(value), acks=1)
        lasts = follower in nodes.state(topic).isr  # else it may be fenced, and cannot become the leader
        nodes.kill(leader)
        lasts = lasts and moment.lasts
    if lasts:
        nodes.await_leader(topic, follower, above=epoch)
    shown = [value or b"" for value in values(broker.log(topic))] if lasts else written
    if shown == written:
        nodes.restart(leader)
        return None
    broker.expect_equal("the records that the new leader serves", shown, written[: len(shown)])
    broker.expect_equal("the next base offset", broker.append(topic, batch(b"new")), len(shown))
    return topic, [*shown, b"new"]


@requirement(
    "REP-09",
    notices="data: two nodes have different records at one offset",
    source="KIP-101; documentation, design, replication",
    sentence="A leader that comes back with records that were not replicated drops them: its offsets hold what the new leader "
    "wrote.",
    accepted="both nodes serve the same bytes, without those records, and so does the old leader when it leads again",
    nodes=3, hooks=(*FREEZES, *ENDS), configs=QUICK, apis={"Fetch": 11}, deadline_s=DEADLINE_S,
)  # fmt: skip
def an_old_leader_truncates(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()

        def once() -> bool:
            survived = survive_on_the_follower(nodes, leader, follower)
            if survived is None:
                return False
            topic, wanted = survived
            nodes.restart(leader)
            nodes.await_isr(topic, leader, follower)
            logs = [nodes.log_from(topic, node, len(wanted)) for node in (leader, follower)]
            broker.expect_equal("the records that the old leader serves", values(logs[0]), wanted)
            broker.expect(logs[0] == logs[1], "both nodes have the same bytes")
            nodes.lead(topic, leader)
            broker.expect_equal(
                "the records that the old leader serves when it leads again", values(broker.log(topic)), wanted
            )
            broker.expect_equal("its next base offset", broker.append(topic, batch(b"more")), len(wanted))
            return True

        in_time(broker, once)


@requirement(
    "REP-10",
    notices="data: acknowledged records are lost when all replicas crash, or logs differ afterwards",
    source="KIP-101; LeaderEpochFileCache",
    sentence="When all replicas crash at once and come back, what was acknowledged with acks=-1 is there, and their logs are the "
    "same.",
    accepted="every acknowledged record at its offset, and the same bytes on both nodes, also after writing on",
    nodes=3, hooks=ENDS, configs=QUICK, apis={"Fetch": 11}, deadline_s=240.0,
)  # fmt: skip
def a_double_crash(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic, writes = nodes.topic(leader, follower), Writes()
        nodes.write_some(topic, writes, 20)
        nodes.kill(leader, follower)
        nodes.restart(leader, follower)
        nodes.await_leader(topic, leader, follower)
        nodes.expect_kept(topic, writes)
        nodes.write_some(topic, writes, 5)
        nodes.await_isr(topic, leader, follower)
        nodes.expect_kept(topic, writes)
        end = broker.end_offset(topic)
        logs = [nodes.log_from(topic, node, end) for node in (leader, follower)]
        broker.expect(logs[0] == logs[1], f"both nodes have the same {len(logs[0])} bytes of {end} records")


def expect_shown_is_kept(broker: Broker, lose: Callable[[JudgedCluster, int], None]) -> None:
    """Expect that records consumed before the loss of the leader can be consumed afterwards, at the same offsets."""
    with cluster(broker) as nodes:
        leader, one, other = nodes.cast()
        topic = nodes.topic(leader, one, other)
        epoch, shown = nodes.state(topic).epoch, b""
        broker.append(topic, batch(b"first"), acks=-1)
        for number in range(200):
            broker.append(topic, batch(b"%d" % number), acks=1)
            if number % 10 == 9:
                shown = broker.log(topic)
        lose(nodes, leader)
        broker.expect(bool(shown), f"{len(values(shown))} records, at least one, were shown")
        nodes.await_leader(topic, one, other, above=epoch)

        def served() -> bytes | None:
            with suppress(Failed):
                data = broker.log(topic)
                return data if len(data) >= len(shown) else None
            return None

        after = broker.eventually(served, "the new leader serves as much as was shown", within_s=STATE_WITHIN_S)
        broker.expect(after[: len(shown)] == shown, f"the {len(values(shown))} records that were shown are the same")
        broker.append(topic, batch(b"more"))
        nodes.mend()
        nodes.await_isr(topic, leader, one, other)
        again = nodes.log_from(topic, leader, broker.end_offset(topic))
        broker.expect(again[: len(shown)] == shown, "they are the same on the old leader")


@requirement(
    "REP-11",
    notices="data: what a consumer has read is gone, or another record is there",
    source="documentation, design, replication",
    sentence="What a consumer was shown stays, when the leader crashes under writes with acks=1, as long as no unclean election "
    "is held.",
    accepted="the same bytes from the new leader, and from the old one when it is back",
    nodes=3, hooks=ENDS, configs=QUICK, apis={"Fetch": 11}, deadline_s=DEADLINE_S,
)  # fmt: skip
def shown_before_a_crash(broker: Broker) -> None:
    expect_shown_is_kept(broker, lambda nodes, leader: nodes.kill(leader))


@requirement(
    "REP-12",
    notices="data: what a consumer has read is gone, or another record is there",
    source="documentation, design, replication; KIP-207",
    sentence="When a leader that does not answer is replaced, offsets that consumers were shown are served again unchanged, "
    "whatever the new leader's first high watermark is; the old one follows when it goes on.",
    accepted="the same bytes from the new leader, and from the old one when it goes on",
    nodes=3, hooks=FREEZES, configs=QUICK, apis={"Fetch": 11}, deadline_s=DEADLINE_S,
)  # fmt: skip
def shown_before_a_freeze(broker: Broker) -> None:
    expect_shown_is_kept(broker, lambda nodes, leader: nodes.pause(leader))


@requirement(
    "REP-16",
    notices="data: acknowledged records are lost when the power comes back",
    source="documentation, design, replication",
    sentence="When every node is ended at once and started again, no record is lost that was acknowledged with acks=-1.",
    accepted="every acknowledged record at its offset; the partition takes writes again",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=240.0,
)  # fmt: skip
def everything_crashes(broker: Broker) -> None:
    with cluster(broker) as nodes:
        everyone = nodes.cast()
        topic, writes = nodes.topic(*everyone, in_sync=2), Writes()
        nodes.write_some(topic, writes, 30)
        nodes.kill(*everyone)
        nodes.restart(*everyone)
        nodes.await_leader(topic, *everyone)
        nodes.expect_kept(topic, writes)
        nodes.write_some(topic, writes, 5)
        nodes.expect_kept(topic, writes)


@requirement(
    "REP-17",
    notices="data: acknowledged records are lost with one broker",
    source="documentation, design 4.7",
    sentence="With three replicas and min.insync.replicas=2, kill -9 of the leader under load loses no record that was "
    "acknowledged with acks=-1.",
    accepted="every acknowledged record at its offset, before and after the old leader is back",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def a_crash_under_load(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, one, other = nodes.cast()
        topic, writes = nodes.topic(leader, one, other, in_sync=2), Writes()
        nodes.write_some(topic, writes, 100)
        nodes.kill(leader)
        nodes.write_some(topic, writes, 50)
        nodes.expect_kept(topic, writes)
        nodes.restart(leader)
        nodes.await_isr(topic, leader, one, other)
        nodes.write_some(topic, writes, 10)
        nodes.expect_kept(topic, writes)
