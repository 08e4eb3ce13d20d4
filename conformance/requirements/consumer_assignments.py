"""CGH: the partitions that the broker assigns to the members of a KIP-848 consumer group, and when."""

from collections.abc import Collection

from conformance.answers import only
from conformance.broker import Broker
from conformance.consumers import (
    DESCRIBE,
    HEARTBEAT,
    REGEX,
    SETTLED_WITHIN_S,
    Consumer,
    described,
    expect_apart,
    joined,
    partitions_of,
    settle,
    unused_group,
)
from conformance.requirement import requirement
from conformance.requirements.consumer_heartbeats import SINCE
from linearizability.client.group_member import LEAVING_FOR_A_WHILE
from linearizability.client.requests import Topic, delete_topics_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest

STATIC = HEARTBEAT
MANY_MEMBERS, MANY_PARTITIONS = 20, 50
NEW_TOPICS_WITHIN_S = 60.0
"""The time within which a regular expression must match a new topic: Kafka waits at least ten seconds between evaluations."""
GROUPS = 60


@requirement(
    "CGH-09",
    notices="data: two members read one partition",
    source="KIP-848; CurrentAssignmentBuilder",
    sentence="When a second member joins the first is asked to give up partitions, and the second gets them only after the "
    "first "
    "said that it did: no partition is in two current assignments.",
    accepted="while the first has not said so the second holds none of them, however often it beats; then both hold their "
    "share",
    since=SINCE,
    apis=HEARTBEAT,
    deadline_s=60,
)
def given_up_first(broker: Broker) -> None:
    topic = broker.topic(6)
    group = unused_group(broker)
    (one,) = joined(broker, group, 1, [topic])
    other = Consumer(broker, group, [topic])
    other.join()
    broker.eventually(
        lambda: one.beat() and one.assigned != one.reported, "the first member is asked to revoke partitions"
    )
    broker.expect(
        one.assigned < one.reported,
        f"the first member keeps only a part: {len(one.assigned)} of {len(one.reported)} partitions",
    )
    for _ in range(10):
        other.beat()
        expect_apart(broker, [one, other])
    broker.expect_equal("the second member's partitions before the first has revoked them", other.assigned, set())
    settle(one, other, topics=[topic])
    broker.expect_equal("their shares", sorted(len(each.assigned) for each in (one, other)), [3, 3])


@requirement(
    "CGH-10",
    notices="client: partitions of a member that left wait for the session timeout, 45 s by default",
    source="KIP-848; GroupMetadataManager.consumerGroupLeave",
    sentence="A member that leaves is gone at once: its partitions go to the others, and a later heartbeat of it is "
    "UNKNOWN_MEMBER_ID; it can join again.",
    accepted="the other one holds all partitions; UNKNOWN_MEMBER_ID(25); a share again after joining",
    since=SINCE,
    apis=HEARTBEAT,
    deadline_s=60,
)
def leaving(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    one, other = joined(broker, group, 2, [topic])
    epoch = other.epoch
    other.leave()
    answer = other.ask(member_epoch=epoch, topic_partitions=[])
    broker.expect_error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID, what="a heartbeat of the member that left")
    settle(one, topics=[topic])
    other.join()
    settle(one, other, topics=[topic])
    broker.expect_equal("their shares", sorted(len(each.assigned) for each in (one, other)), [2, 2])


