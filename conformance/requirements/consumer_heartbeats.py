"""CGH: the fields of a KIP-848 member's heartbeat, and the broker's responses to it."""

import time
from typing import Any

from conformance.answers import AnswerParts
from conformance.broker import Broker
from conformance.committed_offsets import commit_one, delete_offsets
from conformance.consumers import (
    BEAT_S,
    CHOSEN_BY_CLIENT,
    DESCRIBE,
    HEARTBEAT,
    JOINING,
    LEAVING,
    REGEX,
    STABLE,
    Consumer,
    described_one,
    joined,
    partitions_of,
    reported_in,
    settle,
    unused_group,
)
from conformance.requirement import requirement
from linearizability.client.group_member import LEAVING_FOR_A_WHILE
from linearizability.client.group_member import owned_partitions as listed
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

SINCE = "4.0"
"""The first release in which these groups are generally available."""
ASSIGNORS, UNIFORM = "group.consumer.assignors", "uniform"
"""A setting with the list of assignors, and the first one by default. Members without an assignor get the first."""
LISTED_TOPICS = 200
EPOCHS_IN_COMMITS = 9
"""The first version of OffsetCommit and OffsetFetch with a member epoch."""


def expect_invalid(broker: Broker, cases: dict[str, dict[str, Any]]) -> None:
    """Expect that each of these first heartbeats is refused with INVALID_REQUEST, and creates no group."""
    topic = broker.topic()
    for reported, changed in cases.items():
        with broker.case(reported):
            consumer = Consumer(broker, unused_group(broker), [topic])
            broker.expect_error(consumer.ask(**changed).error_code, ErrorCode.INVALID_REQUEST)
            later = consumer.ask(member_epoch=1, topic_partitions=[])
            broker.expect_error(later.error_code, ErrorCode.GROUP_ID_NOT_FOUND, what="the group afterwards")


@requirement(
    "CGH-01",
    notices="none seen: Java, librdkafka and franz-go send these fields filled in or null",
    source="KIP-848; GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid",
    sentence="An empty group id, instance id or rack id is refused with INVALID_REQUEST, and so is one of blanks and control "
    "characters alone; any other character makes a name.",
    accepted="INVALID_REQUEST(42); NONE(0) for a no-break space",
    since=SINCE,
    apis=HEARTBEAT,
)
def empty_names(broker: Broker) -> None:
    blanks = {"an empty": "", "a blank": " ", "a tab as": "\t", "a null character as": "\x00"}
    expect_invalid(
        broker,
        {
            f"{reported} {name}": {name: blank}
            for name in ("instance_id", "rack_id")
            for reported, blank in blanks.items()
        },
    )
    topic = broker.topic()
    for reported, blank in blanks.items():
        with broker.case(f"{reported} group_id"):
            consumer = Consumer(broker, unused_group(broker), [topic])
            broker.expect_error(consumer.ask(group_id=blank).error_code, ErrorCode.INVALID_REQUEST)
    with broker.case("names of a no-break space"):
        consumer = Consumer(broker, unused_group(broker), [topic], instance_id="\u00a0", rack_id="\u00a0")
        broker.expect_error(consumer.ask().error_code, ErrorCode.NONE)


@requirement(
    "CGH-02",
    notices="none seen: Java, librdkafka and franz-go fill all of it in when they join",
    source="KIP-848; GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid",
    sentence="A member that joins reports a rebalance timeout, that it owns nothing, and what it subscribes to, else it is "
    "refused with INVALID_REQUEST.",
    accepted="INVALID_REQUEST(42) without a timeout, with null or some owned partitions, without names and regular expression; "
    "no name at all is a subscription to nothing",
    since=SINCE,
    apis=HEARTBEAT,
)
def incomplete_joins(broker: Broker) -> None:
    topic = broker.topic()
    owned = listed(partitions_of(topic))
    expect_invalid(
        broker,
        {
            "no rebalance timeout": {"rebalance_timeout_ms": -1},
            "null for what it owns": {"topic_partitions": None},
            "owned partitions": {"topic_partitions": owned},
            "no subscription": {"subscribed_topic_names": None},
        },
    )
    with broker.case("a subscription to nothing"):
        answer = Consumer(broker, unused_group(broker)).join()
        broker.expect_equal("its assignment", reported_in(answer), set())


