"""LOF: offsets of a partition that another broker leads, or whose new leader does not know its high watermark yet."""

from conformance.answers import only
from conformance.batches import batch
from conformance.broker import EARLIEST, LATEST, Broker
from conformance.cluster import QUICK, STATE_WITHIN_S, cluster
from conformance.moments import in_time
from conformance.requirement import requirement
from conformance.requirements.list_offsets import tolerate_offset
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.list_offsets import ListOffsetsRequest

DEADLINE_S = 240
OFFSET_NOT_AVAILABLE_SINCE = 5
"""The first version of ListOffsets with an error for a leader that does not know its high watermark yet (KIP-207)."""
FREEZES = ("pause",)


@requirement(
    "LOF-08",
    notices="misread: a consumer starts at the end of a follower's log, which is behind or has what is lost later",
    source="Partition.fetchOffsetForTimestamp; KafkaApis.handleListOffsetRequest",
    sentence="ListOffsets of a partition that the broker does not lead is NOT_LEADER_OR_FOLLOWER, of one that does not exist "
    "UNKNOWN_TOPIC_OR_PARTITION.",
    accepted="6 from a follower and from a broker without a replica, 3 for an unknown topic and partition from each broker, "
    "without an offset, in every version from 1 on, for the first and the last offset",
    tolerated="NOT_LEADER_OR_FOLLOWER(6) for what does not exist, from a broker that is not the leader: clients renew metadata "
    "on either; another offset beside the error: clients look at the error first",
    requires=("BAS-14",), nodes=3, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def list_offsets_elsewhere(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, stranger = nodes.cast()
        topic, nowhere = nodes.topic(leader, follower), broker.unused_name()
        lowest, highest = broker.versions_of(ListOffsetsRequest)
        asked = [
            *((node, topic.name, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER) for node in (follower, stranger)),
            *((node, topic.name, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for node in (leader, follower, stranger)),
            *((node, nowhere, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for node in (leader, follower, stranger)),
        ]
        for version in range(max(lowest, 1), highest + 1):
            for node, name, partition, error in asked:
                for timestamp in (EARLIEST, LATEST):
                    table = ListOffsetsRequest.ListOffsetsPartition
                    wanted = table(partition_index=partition, timestamp=timestamp)
                    request = ListOffsetsRequest(
                        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[wanted])]
                    )
                    answer = broker.call(request, version, to=nodes.address(node))
                    found = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
                    what = f"v{version}, {name}-{partition} at node {node}"
                    either = {ErrorCode.NOT_LEADER_OR_FOLLOWER} if node != leader else ()
                    broker.expect_error(found.error_code, error, tolerated=either, what=what)
                    tolerate_offset(broker, found, what)


@requirement(
    "LOF-09",
    notices="misread: a consumer that starts at the end begins before what others were shown, and reads it as new",
    source="KIP-207; Partition.fetchOffsetForTimestamp (maybeOffsetsError)",
    sentence="While a new leader's high watermark is below the offset at which its epoch begins ListOffsets gives a consumer no "
    "last offset: OFFSET_NOT_AVAILABLE from v5 on, LEADER_NOT_AVAILABLE below.",
    accepted="OFFSET_NOT_AVAILABLE(78), in v1 to v4 LEADER_NOT_AVAILABLE(5), while a frozen follower holds the high watermark "
    "back; then the log end",
    since="2.2",
    nodes=3, hooks=FREEZES, configs=QUICK, apis={"AlterPartitionReassignments": 0, "ElectLeaders": 1}, deadline_s=DEADLINE_S,
)  # fmt: skip
def end_of_a_new_leader(broker: Broker) -> None:
    with cluster(broker) as nodes:
        first, frozen, next_ = nodes.cast()
        lowest, highest = broker.versions_of(ListOffsetsRequest)

        def once() -> bool:
            topic = nodes.topic(first, next_, frozen)
            broker.append(topic, batch(b"shown"))
            with nodes.paused(frozen) as moment:
                broker.append(topic, batch(b"not shown"), acks=1)
                nodes.change_leader(topic, next_)
                codes = {version: last_offset(broker, topic, version) for version in range(max(lowest, 1), highest + 1)}
                state, lasts = nodes.state(topic), moment.lasts
            if not lasts or frozen not in state.isr or lost_with_its_leader(broker, topic, highest):
                return False
            for version, (code, offset) in codes.items():
                by_version = version >= OFFSET_NOT_AVAILABLE_SINCE
                wanted = ErrorCode.OFFSET_NOT_AVAILABLE if by_version else ErrorCode.LEADER_NOT_AVAILABLE
                broker.expect_error(code, wanted, what=f"v{version}, while node {frozen} is frozen")
                broker.expect_equal("the offset", offset, -1)
            broker.eventually(
                lambda: last_offset(broker, topic, highest) == (ErrorCode.NONE, 2),
                "the end is 2",
                within_s=STATE_WITHIN_S,
            )
            return True

        in_time(broker, once)


def lost_with_its_leader(broker: Broker, topic: Topic, version: int) -> bool:
    """Whether the new leader lacks the record that only the old leader had: then its last offset is the old high watermark."""

    def end() -> int | None:
        code, offset = last_offset(broker, topic, version)
        return offset if code == ErrorCode.NONE else None

    return broker.eventually(end, "the last offset is reported", within_s=STATE_WITHIN_S) == 1


def last_offset(broker: Broker, topic: Topic, version: int) -> tuple[int, int]:
    """Error code and offset of ListOffsets for the latest offset."""
    found = broker.offset_of(topic, LATEST, version=version)
    return found.error_code, found.offset
