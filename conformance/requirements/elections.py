"""ELE: elections. Which replica leads after a leader fails, which must not, and how a deposed leader responds."""

from collections.abc import Callable
from dataclasses import dataclass

from conformance.answers import error_name, only
from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.cluster import (
    CONNECTION_LOST,
    NO_ID,
    PREFERRED,
    QUICK,
    SESSION_MS,
    STATE_WITHIN_S,
    UNCLEAN,
    JudgedCluster,
    cluster,
)
from conformance.cluster_state import Writes
from conformance.moments import ATTEMPTS
from conformance.requirement import requirement
from conformance.wire import BrokerConnection, Failed
from linearizability.client.requests import Topic, produce_request
from reference.protocol.errors import RETRIABLE, ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.produce import ProduceRequest

DEADLINE_S = 180.0
FREEZES = ("pause", "resume")
ENDS = ("kill", "restart")
CUTS = ("partition", "heal")
BALANCES = QUICK | {
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "1",
}
ELIGIBLE_REPLICAS = "eligible.leader.replicas.version"


@requirement(
    "ELE-01",
    notices="stuck: producers and consumers have no leader any more, or lose what was acknowledged",
    source="PartitionChangeBuilder.electLeader; documentation, design, replication",
    sentence="When a leader dies another replica of the ISR leads, in a later leader epoch, with every record acknowledged with "
    "acks=-1, and takes writes.",
    accepted="a leader of the ISR, the same for every node, in a later epoch; records before and after the crash",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def the_next_leader(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, one, other = nodes.cast()
        topic, writes = nodes.topic(leader, one, other), Writes()
        nodes.write_some(topic, writes, 10)
        before = nodes.state(topic)
        nodes.kill(leader)
        after = nodes.await_leader(topic, *(before.isr - {leader}), above=before.epoch)
        nodes.write_some(topic, writes, 10)
        nodes.expect_kept(topic, writes)
        for witness in nodes.reachable:
            broker.eventually(
                lambda witness=witness: (
                    (seen := nodes.state(topic, witness)).leader == after.leader and seen.epoch >= after.epoch
                ),
                f"node {witness} reports leader {after.leader}",
                within_s=STATE_WITHIN_S,
            )


def leave_only_a_laggard(nodes: JudgedCluster, unclean: bool) -> tuple[Topic, Writes, int, int]:
    """A topic whose leader is dead, and whose live follower was not in sync when the last record was acknowledged.

    Returns the topic, the writes, the dead leader and the follower.
    """
    leader, follower, _ = nodes.cast()
    configs = {"unclean.leader.election.enable": str(unclean).lower()}
    topic, writes = nodes.topic(leader, follower, configs=configs), Writes()
    nodes.write_some(topic, writes, 5)
    nodes.freeze_out(topic, follower, writes.value())
    nodes.write_some(topic, writes, 5)
    nodes.kill(leader)
    nodes.resume(follower)
    return topic, writes, leader, follower


@requirement(
    "ELE-02",
    notices="data: a replica leads without acknowledged records",
    source="PartitionChangeBuilder.electAnyLeader; unclean.leader.election.enable=false",
    sentence="While no replica of the ISR is alive and unclean elections are off, no replica leads, though another is alive; "
    "the replica of the ISR leads when it is back, with every acknowledged record.",
    accepted="leader -1 while the follower that was out is alive; then the old leader, and both are in sync",
    nodes=3, hooks=(*FREEZES, *ENDS), configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def nobody_rather_than_a_laggard(broker: Broker) -> None:
    with cluster(broker) as nodes:
        topic, writes, leader, follower = leave_only_a_laggard(nodes, unclean=False)
        state = nodes.await_state(topic, lambda state: state.leader != leader, f"node {leader} does not lead")
        broker.expect_equal("the new leader", state.leader, NO_ID)
        broker.eventually(lambda: follower in nodes.living(), f"node {follower} is alive", within_s=STATE_WITHIN_S)
        broker.expect_equal(
            "the leader while only the follower outside the ISR is alive", nodes.state(topic).leader, NO_ID
        )
        nodes.restart(leader)
        nodes.await_leader(topic, leader)
        nodes.expect_kept(topic, writes)
        nodes.await_isr(topic, leader, follower)
        nodes.expect_kept(topic, writes)


@requirement(
    "ELE-03",
    notices="stuck: a partition stays without a leader though the administrator allowed any",
    source="PartitionChangeBuilder.electAnyLeader; unclean.leader.election.enable=true",
    sentence="While no replica of the ISR is alive and unclean elections are on for the topic, one that is alive leads, alone in "
    "sync; what only the others had is lost.",
    accepted="the follower that was out leads; afterwards both nodes have the same log, without the records that it lacked",
    nodes=3, hooks=(*FREEZES, *ENDS), configs=QUICK, apis={"Fetch": 11}, deadline_s=DEADLINE_S,
)  # fmt: skip
def a_laggard_rather_than_nobody(broker: Broker) -> None:
    with cluster(broker) as nodes:
        topic, writes, leader, follower = leave_only_a_laggard(nodes, unclean=True)
        nodes.await_leader(topic, follower)
        nodes.await_isr(topic, follower)
        kept = values(broker.log(topic))
        broker.expect(
            5 <= len(kept) < len(writes.sent),
            f"the new leader has only a part, {len(kept)} of {len(writes.sent)} records",
        )
        broker.expect_equal("the records of the new leader", kept, writes.sent[: len(kept)])
        broker.expect_equal("the next base offset", broker.append(topic, batch(b"new")), len(kept))
        nodes.restart(leader)
        nodes.await_isr(topic, leader, follower)
        logs = [nodes.log_from(topic, node, len(kept) + 1) for node in (leader, follower)]
        broker.expect(logs[0] == logs[1], "both nodes have the same bytes")
        broker.expect_equal("the records in both logs", values(logs[0]), [*kept, b"new"])


@requirement(
    "ELE-04",
    notices="tool: kafka-leader-election --election-type preferred moves nothing, or to a replica that is out of sync",
    source="ReplicationControlManager.electLeader; ElectLeaders, type 0",
    sentence="ElectLeaders of the preferred kind lets the first replica of the list lead, if it is in sync, in a later "
    "leader epoch.",
    accepted="NONE(0); the first replica leads in a later epoch, with the same ISR and the same records",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def the_preferred_leader(broker: Broker) -> None:
    with cluster(broker) as nodes:
        first, second, third = nodes.cast()
        topic, writes = nodes.topic(first, second, third), Writes()
        nodes.write_some(topic, writes, 5)
        for node in (second, third, first):
            stays = any(leads_with_all(nodes, topic, node) for _ in range(ATTEMPTS))
            broker.expect(stays, f"the ISR is the same when node {node} leads")
            nodes.write_some(topic, writes, 5)
        nodes.expect_kept(topic, writes)


def leads_with_all(nodes: JudgedCluster, topic: Topic, node: int) -> bool:
    """Make a replica the leader by a preferred election; return whether all are in sync. On a busy machine one may lag."""
    replicas = nodes.state(topic).replicas
    if nodes.state(topic).leader == node:
        nodes.lead(topic, next(other for other in replicas if other != node))
    nodes.await_isr(topic, *replicas)
    after = nodes.lead(topic, node)
    nodes.broker.expect_equal("the first replica", after.replicas[0], node)
    return after.isr == frozenset(replicas)


@requirement(
    "ELE-05",
    notices="tool: kafka-leader-election shows these codes, and takes the first for success",
    source="ReplicationControlManager.electLeader",
    sentence="A preferred election is ELECTION_NOT_NEEDED where the preferred replica leads, PREFERRED_LEADER_NOT_AVAILABLE "
    "where it is not in sync, and UNKNOWN_TOPIC_OR_PARTITION for what does not exist.",
    accepted="ELECTION_NOT_NEEDED(84), PREFERRED_LEADER_NOT_AVAILABLE(80), UNKNOWN_TOPIC_OR_PARTITION(3); nothing changes",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def preferred_elections_refused(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower)
        stays = any(is_refused_without_a_change(nodes, topic) for _ in range(ATTEMPTS))
        broker.expect(stays, "the partition is as before")
        broker.expect_error(nodes.reassign(topic, follower, leader).error_code, ErrorCode.NONE, what="another order")
        nodes.freeze_out(topic, follower, b"x")
        error = nodes.elect(topic)
        broker.expect_error(error, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, what="the preferred replica is out")
        broker.expect_equal("who leads", nodes.state(topic).leader, leader)


def is_refused_without_a_change(nodes: JudgedCluster, topic: Topic) -> bool:
    """Expect that two elections are refused; return whether the partition is unchanged. On a busy machine a follower may lag."""
    broker, before = nodes.broker, nodes.state(topic)
    broker.expect_error(nodes.elect(topic), ErrorCode.ELECTION_NOT_NEEDED, what="the preferred replica leads")
    error = nodes.elect(Topic(broker.unused_name(), topic.id, 1), PREFERRED)
    broker.expect_error(error, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what="an unknown topic")
    return nodes.state(topic) == before


@requirement(
    "ELE-06",
    notices="tool: kafka-leader-election shows these codes, and takes the first for success",
    source="ReplicationControlManager.electLeader; KIP-460",
    sentence="An unclean election is ELECTION_NOT_NEEDED where there is a leader, and ELIGIBLE_LEADERS_NOT_AVAILABLE "
    "where no replica is alive.",
    accepted="ELECTION_NOT_NEEDED(84) and ELIGIBLE_LEADERS_NOT_AVAILABLE(83); nothing changes",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def unclean_elections_refused(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, dead, _ = nodes.cast()
        led, lost = nodes.topic(leader, dead), nodes.topic(dead)
        error = nodes.elect(led, UNCLEAN)
        broker.expect_error(error, ErrorCode.ELECTION_NOT_NEEDED, what="a leader is alive")
        nodes.pause(dead)
        nodes.await_leaderless(lost)
        error = nodes.elect(lost, UNCLEAN)
        broker.expect_error(error, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, what="no replica is alive")
        broker.expect_equal("who leads", nodes.state(lost).leader, NO_ID)


@requirement(
    "ELE-07",
    notices="operator: after restarts all leaders stay on a few brokers, until an operator moves them",
    source="auto.leader.rebalance.enable; leader.imbalance.check.interval.seconds",
    sentence="With auto.leader.rebalance.enable the preferred replica leads again by itself.",
    accepted="the first replica of the list leads soon after the list's order changed",
    nodes=3, configs=BALANCES, deadline_s=DEADLINE_S,
)  # fmt: skip
def leaders_are_balanced(broker: Broker) -> None:
    with cluster(broker) as nodes:
        first, second, third = nodes.cast()
        topic = nodes.topic(first, second, third)
        before = nodes.state(topic)
        nodes.reorder(topic, second, third, first)
        nodes.await_leader(topic, second, above=before.epoch)


def is_retriable(error: int | str) -> bool:
    """Whether a client retries after this error."""
    return error == CONNECTION_LOST or error in RETRIABLE


def expect_retriable(broker: Broker, writes: Writes) -> None:
    """Expect that every error that the writer saw is retriable."""
    kinds = sorted({str(error) for error in writes.errors})
    bad = [error for error in writes.errors if not is_retriable(error)]
    broker.expect(not bad, f"errors that the writer saw: {kinds or 'none'}" + (f"; final are {bad}" if bad else ""))


@requirement(
    "ELE-08",
    notices="data: a restart in good order loses acknowledged records, or fails producers for good",
    source="ReplicationControlManager.handleBrokerInControlledShutdown; controlled.shutdown.enable",
    sentence="A broker that is stopped in good order hands its leaderships over first: no acknowledged record is lost, and "
    "clients see no other errors than those after which they try again.",
    accepted="another leader in a later epoch by the time that the process has ended; every acknowledged record; retriable "
    "errors and closed connections only",
    nodes=3, hooks=("stop", "restart"), configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def leaving_in_good_order(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, one, other = nodes.cast()
        topic, writes = nodes.topic(leader, one, other, in_sync=2), Writes()
        nodes.write_some(topic, writes, 20)
        before = nodes.state(topic)
        nodes.stop_during(leader, lambda: nodes.write_some(topic, writes, 300))
        broker.eventually(
            lambda: leader not in [nodes.state(topic, witness).leader for witness in nodes.reachable],
            f"no node reports node {leader} as the leader when it has ended",
            within_s=SESSION_MS / 2000,  # without a handover its leaderships end with its session only
        )
        nodes.write_some(topic, writes, 20)
        broker.expect(nodes.state(topic).epoch > before.epoch, "the leader epoch has grown")
        expect_retriable(broker, writes)
        nodes.expect_kept(topic, writes)
        nodes.restart(leader)
        nodes.await_isr(topic, leader, one, other)
        nodes.expect_kept(topic, writes)


@requirement(
    "ELE-09",
    notices="stuck: Java and librdkafka give a batch up on an error after which they may not try again",
    source="org.apache.kafka.common.protocol.Errors (RetriableException)",
    sentence="Whatever a producer sees while a leader dies and comes back is an error after which it may try again.",
    accepted="retriable errors and closed connections only; every acknowledged record",
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def errors_of_a_fail_over(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, one, other = nodes.cast()
        topic, writes = nodes.topic(leader, one, other, in_sync=2), Writes()
        nodes.write_some(topic, writes, 20)
        nodes.kill(leader)
        nodes.write_some(topic, writes, 20)
        for node in nodes.reachable:
            result = broker.produce(topic, batch(writes.value()), to=broker.connect(nodes.address(node)))
            if result.error_code == ErrorCode.NONE:
                writes.acknowledged[writes.sent[-1]] = result.base_offset
            else:
                writes.errors.append(result.error_code)
        nodes.restart(leader)
        nodes.await_isr(topic, leader, one, other)
        nodes.lead(topic, leader)
        nodes.write_some(topic, writes, 20)
        broker.saw(f"{len(writes.errors)} errors were seen")
        expect_retriable(broker, writes)
        nodes.expect_kept(topic, writes)


@requirement(
    "ELE-10",
    notices="data: two leaders acknowledge at once, and the records of one are lost",
    source="Partition.maybeIncrementLeaderHW; KIP-101; documentation, design, replication",
    sentence="A leader that is cut off from the others acknowledges no write with acks=-1 once another one leads; those with "
    "acks=1 it may acknowledge, and they are lost when it is back.",
    accepted="an error or no answer for acks=-1; nothing of either in the log, on any node; the new leader serves meanwhile",
    nodes=3, hooks=CUTS, configs=QUICK, apis={"Fetch": 11}, deadline_s=DEADLINE_S,
)  # fmt: skip
def a_leader_cut_off(broker: Broker) -> None:
    with cluster(broker) as nodes:

        def cut_off(leader: int, one: int, _: int) -> None:
            nodes.cut_off(leader)
            broker.entrance = nodes.address(one)

        late = late_writes(nodes, cut_off)
        expect_not_acknowledged(broker, late)
        nodes.join()
        expect_lost(nodes, late)


@dataclass(slots=True)
class LateWrites:
    """Writes that were sent to a leader after another one had replaced it."""

    topic: Topic
    replicas: tuple[int, ...]
    """The replicas; the first is the leader that was replaced."""
    writes: Writes
    """The writes to the new leader, and to the old one before it was replaced."""
    asked: list[tuple[int, BrokerConnection]]
    """(acks, connection) of each late write."""


def late_writes(nodes: JudgedCluster, silence: Callable[[int, int, int], None]) -> LateWrites:
    """Isolate the leader by `silence`, whose first argument it is; when another one leads, send writes to both."""
    leader, one, other = replicas = nodes.cast()
    broker, topic, writes = nodes.broker, nodes.topic(*replicas, in_sync=2), Writes()
    nodes.write_some(topic, writes, 10)
    before = nodes.state(topic)
    asked = [(acks, broker.connect(nodes.address(leader), timeout_s=30.0)) for acks in (-1, 1) * 4]
    silence(leader, one, other)
    nodes.await_leader(topic, one, other, above=before.epoch)
    version = broker.version_for(ProduceRequest)
    for acks, connection in asked:
        connection.send(produce_request({(topic, 0): batch(b"late")}, acks=acks, timeout_ms=5_000), version)
    nodes.write_some(topic, writes, 10)
    return LateWrites(topic, replicas, writes, asked)


def expect_not_acknowledged(broker: Broker, late: LateWrites) -> None:
    """Expect that no late write with acks=-1 is acknowledged; all other responses are accepted."""
    for acks, connection in late.asked:
        broker.saw(f"acks={acks}: {reported_by(connection, final=acks == -1)}")


def expect_lost(nodes: JudgedCluster, late: LateWrites) -> None:
    """When all are in sync again, expect all acknowledged writes and no late write, also in the old leader's log."""
    nodes.await_isr(late.topic, *late.replicas)
    nodes.write_some(late.topic, late.writes, 10)
    nodes.expect_kept(late.topic, late.writes)
    data = nodes.log_from(late.topic, late.replicas[0], nodes.broker.end_offset(late.topic))
    nodes.broker.expect(b"late" not in values(data), "the old leader's log does not have it either")


@requirement(
    "ELE-19",
    notices="data: two leaders acknowledge at once, and the records of one are lost",
    source="Partition.makeFollower; KIP-101; documentation, design, replication",
    sentence="A leader that was replaced while it did not answer acknowledges no write with acks=-1 that it finds waiting when "
    "it goes on; those with acks=1 it may acknowledge, and they are lost.",
    accepted="an error or a closed connection for acks=-1; nothing of either in the log, on any node",
    nodes=3, hooks=FREEZES, configs=QUICK, apis={"Fetch": 11}, deadline_s=DEADLINE_S,
    draft="not in the draft: ELE-10 for targets without hooks for their network; a leader that was frozen wakes up with the same "
    "wrong belief",
)  # fmt: skip
def a_deposed_leader(broker: Broker) -> None:
    with cluster(broker) as nodes:
        late = late_writes(nodes, lambda leader, *_: nodes.pause(leader))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
        nodes.resume(late.replicas[0])
        expect_not_acknowledged(broker, late)
        expect_lost(nodes, late)


def reported_by(connection: BrokerConnection, *, final: bool) -> str:
    """The result of a write as text. With `final`, an acknowledgement fails."""
    try:
        answer = connection.receive()
    except Failed as failure:
        return str(failure)
    error = only(only(answer.responses, "topic in the answer").partition_responses, "partition").error_code
    if final and error == ErrorCode.NONE:
        raise Failed("a leader that was replaced acknowledged a write with acks=-1")
    return error_name(error)


@requirement(
    "ELE-17",
    notices="operator: a partition waits for its last replica, or for an unclean election, though another has every record",
    since="4.1",
    source="KIP-966; PartitionChangeBuilder.maybePopulateTargetElr",
    sentence="A replica that leaves the ISR while fewer than min.insync.replicas stay in it is an eligible leader replica, as "
    "DescribeTopicPartitions reports, and may lead without an unclean election.",
    accepted="the replica is eligible; it leads when the last one in sync is dead; every record acknowledged with acks=-1",
    nodes=3, hooks=(*FREEZES, *ENDS), configs=QUICK, apis={"DescribeTopicPartitions": 0, "ApiVersions": 3},
    deadline_s=DEADLINE_S,
)  # fmt: skip
def eligible_leader_replicas(broker: Broker) -> None:
    asked = ApiVersionsRequest(client_software_name="tidegauge", client_software_version="1")
    features = {one.name: one.max_version_level for one in broker.call(asked).finalized_features}
    if not features.get(ELIGIBLE_REPLICAS):
        broker.skip(f"the feature {ELIGIBLE_REPLICAS} is off")
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic, writes = nodes.topic(leader, follower, in_sync=2), Writes()
        nodes.write_some(topic, writes, 10)
        broker.expect_equal(
            "the eligible leader replicas at first", list(nodes.described(topic).eligible_leader_replicas or ()), []
        )
        before = nodes.freeze_out(topic, follower, writes.value())
        eligible = list(nodes.described(topic).eligible_leader_replicas or ())
        broker.expect_equal("the eligible leader replicas", eligible, [follower])
        nodes.kill(leader)
        nodes.resume(follower)
        nodes.await_state(
            topic, lambda state: state.leader == follower and state.epoch > before.epoch, f"node {follower} leads"
        )
        nodes.restart(leader)  # below min.insync.replicas the new leader has no high watermark: it serves none
        nodes.await_isr(topic, leader, follower)
        nodes.await_served(topic)
        broker.expect_equal(
            "the eligible leader replicas at the end", list(nodes.described(topic).eligible_leader_replicas or ()), []
        )
        nodes.expect_kept(topic, writes)