@requirement(
    "CGH-03",
    notices="none seen: Java, librdkafka and franz-go send no such heartbeat",
    source="KIP-848, KIP-1082; GroupMetadataManager.throwIfConsumerGroupHeartbeatRequestIsInvalid",
    sentence="A heartbeat without a member id that does not join (or, from v1 on, that joins), with an epoch below -2, or with "
    "epoch -2 and no instance id is refused with INVALID_REQUEST.",
    accepted="INVALID_REQUEST(42)",
    since=SINCE,
    apis=HEARTBEAT,
)
def impossible_epochs(broker: Broker) -> None:
    cases: dict[str, dict[str, Any]] = {
        "no member id, epoch 1": {"member_id": "", "member_epoch": 1},
        "no member id, leaving": {"member_id": "", "member_epoch": LEAVING},
        "epoch -3": {"member_epoch": -3},
        "epoch -2147483648": {"member_epoch": -(2**31)},
        "leaving for a while without an instance id": {"member_epoch": LEAVING_FOR_A_WHILE},
    }
    if broker.version_for(ConsumerGroupHeartbeatRequest) >= CHOSEN_BY_CLIENT:
        cases["no member id, joining"] = {"member_id": ""}
    expect_invalid(broker, cases)


@requirement(
    "CGH-04",
    notices="client: Java and librdkafka end with this code where group.remote.assignor is wrong, and try on with others",
    source="KIP-848; group.consumer.assignors",
    sentence="An assignor that the broker does not have is refused with UNSUPPORTED_ASSIGNOR; `uniform` and `range` are there, "
    "and who names none gets one.",
    accepted="UNSUPPORTED_ASSIGNOR(112) for another name and the empty one; assignments with uniform, range and without a name",
    since=SINCE,
    apis=HEARTBEAT,
)
def assignors(broker: Broker) -> None:
    topic = broker.topic(2)
    for name in ("nobody's", "", "RANGE"):
        answer = Consumer(broker, unused_group(broker), [topic], assignor=name).ask()
        broker.expect_error(answer.error_code, ErrorCode.UNSUPPORTED_ASSIGNOR, what=f"assignor {name!r}")
    for name in ("uniform", "range", None):
        joined(broker, unused_group(broker), 1, [topic], assignor=name)
        broker.saw(f"assignor {name} is there")


@requirement(
    "CGH-05",
    notices="stuck: Java, librdkafka and franz-go begin like this, with the id from here and this interval",
    source="KIP-848, KIP-1082; ConsumerGroupHeartbeatResponse schema",
    sentence="The first heartbeat is answered with a member id (from v1 on the one that the client chose, before one of the "
    "broker's), an epoch above 0, an interval and an assignment.",
    accepted="in every version: NONE(0), the id, an epoch of 1 or more, group.consumer.heartbeat.interval.ms (5000), and in the "
    "end all partitions; any text that the client chose is its id",
    since=SINCE,
    apis=HEARTBEAT,
    configs={"group.consumer.heartbeat.interval.ms": "5000"},
)
def first_heartbeat(broker: Broker) -> None:
    topic = broker.topic(3)
    first, last = broker.versions_of(ConsumerGroupHeartbeatRequest)
    for version in range(first, last + 1):
        with broker.case(f"v{version}"):
            consumer = Consumer(broker, unused_group(broker), [topic], version=version)
            chosen = consumer.id
            answer = consumer.join()
            broker.expect(bool(answer.member_id), f"a member id is assigned: {answer.member_id!r}")
            broker.expect(chosen in ("", answer.member_id), "the member id is the one that the client chose, if it did")
            broker.expect(answer.member_epoch >= 1, f"the epoch is above 0: {answer.member_epoch}")
            broker.expect_equal("the interval", answer.heartbeat_interval_ms, 5_000)
            broker.expect(answer.assignment is not None, "an assignment is reported, even if it is empty")
            settle(consumer, topics=[topic])
    if last >= CHOSEN_BY_CLIENT:
        with broker.case("any text"):
            consumer = Consumer(broker, unused_group(broker), [topic], id="größe 组 " + "x" * 100)
            broker.expect_equal("the member id", consumer.join().member_id, consumer.id)


