"""CGH: removal of members from a KIP-848 consumer group, its largest size, and the failures that it survives."""

import time

from conformance.answers import only
from conformance.broker import Broker
from conformance.cluster import QUICK, STATE_WITHIN_S, cluster
from conformance.committed_offsets import await_offset, commit_one
from conformance.consumers import (
    DESCRIBE,
    HEARTBEAT,
    Consumer,
    Owned,
    await_known,
    described_one,
    joined,
    partitions_of,
    reported_in,
    settle,
    unused_group,
)
from conformance.requirement import requirement
from conformance.requirements.consumer_heartbeats import SINCE
from conformance.requirements.group_joins import MAX_SIZE, SMALL_GROUPS
from conformance.requirements.group_survival import group_at
from linearizability.client.group_member import LEAVING_FOR_A_WHILE
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest

SESSION_MS = 5_000
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}
"""Settings with which a silent member is removed within seconds; the session's default and its lower limit are 45 s."""
EARLY_MS = 100
OUT_WITHIN_S = 40.0
DEADLINE_S = 180.0
ENDS = ("kill", "restart")
GROUP_RESOURCE = 32
"""The resource type of groups (KIP-848)."""
SET = 0


@requirement(
    "CGH-13",
    notices="stuck: no client reads the partitions of a member that died",
    source="KIP-848; group.consumer.session.timeout.ms; GroupMetadataManager.scheduleConsumerGroupSessionTimeout",
    sentence="A member that is silent for the session timeout is put out: its partitions go to the others, and its next "
    "heartbeat is UNKNOWN_MEMBER_ID.",
    accepted="with 5 seconds: the other member, which beats, holds all partitions, not before; UNKNOWN_MEMBER_ID(25) for the "
    "silent one",
    since=SINCE,
    apis=HEARTBEAT,
    configs=SHORT_SESSIONS,
    alone=True,
    deadline_s=90,
)
def silent_members(broker: Broker) -> None:
    topic = broker.topic(4)
    one, silent = joined(broker, unused_group(broker), 2, [topic])
    began = time.monotonic()
    silent.beat()
    settle(one, topics=[topic], what="the one that beats holds all partitions", within_s=OUT_WITHIN_S)
    waited_ms = (time.monotonic() - began) * 1000
    broker.expect(
        waited_ms >= SESSION_MS - EARLY_MS, f"after {waited_ms:.0f} ms, and not before its session timeout is over"
    )
    answer = silent.ask(topic_partitions=[])
    broker.expect_error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID, what="a heartbeat of the silent member")


@requirement(
    "CGH-29",
    notices="stuck: a member that hangs keeps the partitions that it should give up, and no client reads them",
    source="KIP-848; GroupMetadataManager.scheduleConsumerGroupRebalanceTimeout",
    sentence="A member that does not say within its rebalance timeout that it gave up what it is to give up is put out, however "
    "often it beats, and the others get its partitions.",
    accepted="with 2 seconds: the newcomer holds all partitions, not before; UNKNOWN_MEMBER_ID(25) for the other one",
    since=SINCE,
    apis=HEARTBEAT,
    deadline_s=90,
)
def clinging_members(broker: Broker) -> None:
    timeout_ms = 2_000
    topic = broker.topic(4)
    group = unused_group(broker)
    (clinging,) = joined(broker, group, 1, [topic], rebalance_timeout_ms=timeout_ms)
    newcomer = Consumer(broker, group, [topic])
    began = time.monotonic()
    newcomer.join()

    def put_out() -> bool:
        newcomer.beat()
        answer = clinging.ask(request_that_says_nothing(clinging))
        if answer.error_code == ErrorCode.NONE:
            clinging.epoch = answer.member_epoch
            return False
        broker.expect_error(
            answer.error_code,
            ErrorCode.UNKNOWN_MEMBER_ID,
            what="a heartbeat of the member that keeps revoked partitions",
        )
        return True

    broker.eventually(
        put_out, "the member that keeps revoked partitions is removed", within_s=OUT_WITHIN_S, every_s=0.1
    )
    waited_ms = (time.monotonic() - began) * 1000
    broker.expect(
        waited_ms >= timeout_ms - EARLY_MS, f"after {waited_ms:.0f} ms, and not before its rebalance timeout is over"
    )
    settle(newcomer, topics=[topic])


