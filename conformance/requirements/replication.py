"""REP: replication: the ISR, the high watermark, and that acknowledged or consumed records are kept."""

import time

from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.cluster import PATIENT, QUICK, STATE_WITHIN_S, cluster
from conformance.cluster_state import Writes
from conformance.moments import in_time
from conformance.replica_fetches import fetch_as
from conformance.requirement import requirement, untestable
from conformance.requirements.leader_epochs import end_of_epoch
from reference.protocol.errors import ErrorCode

DEADLINE_S = 180.0
FREEZES = ("pause", "resume")
ENDS = ("kill", "restart")
NEWS_S = 0.1
"""How long the suite waits for Metadata to report a change that must not happen."""


@requirement(
    "REP-01",
    notices="data: consumers read what is lost with the leader, or records twice",
    source="Partition.maybeIncrementLeaderHW; KIP-497",
    sentence="The high watermark is the least log end offset of the replicas in sync, and does not go back when one asks for "
    "less.",
    accepted="with one follower in whose name we fetch at 0, 1, 3, 5 and 2: a high watermark of 0, 1, 3, 5 and 5",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def least_log_end(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()

        def once() -> bool:
            topic = nodes.topic(leader, follower)
            with nodes.paused(follower) as moment:
                broker.append(topic, batch(b"a"), acks=1)
                broker.append(topic, batch(b"b", b"c"), acks=1)
                broker.append(topic, batch(b"d", b"e"), acks=1)
                seen: list[int] = []
                ends: list[int] = []
                for offset in (0, 1, 3, 5, 2):
                    fetch_as(broker, topic, follower, offset, nodes.address(leader))
                    seen.append(broker.fetch(topic, 0).high_watermark)
                    ends.append(broker.end_offset(topic))
                if not moment.keeps(nodes, topic, follower):
                    return False
            broker.expect_equal("the high watermarks, by Fetch", seen, [0, 1, 3, 5, 5])
            broker.expect_equal("the ends for consumers, by ListOffsets", ends, [0, 1, 3, 5, 5])
            return True

        in_time(broker, once, failures=2)


@requirement(
    "REP-02",
    notices="data: acknowledged records are lost with the leader",
    source="Partition.checkEnoughReplicasReachOffset; documentation, design, replication",
    sentence="A record that was acknowledged with acks=-1 is in the log of every replica in sync: any replica that "
    "leads next has it.",
    accepted="after the leader's kill -9 every record of two partitions, whose next leaders are two different nodes",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def on_every_replica_in_sync(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, one, other = nodes.cast()
        topics = [nodes.topic(leader, one, other), nodes.topic(leader, other, one)]
        reported = [Writes(), Writes()]
        for topic, writes in zip(topics, reported, strict=True):
            nodes.write_some(topic, writes, 20)
        nodes.kill(leader)
        for topic, writes in zip(topics, reported, strict=True):
            nodes.await_leader(topic, one, other)
            nodes.expect_kept(topic, writes)


@requirement(
    "REP-03",
    notices="stuck: one follower that hangs holds all writes with acks=-1 up",
    source="Partition.maybeShrinkIsr; replica.lag.time.max.ms",
    sentence="A follower that has not caught up for replica.lag.time.max.ms leaves the ISR, although its broker is not fenced, "
    "and Metadata shows it; once it has caught up it is in sync again.",
    accepted="a frozen follower leaves the ISR while Metadata still lists its broker; both are in sync after it goes on",
    nodes=3, hooks=FREEZES, configs=PATIENT, deadline_s=DEADLINE_S,
    draft="a follower whose log ends where the leader's does is not behind, however long it is silent",
)  # fmt: skip
def a_lagging_follower_leaves(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()

        def once() -> bool:
            topic = nodes.topic(leader, follower)
            broker.append(topic, batch(b"x"))
            before = nodes.state(topic)
            try:
                nodes.freeze_out(topic, follower, b"y")
                broker.expect_equal(f"whether node {follower} is fenced", follower not in nodes.living(), False)
            finally:
                nodes.resume(follower)
                nodes.await_known(follower)
            after = nodes.await_isr(topic, leader, follower)
            broker.expect_equal("the leader", after.leader, before.leader)
            broker.expect_equal("the high watermark", broker.end_offset(topic), 2)
            return True

        # a leader may send AlterPartition to a former controller that is frozen: its answer comes only after the fencing
        in_time(broker, once, failures=2)


@requirement(
    "REP-04",
    notices="data: a follower that lacks acknowledged records may lead",
    source="Partition.isFollowerInSync",
    sentence="A follower comes back into the ISR only once it asks for the high watermark or more.",
    accepted="fetches in its name below the high watermark leave it out; one at the high watermark brings it in",
    nodes=3, hooks=FREEZES, configs=PATIENT, deadline_s=DEADLINE_S,
)  # fmt: skip
def back_when_caught_up(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower)
        broker.append(topic, batch(b"a", b"b", b"c"))
        nodes.freeze_out(topic, follower, b"d")
        broker.append(topic, batch(b"e"))
        seen: set[int] = set()
        for offset in (0, 3, *[4] * 10):
            fetch_as(broker, topic, follower, offset, nodes.address(leader))
            until = time.monotonic() + NEWS_S
            while time.monotonic() < until:  # a follower that joins wrongly may be removed again at once, as it lags
                seen |= nodes.state(topic).isr
        broker.expect_equal("the ISR after fetches at 0, 3 and 4 of 5", seen, {leader})

        def brought() -> bool:
            fetch_as(broker, topic, follower, 5, nodes.address(leader))
            return follower in nodes.state(topic).isr

        broker.eventually(brought, f"fetches at offset 5 of 5 bring node {follower} into the ISR")
        broker.saw(f"fetches at offset 5 of 5 bring node {follower} into the ISR")


@requirement(
    "REP-19",
    notices="data: a follower that lacks what the leader before acknowledged may lead",
    source="Partition.isFollowerInSync",
    sentence="A follower comes back into a new leader's ISR only once it asks for the offset where that leader's epoch begins, "
    "though the high watermark is lower.",
    accepted="fetches in its name at the high watermark and between the two leave it out; one at the start brings it in",
    since="4.0",
    nodes=3, hooks=FREEZES, configs=PATIENT, deadline_s=DEADLINE_S,
)  # fmt: skip
def back_when_in_the_epoch(broker: Broker) -> None:
    with cluster(broker) as nodes:
        former, follower, leader = nodes.cast()
        topic = nodes.topic(former, leader, follower, in_sync=3)
        committed = broker.append(topic, batch(b"a")) + 1
        nodes.freeze_out(topic, follower, b"b")  # from here on the ISR is too small to commit a record
        broker.append(topic, batch(b"c", b"d"), acks=1)
        nodes.change_leader(topic, leader)
        begins = end_of_epoch(broker, topic, broker.leader_epoch(topic) - 1).end_offset
        broker.expect(
            committed <= begins <= committed + 3,
            f"the epoch begins behind the committed record, and among those written: offset {begins}",
        )
        if begins == committed:  # records that only the leader has are lost with its leadership
            broker.skip("nothing that was not committed has reached the next leader")
        broker.expect_equal("the high watermark", broker.fetch(topic, committed).high_watermark, committed)
        seen: set[int] = set()
        for offset in (committed, *[begins - 1] * 10):
            fetch_as(broker, topic, follower, offset, nodes.address(leader))
            until = time.monotonic() + NEWS_S
            while time.monotonic() < until:
                seen |= nodes.state(topic).isr
        reported = f"fetches at {committed} and {begins - 1}, before the epoch's start at {begins}"
        broker.expect_equal(f"the ISR after {reported}", seen, {former, leader})

        def brought() -> bool:
            fetch_as(broker, topic, follower, begins, nodes.address(leader))
            return follower in nodes.state(topic).isr

        broker.eventually(brought, f"fetches at offset {begins} bring node {follower} into the ISR")
        broker.saw(f"fetches at offset {begins} bring node {follower} into the ISR")


@requirement(
    "REP-05",
    notices="stuck: partitions of a dead broker have no leader, and clients are sent to it",
    source="ReplicationControlManager.handleBrokerFenced; broker.session.timeout.ms; documentation, design, 4.7",
    sentence="A broker that is dead for broker.session.timeout.ms is in no ISR with others, leads nothing and is not in "
    "Metadata; when it is back it is in sync again.",
    accepted="after kill -9 its partitions are led by another one of the ISR, without it; after its restart both are in sync",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def a_dead_broker_is_fenced(broker: Broker) -> None:
    with cluster(broker) as nodes:
        other, dead, _ = nodes.cast()
        led, followed = nodes.topic(dead, other), nodes.topic(other, dead)
        nodes.kill(dead)
        for topic in (led, followed):
            nodes.await_state(
                topic, lambda state: state.leader == other and dead not in state.isr, f"{other} leads alone"
            )
        broker.expect(dead not in nodes.living(), f"node {dead} is not among the brokers of Metadata")
        nodes.restart(dead)
        for topic in (led, followed):
            nodes.await_isr(topic, dead, other)


@requirement(
    "REP-06",
    notices="data: another replica leads without the records that only this one has",
    source="PartitionChangeBuilder; KIP-966",
    sentence="The last replica in sync is never forgotten: when its broker is fenced it stays in the ISR, or is the eligible "
    "leader replica, and it leads again when it is back.",
    accepted="no leader and this replica in the ISR or eligible; afterwards leader and in sync with every record",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=DEADLINE_S,
    draft="the draft knew only of an ISR that is never empty; with eligible leader replicas (Kafka 4.1 and later) it is, and the "
    "replica is eligible instead",
)  # fmt: skip
def the_last_one_is_kept(broker: Broker) -> None:
    with cluster(broker) as nodes:
        _, only_one, _ = nodes.cast()
        topic = nodes.topic(only_one)
        writes = Writes()
        nodes.write_some(topic, writes, 5)
        nodes.pause(only_one)
        state = nodes.await_leaderless(topic)
        kept = set(state.isr)
        if not kept:
            kept = set(nodes.described(topic).eligible_leader_replicas or ())
            broker.saw(f"the ISR is empty; eligible to lead: {sorted(kept)}")
        broker.expect_equal("the ISR, or the eligible leader replicas if it is empty", kept, {only_one})
        nodes.resume(only_one)
        nodes.await_leader(topic, only_one)
        nodes.await_isr(topic, only_one)
        nodes.expect_kept(topic, writes)


@requirement(
    "REP-07",
    notices="data: consumers read records that are lost with the last in-sync replica (KIP-966)",
    since="4.0",
    source="Partition.isUnderMinIsr; KIP-966",
    sentence="While fewer than min.insync.replicas are in sync the high watermark stands still, also for acks=1, and what is "
    "below it is served.",
    accepted="a record with acks=1 is acknowledged and not shown; the records before are; both are shown once a replica is back",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=DEADLINE_S,
    draft="documentation, design 4.7 says that such a record may be consumed below the minimum; since Kafka 4.0 it may not",
)  # fmt: skip
def under_the_minimum(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower, in_sync=2)
        broker.append(topic, batch(b"a"))
        nodes.freeze_out(topic, follower, b"b")
        part = broker.fetch(topic, 1, max_wait_ms=1_000)
        broker.expect_equal("what a fetch at offset 1 gives in a second", values(part.records or b""), [])
        broker.expect_equal("the high watermark", part.high_watermark, 1)
        broker.expect_equal("what is shown", values(broker.log(topic)), [b"a"])
        nodes.resume(follower)
        broker.eventually(lambda: values(broker.log(topic)) == [b"a", b"b"], "both are shown", within_s=STATE_WITHIN_S)
        broker.saw("both are shown once the follower is back")


@requirement(
    "REP-08",
    notices="data: what consumers read depends on who leads",
    source="documentation, design, replication; ReplicaFetcherThread",
    sentence="When a follower has caught up its log is, byte for byte, the leader's.",
    accepted="both nodes serve the same bytes up to the high watermark",
    nodes=3, hooks=FREEZES, configs=QUICK, apis={"Fetch": 11}, deadline_s=DEADLINE_S,
)  # fmt: skip
def byte_for_byte(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower)
        broker.append(topic, batch(b"before"))
        nodes.freeze_out(topic, follower, b"while it is frozen")
        for number in range(60):
            broker.append(topic, batch(*(b"%d" % number * 50 for _ in range(1 + number % 7)), codec=number % 5))
        nodes.resume(follower)
        nodes.await_isr(topic, leader, follower)
        end = broker.end_offset(topic)
        logs = [nodes.log_from(topic, node, end) for node in (leader, follower)]
        broker.expect(logs[0] == logs[1], f"both nodes have the same {len(logs[0])} bytes of {end} records")


@requirement(
    "REP-14",
    notices="data: a dead broker is in sync, and may be chosen to lead",
    source="Partition.isReplicaIsrEligible; KIP-841; KIP-903",
    sentence="A fenced broker is not added to an ISR, whatever is fetched in its name.",
    accepted="fetches at the log end in the name of a fenced broker leave it out; it is in sync once it goes on",
    since="3.3",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def a_fenced_broker_stays_out(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower)
        broker.append(topic, batch(b"x"))
        nodes.freeze_out(topic, follower, b"y")
        nodes.await_fenced(follower)
        seen: set[int] = set()
        for _ in range(10):
            fetch_as(broker, topic, follower, 2, nodes.address(leader), max_wait_ms=100)
            seen |= nodes.state(topic).isr
        broker.expect_equal("the ISR while the broker was fenced", seen, {leader})
        nodes.resume(follower)
        nodes.await_isr(topic, leader, follower)


@requirement(
    "REP-15",
    notices="stuck: one follower that is out of sync holds all writes with acks=-1 up",
    source="Partition.checkEnoughReplicasReachOffset",
    sentence="A follower that is not in sync holds up no write with acks=-1.",
    accepted="acknowledgements while it is frozen, and the records are shown",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def nobody_waits_for_who_is_out(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, third = nodes.cast()
        topic = nodes.topic(leader, follower, third, in_sync=2)
        nodes.freeze_out(topic, follower, b"x")
        for number in range(1, 6):
            broker.expect_equal("the base offset", broker.append(topic, batch(b"x")), number)
        broker.expect_equal("the high watermark", broker.end_offset(topic), 6)
        broker.expect(follower in nodes.frozen, f"node {follower} is still frozen")


@requirement(
    "REP-18",
    notices="data: any client's fetch acknowledges records for a replica that does not have them",
    source="Partition.followerReplicaOrThrow",
    sentence="A fetch in the name of a broker that is no replica of the partition is refused and moves nothing.",
    accepted="no records, and NOT_LEADER_OR_FOLLOWER(6) without a current leader epoch, UNKNOWN_LEADER_EPOCH(75) with one (no "
    "error before 3.3, KAFKA-13837); the in-sync replicas stay",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def strangers_do_not_follow(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, stranger = nodes.cast()
        topic = nodes.topic(leader, follower)
        broker.append(topic, batch(b"x"))
        before = nodes.state(topic)
        for current, refused in (
            (-1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (before.epoch, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            error = refused if broker.is_kafka("3.3") else ErrorCode.NONE
            for who in (stranger, 99):
                found = fetch_as(broker, topic, who, 1, nodes.address(leader), current_leader_epoch=current)
                reported = f"a fetch of broker {who} with the current leader epoch {current}"
                broker.expect_error(found.error_code, error, what=reported)
                broker.expect_equal("the records in the response", bytes(found.records or b""), b"")
        broker.expect_equal("the partition", nodes.state(topic), before)


untestable(
    "REP-13",
    notices="data: a deposed leader decides who is in sync, and a replica without all records may lead",
    sentence="AlterPartition is refused for a stale leader epoch (74), a stale partition epoch (95), from who does not lead "
    "(42), for epochs that the controller does not know yet (41), and for an ISR with an ineligible broker (107) or without the "
    "leader (42).",
    source="ReplicationControlManager.validateAlterPartitionData",
    reason="it is a request between brokers: the sender must be registered as one, and may ask only about partitions that "
    "it leads",
)