@requirement(
    "CGH-41",
    notices="client: each topic that is made anywhere sends every group into a new epoch, and its members report again",
    source="KIP-848; GroupMetadataManager (epoch and metadata of the subscribed topics)",
    sentence="A topic to which no member subscribes changes nothing in a group: its epoch stays when such a topic is made.",
    accepted="the same epoch, and no assignment, in the answers to heartbeats after each of three such topics is made",
    since=SINCE,
    apis=HEARTBEAT,
)
def other_topics(broker: Broker) -> None:
    (consumer,) = joined(broker, unused_group(broker), 1, [broker.topic()])
    epoch = consumer.epoch
    for number in range(3):
        broker.topic()
        for _ in range(4):
            answer = consumer.beat()
            broker.expect_equal(f"the epoch after {number + 1} other topics", answer.member_epoch, epoch)
            broker.expect_equal("the assignment in the answer", answer.assignment, None)
            time.sleep(BEAT_S)


@requirement(
    "CGH-06",
    notices="client: Java and librdkafka take null for no change; each list is compared with what they have",
    source="KIP-848; GroupMetadataManager.consumerGroupHeartbeat (isFullRequest)",
    sentence="A heartbeat that says nothing new is answered without an assignment where nothing changed; a full one is always "
    "answered with it.",
    accepted="null for short ones, the same partitions for full ones, in the same epoch",
    since=SINCE,
    apis=HEARTBEAT,
    requires=("CGH-41",),
)
def short_and_full(broker: Broker) -> None:
    topic = broker.topic(3)
    (consumer,) = joined(broker, unused_group(broker), 1, [topic])
    epoch = consumer.epoch
    for _ in range(3):
        answer = consumer.beat()
        broker.expect_equal("the assignment in answer to a short one", answer.assignment, None)
        broker.expect_equal("the epoch", answer.member_epoch, epoch)
    answer = consumer.beat(full=True)
    broker.expect(answer.assignment is not None, "a full one is answered with an assignment")
    broker.expect_equal("the assignment in answer to a full one", reported_in(answer), partitions_of(topic))
    broker.expect_equal("the epoch", answer.member_epoch, epoch)


@requirement(
    "CGH-16",
    notices="client: Java reports this code to the user; without it the subscription matches nothing, without a word",
    source="KIP-848; SubscribedTopicRegex; RE2/J",
    sentence="A regular expression that cannot be read is refused with INVALID_REGULAR_EXPRESSION; a long one is not.",
    accepted="INVALID_REGULAR_EXPRESSION(128) for an open class, an open group, and a backreference, which RE2 does not know; "
    "NONE(0) for the names of 200 topics in a row",
    since=SINCE,
    apis=REGEX,
)
def bad_expressions(broker: Broker) -> None:
    for pattern in ("[a", "(a", r"(a)\1", "*"):
        answer = Consumer(broker, unused_group(broker), regex=pattern).ask()
        broker.expect_error(answer.error_code, ErrorCode.INVALID_REGULAR_EXPRESSION, what=pattern)
    names = "|".join(f"company.department-{number:03}.events.orders" for number in range(LISTED_TOPICS))
    answer = Consumer(broker, unused_group(broker), regex=names).ask()
    broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"the names of {LISTED_TOPICS} topics")