@requirement(
    "CGH-11",
    notices="client: each restart of a static member moves its partitions twice",
    source="KIP-848, KIP-345; GroupMetadataManager.consumerGroupLeave (static)",
    sentence="A static member that leaves for a while (epoch -2) keeps its partitions: no other member gets them, and who joins "
    "with its instance id gets them, under a new member id and with no new group epoch.",
    accepted="the other one holds what it held; the same partitions for the one that comes back, in the same epoch",
    since=SINCE,
    apis=STATIC,
    deadline_s=60,
    requires=("CGH-41",),
)
def away_for_a_while(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    one, other = (Consumer(broker, group, [topic], instance_id=name) for name in ("one", "two"))
    for consumer in (one, other):
        consumer.join()
    settle(one, other, topics=[topic])
    held, epoch = set(other.assigned), other.epoch
    other.leave(LEAVING_FOR_A_WHILE)
    for _ in range(20):
        one.beat()
        broker.expect(not one.assigned & held, "the other one is given none of its partitions")
    again = Consumer(broker, group, [topic], instance_id="two")
    again.join()
    settle(one, again, topics=[topic])
    broker.expect_equal("the partitions of the member that came back", again.assigned, held)
    broker.expect_equal("the epoch", again.epoch, epoch)


@requirement(
    "CGH-12",
    notices="data: two processes with one instance id read and commit the same partitions",
    source="KIP-848, KIP-345; ConsumerGroup.getOrMaybeSubscribeStaticConsumerMember",
    sentence="A client that joins with the instance id of a member that is there is refused with UNRELEASED_INSTANCE_ID; "
    "another member id than the one that has it is FENCED_INSTANCE_ID; an instance id that no member has is UNKNOWN_MEMBER_ID.",
    accepted="111, 82 and 25; the one that is there goes on, and after it left for good the instance id is free",
    since=SINCE,
    apis=STATIC,
)
def taken_instances(broker: Broker) -> None:
    topic = broker.topic(2)
    group = unused_group(broker)
    (owner,) = joined(broker, group, 1, [topic], instance_id="one")
    other = Consumer(broker, group, [topic], instance_id="one")
    broker.expect_error(other.ask().error_code, ErrorCode.UNRELEASED_INSTANCE_ID, what="joining")
    answer = other.ask(member_epoch=owner.epoch, topic_partitions=[])
    broker.expect_error(answer.error_code, ErrorCode.FENCED_INSTANCE_ID, what="another member id")
    answer = other.ask(member_epoch=owner.epoch, instance_id="two", topic_partitions=[])
    broker.expect_error(answer.error_code, ErrorCode.UNKNOWN_MEMBER_ID, what="an instance id that no member has")
    settle(owner, topics=[topic])
    owner.leave()
    other.join()
    settle(other, topics=[topic])


def grow(broker: Broker, topic: Topic, partitions: int) -> Topic:
    """Increase a topic's partitions to this number."""
    table = CreatePartitionsRequest
    request = table(
        topics=[table.CreatePartitionsTopic(name=topic.name, count=partitions, assignments=None)], timeout_ms=10_000
    )
    result = only(broker.call(request).results, "result of CreatePartitions")
    broker.expect_error(result.error_code, ErrorCode.NONE, what="CreatePartitions")
    return broker.await_topic(topic.name, partitions)


@requirement(
    "CGH-15",
    notices="stuck: no client reads the new topic or the new partitions",
    source="KIP-848; GroupMetadataManager.hasMemberSubscriptionChanged, TopicMetadata",
    sentence="Another subscription, or another number of partitions, makes a new group epoch and a new assignment.",
    accepted="the partitions of a second topic once it is subscribed to, those that were added, and none of the first once it "
    "is not; the epoch is higher after each",
    since=SINCE,
    apis=HEARTBEAT,
    deadline_s=90,
    draft="4.4.0 was said to make assignments at intervals (group.consumer.assignment.interval.ms, one second): 4.3.1 does "
    "so too",
)
def changes(broker: Broker) -> None:
    first, second = broker.topic(2), broker.topic(2)
    group = unused_group(broker)
    (consumer,) = joined(broker, group, 1, [first])
    epoch = consumer.epoch

    def expect(*topics: Topic, what: str) -> None:
        nonlocal epoch
        settle(consumer, topics=topics, what=what)
        broker.expect(consumer.epoch > epoch, f"{what}: epoch {consumer.epoch} is above {epoch}")
        epoch = consumer.epoch

    for topics, what in (((first, second), "a second topic"), ((second,), "without the first")):
        consumer.topics = [topic.name for topic in topics]
        consumer.beat(subscribed_topic_names=consumer.topics)
        expect(*topics, what=what)
    expect(grow(broker, second, 5), what="three more partitions")


@requirement(
    "CGH-18",
    notices="data: two members read one partition, or no member does",
    source="KIP-848; uniform and range assignors",
    sentence="Once a group is stable every partition of every subscribed topic belongs to exactly one member, and to one that "
    "subscribes to its topic.",
    accepted="with three members of different subscriptions and three topics: all partitions, each with a subscriber, with "
    "each "
    "assignor",
    since=SINCE,
    apis=HEARTBEAT,
    deadline_s=60,
)
def complete(broker: Broker) -> None:
    topics = [broker.topic(count) for count in (1, 3, 4)]
    for assignor in ("uniform", "range"):
        with broker.case(assignor):
            group = unused_group(broker)
            consumers = [
                Consumer(broker, group, chosen, assignor=assignor) for chosen in (topics, topics[:2], topics[2:])
            ]
            for consumer in consumers:
                consumer.join()
            settle(*consumers, topics=topics)
            for consumer in consumers:
                allowed = {topic.id for topic in topics if topic.name in consumer.topics}
                broker.expect(
                    {id for id, _ in consumer.assigned} <= allowed, "a member owns only what it subscribes to"
                )


@requirement(
    "CGH-24",
    notices="stuck: topics that match are not read; Java's SubscriptionPattern leaves this to the broker",
    source="KIP-848; SubscribedTopicRegex",
    sentence="A regular expression subscribes to all topics whose whole names match, also to those that come later, and adds "
    "to "
    "the names that the member reports.",
    accepted="the matching topics and the named one; not those of which only a part matches; a later one once the broker "
    "looked "
    "again",
    since=SINCE,
    apis=REGEX,
    deadline_s=120,
)
def expressions(broker: Broker) -> None:
    stem = broker.unused_name("regex")
    one, two, longer = (broker.topic(2, name=f"{stem}-{end}") for end in ("a1", "a2", "a3x"))
    named = broker.topic()
    group = unused_group(broker)
    consumer = Consumer(broker, group, [named], regex=f"{stem}-a[0-9]")
    consumer.join()
    settle(consumer, topics=[one, two, named], what="the matching topics, and the named one")
    broker.expect(not consumer.assigned & partitions_of(longer), "none of which only a part matches")
    later = broker.topic(name=f"{stem}-a9")
    settle(consumer, topics=[one, two, named, later], what="a later topic", within_s=NEW_TOPICS_WITHIN_S)


@requirement(
    "CGH-25",
    notices="client: some members read much more than others, and each join moves what it need not",
    source="KIP-848; UniformAssignor, RangeAssignor",
    sentence="`uniform` gives the members equal shares and moves no more than it must; `range` gives the same partition "
    "numbers "
    "of equal topics to the same member.",
    accepted="uniform: shares that differ by one at most, and when a third joins no member gets anything new but the third; "
    "range: "
    "partition n of both topics has one owner",
    since=SINCE,
    apis=HEARTBEAT,
    deadline_s=60,
)
def fair_and_sticky(broker: Broker) -> None:
    topics = [broker.topic(4), broker.topic(4)]
    with broker.case("uniform"):
        group = unused_group(broker)
        two = joined(broker, group, 2, topics, assignor="uniform")
        before = [set(one.assigned) for one in two]
        third = Consumer(broker, group, topics, assignor="uniform")
        third.join()
        settle(*two, third, topics=topics)
        broker.expect_equal("the shares", sorted(len(one.assigned) for one in (*two, third)), [2, 3, 3])
        kept = [one.assigned <= held for one, held in zip(two, before, strict=True)]
        broker.expect_equal("the first two only gave up", kept, [True, True])
    with broker.case("range"):
        three = joined(broker, unused_group(broker), 3, topics, assignor="range")
        for consumer in three:
            of_each = [{number for id, number in consumer.assigned if id == topic.id} for topic in topics]
            broker.expect_equal("the numbers of both topics", of_each[0], of_each[1])


@requirement(
    "CGH-26",
    notices="stuck: topics that are made later are never read",
    source="KIP-848; GroupCoordinatorService.onNewMetadataImage",
    sentence="A subscription may name topics that do not exist: their partitions come when the topic does, and go when it is "
    "deleted, and the others stay.",
    accepted="the other topic's partitions alone, then both, then the other one's alone",
    since=SINCE,
    apis=HEARTBEAT,
    deadline_s=90,
)
def topics_come_and_go(broker: Broker) -> None:
    broker.needs_deletion()
    there = broker.topic(2)
    name = broker.unused_name("later")
    group = unused_group(broker)
    consumer = Consumer(broker, group, [there, name])
    consumer.join()
    settle(consumer, topics=[there], what="the topic that exists")
    later = broker.topic(2, name=name)
    settle(consumer, topics=[there, later], what="both")
    version = broker.version_for(DeleteTopicsRequest)
    broker.call(delete_topics_request([name], version), version)
    settle(consumer, topics=[there], what="the one that is left")


@requirement(
    "CGH-27",
    notices="data: two members read one partition, or no member does, in a busy group",
    source="KIP-848",
    sentence="Many members share many partitions: each gets a share, and no member another's, while members come and go.",
    accepted=f"{MANY_PARTITIONS} partitions among {MANY_MEMBERS} members, then among the half that is left, never with two "
    "holders",
    since=SINCE,
    apis=HEARTBEAT,
    deadline_s=180,
)
def many_members(broker: Broker) -> None:
    topic = broker.topic(MANY_PARTITIONS)
    group = unused_group(broker)
    consumers = [Consumer(broker, group, [topic]) for _ in range(MANY_MEMBERS)]
    for consumer in consumers:
        consumer.join()
    settle(*consumers, topics=[topic], within_s=80)
    expect_shares(broker, consumers, MANY_PARTITIONS)
    leaving, left = consumers[: MANY_MEMBERS // 2], consumers[MANY_MEMBERS // 2 :]
    for consumer in leaving:
        consumer.leave()
    settle(*left, topics=[topic], within_s=80)
    expect_shares(broker, left, MANY_PARTITIONS)


def expect_shares(broker: Broker, consumers: Collection[Consumer], partitions: int) -> None:
    """Expect that the numbers of assigned partitions differ by one at most."""
    sizes = {len(one.assigned) for one in consumers}
    fair = partitions // len(consumers)
    broker.expect(
        sizes <= {fair, fair + 1}, f"the shares of {len(consumers)} members differ by one at most: {sorted(sizes)}"
    )


@requirement(
    "CGH-28",
    notices="data: members or assignments of one group turn up in another",
    source="KIP-848; GroupCoordinatorService",
    sentence="Many small groups live beside each other: each has its own members, epochs and assignment of the same topic.",
    accepted=f"{GROUPS} groups of one member: each owns the whole topic; a member of one is unknown in the next",
    since=SINCE,
    apis=DESCRIBE,
    deadline_s=180,
)
def many_groups(broker: Broker) -> None:
    topic = broker.topic(2)
    consumers = [Consumer(broker, unused_group(broker), [topic]) for _ in range(GROUPS)]
    for consumer in consumers:
        consumer.join()
    whole = partitions_of(topic)

    def owned() -> bool:
        """Whether each member owns the topic. All send heartbeats each time, so that a slow broker removes none as silent."""
        for one in consumers:
            one.beat()
        return all(one.assigned == one.reported == whole for one in consumers)

    broker.eventually(owned, f"the member of each of {GROUPS} groups owns the topic", within_s=SETTLED_WITHIN_S)
    for number, consumer in enumerate(consumers):
        stranger = consumer.ask(member_id=consumers[number - 1].id, member_epoch=consumer.epoch, topic_partitions=[])
        broker.expect_error(stranger.error_code, ErrorCode.UNKNOWN_MEMBER_ID, what="a member of another group")


@requirement(
    "CGH-39",
    notices="client: members share by another assignor than most of them ask for",
    source="KIP-848; ConsumerGroup.preferredServerAssignor",
    sentence="Where members name different assignors the one that most of them name is the group's, and it changes when they "
    "do.",
    accepted="range for two of three members, uniform after one of them leaves and another one that names it joins",
    since=SINCE,
    apis=DESCRIBE,
    deadline_s=60,
)
def majority(broker: Broker) -> None:
    topic = broker.topic(6)
    group = unused_group(broker)
    consumers = [Consumer(broker, group, [topic], assignor=name) for name in ("range", "range", "uniform")]
    for consumer in consumers:
        consumer.join()
    settle(*consumers, topics=[topic])
    broker.expect_equal("the assignor", [one.assignor_name for one in described(broker, group)], ["range"])
    consumers.pop(0).leave()
    consumers.append(Consumer(broker, group, [topic], assignor="uniform"))
    consumers[-1].join()
    settle(*consumers, topics=[topic])
    broker.expect_equal("the assignor then", [one.assignor_name for one in described(broker, group)], ["uniform"])