def request_that_says_nothing(consumer: Consumer) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat of a member without changes: all optional fields are absent."""
    said = consumer.request(topic_partitions=None, subscribed_topic_names=None, rebalance_timeout_ms=-1)
    said.server_assignor = None
    return said


@requirement(
    "CGH-30",
    notices="operator: the bound on members that the administrator set is not kept",
    source="KIP-848; group.consumer.max.size",
    sentence="A group of group.consumer.max.size members takes no other member: GROUP_MAX_SIZE_REACHED; a place that becomes "
    "free can be taken.",
    accepted="GROUP_MAX_SIZE_REACHED(81) for a third member of two; NONE(0) after one left; the members go on",
    since=SINCE,
    apis=HEARTBEAT,
    configs=SMALL_GROUPS,
    alone=True,
    deadline_s=60,
)
def largest_size(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    one, other = joined(broker, group, MAX_SIZE, [topic])
    third = Consumer(broker, group, [topic])
    broker.expect_error(third.ask().error_code, ErrorCode.GROUP_MAX_SIZE_REACHED, what="the third member")
    settle(one, other, topics=[topic])
    other.leave()
    third.join()
    settle(one, third, topics=[topic])


@requirement(
    "CGH-43",
    notices="client: a static member that is restarted is refused, until the session of its former process is over",
    source="KIP-848, KIP-345; group.consumer.max.size; KAFKA-20601",
    sentence="A static member that left for a while comes back into its group, though that has group.consumer.max.size members: "
    "it takes no new place.",
    accepted="NONE(0) and the same partitions for who joins with its instance id; GROUP_MAX_SIZE_REACHED(81) for a third member "
    "meanwhile and afterwards",
    since=SINCE,
    apis=HEARTBEAT,
    configs=SMALL_GROUPS,
    alone=True,
    deadline_s=60,
    requires=("CGH-11", "CGH-30"),
)
def back_into_a_full_group(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    members = [Consumer(broker, group, [topic], instance_id=str(number)) for number in range(MAX_SIZE)]
    for member in members:
        member.join()
    settle(*members, topics=[topic])
    leaver = members.pop()
    held = set(leaver.assigned)
    leaver.leave(LEAVING_FOR_A_WHILE)
    third = Consumer(broker, group, [topic], instance_id="third")
    broker.expect_error(third.ask().error_code, ErrorCode.GROUP_MAX_SIZE_REACHED, what="a third member meanwhile")
    back = Consumer(broker, group, [topic], instance_id=leaver.instance_id)
    answer = back.ask()
    broker.expect_error(answer.error_code, ErrorCode.NONE, what="joining again with the instance id")
    back.learn(answer, owned=set())
    settle(*members, back, topics=[topic])
    broker.expect_equal("the partitions of the member that came back", back.assigned, held)
    broker.expect_error(third.ask().error_code, ErrorCode.GROUP_MAX_SIZE_REACHED, what="a third member afterwards")


@requirement(
    "CGH-31",
    notices="operator: kafka-configs --entity-type groups has no effect, or one on other groups",
    source="KIP-848; GroupConfig, consumer.heartbeat.interval.ms",
    sentence="A group can have a heartbeat interval of its own, set as a configuration of the group; its members receive it, "
    "and members of other groups do not.",
    accepted="the interval that was set, for this group; group.consumer.heartbeat.interval.ms for another one",
    since=SINCE,
    apis=HEARTBEAT | {"IncrementalAlterConfigs": 0},
    deadline_s=60,
)
def own_interval(broker: Broker) -> None:
    topic = broker.topic()
    groups = [unused_group(broker) for _ in range(2)]
    (own,), (other,) = (joined(broker, group, 1, [topic]) for group in groups)
    usual = other.beat().heartbeat_interval_ms
    table = IncrementalAlterConfigsRequest
    change = table.AlterableConfig(
        name="consumer.heartbeat.interval.ms", config_operation=SET, value=str(usual + 1_000)
    )
    resource = table.AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=groups[0], configs=[change])
    result = only(broker.call(table(resources=[resource])).responses, "result of IncrementalAlterConfigs")
    broker.expect_error(result.error_code, ErrorCode.NONE, what="IncrementalAlterConfigs", message=result.error_message)
    broker.eventually(lambda: own.beat().heartbeat_interval_ms == usual + 1_000, "the group's own interval is reported")
    broker.expect_equal("the other group's interval", other.beat().heartbeat_interval_ms, usual)


def expect_going_on(broker: Broker, consumers: list[Consumer], epoch: int, held: list[set[Owned]]) -> None:
    """Expect that the group has the same epoch, members and assignments as before."""
    for consumer, partitions in zip(consumers, held, strict=True):
        answer = consumer.beat(full=True)
        broker.expect_equal("epoch and partitions", (answer.member_epoch, reported_in(answer)), (epoch, partitions))
    found = described_one(broker, consumers[0].group)
    broker.expect_equal("the members", {one.member_id for one in found.members}, {one.id for one in consumers})
    broker.expect_equal("the group's epoch", found.group_epoch, epoch)


@requirement(
    "CGH-32",
    notices="data: a coordinator that forgot who holds what gives a partition to a second member",
    source="KIP-848; GroupCoordinatorService.onElection",
    sentence="A group survives the end of its coordinator: its members go on with the next one, in their epoch, with what they "
    "hold.",
    accepted="after the coordinator's kill -9: the same epochs, members and partitions; commits in the same epoch; a newcomer "
    "gets its share",
    since=SINCE,
    apis=DESCRIBE,
    nodes=3, hooks=ENDS, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def coordinator_dies(broker: Broker) -> None:
    with cluster(broker) as nodes:
        one, other, _ = nodes.cast()
        topic = broker.topic(4, replication_factor=3)
        group, coordinator = group_at(broker, nodes, one, other)
        consumers = joined(broker, group.name, 2, [topic])
        epoch, held = consumers[0].epoch, [set(one.assigned) for one in consumers]
        code = commit_one(broker, group.name, topic, 7, version=9, generation=epoch, member_id=consumers[0].id)
        broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit before")
        nodes.kill(coordinator)
        await_known(consumers, within_s=STATE_WITHIN_S)
        broker.expect(consumers[0].address != nodes.address(coordinator), "another node coordinates the group")
        expect_going_on(broker, consumers, epoch, held)
        await_offset(broker, group.name, topic, 7, "the offset that was committed before", within_s=STATE_WITHIN_S)
        code = commit_one(broker, group.name, topic, 8, version=9, generation=epoch, member_id=consumers[1].id)
        broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit in the same epoch")
        newcomer = Consumer(broker, group.name, [topic])
        newcomer.join()
        settle(*consumers, newcomer, topics=[topic], within_s=STATE_WITHIN_S)
        broker.expect(bool(newcomer.assigned), "the newcomer has a share")


@requirement(
    "CGH-33",
    notices="data: a coordinator that forgot who holds what gives a partition to a second member",
    source="KIP-848; CoordinatorLoaderImpl",
    sentence="A group survives that its only broker is killed and starts again.",
    accepted="the same epochs, members and partitions, also of a static member that was away for a while meanwhile",
    since=SINCE,
    apis=DESCRIBE,
    hooks=ENDS,
    deadline_s=120,
)
def broker_starts_again(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    consumers = [Consumer(broker, group, [topic], instance_id=name) for name in ("one", "two")]
    for consumer in consumers:
        consumer.join()
    settle(*consumers, topics=[topic])
    one, away = consumers
    epoch, held, reserved = one.epoch, set(one.assigned), set(away.assigned)
    broker.expect_equal("all partitions", held | reserved, partitions_of(topic))
    away.leave(-2)
    with cluster(broker) as nodes:
        node = nodes.node_at(one.address)
        nodes.kill(node)
        nodes.restart(node)
        await_known([one], within_s=STATE_WITHIN_S)
        answer = one.beat(full=True)
        broker.expect_equal("epoch and partitions", (answer.member_epoch, reported_in(answer)), (epoch, held))
        back = Consumer(broker, group, [topic], instance_id="two")
        back.join()
        settle(one, back, topics=[topic])
        broker.expect_equal("the partitions kept for the absent static member", back.assigned, reserved)