@requirement(
    "CGH-20",
    notices="tool: kafka-consumer-groups --describe shows groups of the new protocol by it",
    source="KIP-848; ConsumerGroupDescribeResponse schema",
    sentence="ConsumerGroupDescribe reports a group's state, epochs, assignor, and of each member its epoch, client, rack, "
    "subscription, what it owns and what it is to own.",
    accepted="Stable, with group and assignment epoch those of the members, uniform, each member's own partitions by topic id "
    "and name, client id and host; Empty once all have left",
    since=SINCE,
    apis=DESCRIBE,
)
def described_groups(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    configured = broker.subject.profile.configs.get(ASSIGNORS) or UNIFORM
    named = None if configured.startswith(UNIFORM) else UNIFORM
    consumers = joined(broker, group, 2, [topic], rack_id="a rack", assignor=named)
    found = described_one(broker, group)
    broker.expect_error(found.error_code, ErrorCode.NONE, what="ConsumerGroupDescribe")
    epoch = consumers[0].epoch
    reported = (found.group_id, found.group_state, found.group_epoch, found.assignment_epoch, found.assignor_name)
    broker.expect_equal("the group", reported, (group, STABLE, epoch, epoch, UNIFORM))
    members = AnswerParts({member.member_id: member for member in found.members})
    broker.expect_equal("the members", set(members), {one.id for one in consumers})
    for consumer in consumers:
        member = members[consumer.id]
        broker.expect_equal("its epoch", member.member_epoch, epoch)
        broker.expect_equal("its subscription", list(member.subscribed_topic_names), [topic.name])
        broker.expect_equal("its rack and client", (member.rack_id, member.client_id), ("a rack", "tidegauge"))
        broker.expect(bool(member.client_host), f"its host is reported: {member.client_host}")
        for reported, assignment in (("owned", member.assignment), ("to be owned", member.target_assignment)):
            owned = {(one.topic_id, partition) for one in assignment.topic_partitions for partition in one.partitions}
            broker.expect_equal(f"the partitions {reported}", owned, consumer.assigned)
            broker.expect_equal("their topic", {one.topic_name for one in assignment.topic_partitions}, {topic.name})
    for consumer in consumers:
        consumer.leave()
    found = described_one(broker, group)
    broker.expect_equal("afterwards", (found.group_state, list(found.members)), ("Empty", []))


@requirement(
    "CGH-21",
    notices="data: offsets go under a live group, which starts by auto.offset.reset",
    source="KIP-496, KIP-848; ConsumerGroup.isSubscribedToTopic",
    sentence="OffsetDelete spares the offsets of topics that a member subscribes to, by name.",
    accepted="GROUP_SUBSCRIBED_TO_TOPIC(86) for the subscribed topic, NONE(0) for another one, and for both once the group "
    "has no members",
    since=SINCE,
    apis=HEARTBEAT | {"OffsetDelete": 0, "OffsetCommit": EPOCHS_IN_COMMITS},
)
def spared_offsets(broker: Broker) -> None:
    subscribed, other = broker.topic(), broker.topic()
    group = unused_group(broker)
    (consumer,) = joined(broker, group, 1, [subscribed])
    for topic in (subscribed, other):
        code = commit_one(broker, group, topic, 5, version=9, generation=consumer.epoch, member_id=consumer.id)
        broker.expect_error(code, ErrorCode.NONE, what="OffsetCommit")
    both = [(subscribed, 0), (other, 0)]
    spared = {(subscribed, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): ErrorCode.NONE}
    broker.expect_equal("with a member", delete_offsets(broker, group, both), (ErrorCode.NONE, spared))
    consumer.leave()
    gone = dict.fromkeys(both, ErrorCode.NONE)
    broker.expect_equal("without", delete_offsets(broker, group, both), (ErrorCode.NONE, gone))


@requirement(
    "CGH-23",
    notices="stuck: an application is upgraded member by member, and the old ones are left out meanwhile",
    source="KIP-848; ConsumerGroupHeartbeatRequest schema",
    sentence="Members of every version of the heartbeat are in one group.",
    accepted="one member of each version share the partitions in one epoch",
    since=SINCE,
    apis=REGEX,
)
def every_version(broker: Broker) -> None:
    topic = broker.topic(4)
    group = unused_group(broker)
    first, last = broker.versions_of(ConsumerGroupHeartbeatRequest)
    consumers = [Consumer(broker, group, [topic], version=version) for version in range(first, last + 1)]
    for consumer in consumers:
        consumer.join()
    settle(*consumers, topics=[topic])
    broker.expect(all(one.assigned for one in consumers), "each has a share")
    broker.expect(all(one.epoch > JOINING for one in consumers), "each has an epoch")


@requirement(
    "CGH-42",
    notices="none seen: Java and librdkafka do not read the answer to a leave",
    source="KIP-848; GroupMetadataManager.consumerGroupLeave",
    sentence="A member that leaves is answered with the epoch by which it left.",
    accepted="-1; for a static member that leaves for a while -2",
    since=SINCE,
    apis=HEARTBEAT,
)
def leaving_is_confirmed(broker: Broker) -> None:
    topic = broker.topic()
    for epoch, instance_id in ((-1, None), (-1, "static"), (-2, "static")):
        consumer = Consumer(broker, unused_group(broker), [topic], instance_id=instance_id)
        consumer.join()
        broker.expect_equal(f"leaving with {epoch}: the epoch", consumer.leave(epoch).member_epoch, epoch)
