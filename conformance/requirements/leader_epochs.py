"""EPO: leader epochs: errors for requests with an old or a future leader epoch, and the offset at which logs diverge."""

from collections.abc import Callable
from typing import Any

from conformance.answers import only
from conformance.batches import batch, batches
from conformance.broker import LATEST, METADATA_WITH_EPOCHS, Broker
from conformance.cluster import QUICK, JudgedCluster, cluster
from conformance.requirement import requirement
from linearizability.client.requests import Topic, fetch_request
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.list_offsets import ListOffsetsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

UNKNOWN = -1
"""An unknown epoch or offset; as the current leader epoch of a request: do not check it."""

Ask = Callable[[Broker, Topic, int, int], Any]


def end_of_epoch(
    broker: Broker, topic: Topic, epoch: int, *, current: int = UNKNOWN, version: int | None = None, partition: int = 0
) -> Any:
    """A partition's result of a consumer's OffsetForLeaderEpoch, also an error."""
    version = broker.version_for(OffsetForLeaderEpochRequest, version)
    table = OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    asked = table(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic.name, partitions=[asked])]
    )
    answer = broker.call(request, version, to=broker.leader(topic, partition))
    return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")


def by_fetch(broker: Broker, topic: Topic, current: int, version: int) -> Any:
    """A partition's result of Fetch with this current leader epoch."""
    return broker.fetch(topic, 0, current_leader_epoch=current, version=version)


def by_list_offsets(broker: Broker, topic: Topic, current: int, version: int) -> Any:
    """A partition's result of ListOffsets with this current leader epoch."""
    table = ListOffsetsRequest.ListOffsetsPartition
    asked = table(partition_index=0, timestamp=LATEST, current_leader_epoch=current)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsRequest.ListOffsetsTopic(name=topic.name, partitions=[asked])]
    )
    answer = broker.call(request, version, to=broker.leader(topic))
    return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")


def by_end_of_epoch(broker: Broker, topic: Topic, current: int, version: int) -> Any:
    """A partition's result of OffsetForLeaderEpoch with this current leader epoch; it asks for the end of the leader's epoch."""
    return end_of_epoch(broker, topic, broker.leader_epoch(topic), current=current, version=version)


FENCED: dict[str, tuple[type, int, Ask]] = {
    "Fetch": (FetchRequest, 9, by_fetch),
    "ListOffsets": (ListOffsetsRequest, 4, by_list_offsets),
    "OffsetForLeaderEpoch": (OffsetForLeaderEpochRequest, 2, by_end_of_epoch),
}
"""API -> (request, first version with a current leader epoch, function that sends it)."""
OFFSET = {"Fetch": "high_watermark", "ListOffsets": "offset", "OffsetForLeaderEpoch": "end_offset"}
"""API -> the field of its response with an offset, which is -1 in a response with an error."""


def expect_everywhere(broker: Broker, topic: Topic, current: int, error: ErrorCode) -> None:
    """Expect this error from each API with a current leader epoch, in every version that has one."""
    for name, (request, first, ask) in FENCED.items():
        lowest, highest = broker.versions_of(request)
        for version in range(max(lowest, first), highest + 1):
            found = ask(broker, topic, current, version)
            broker.expect_error(found.error_code, error, what=f"{name} v{version}, current leader epoch {current}")
            offset = getattr(found, OFFSET[name])
            if error != ErrorCode.NONE and offset != UNKNOWN:
                broker.tolerate(f"{name} v{version} has {OFFSET[name]} {offset} in a response with an error")


@requirement(
    "EPO-01",
    since="2.1",
    notices="misread: Java, franz-go and librdkafka look for lost records on this code before they read on",
    source="KIP-320; Partition.checkCurrentLeaderEpoch",
    sentence="Fetch, ListOffsets and OffsetForLeaderEpoch with a current leader epoch below the leader's are "
    "FENCED_LEADER_EPOCH.",
    accepted="FENCED_LEADER_EPOCH(74) in every version that has the field, for each epoch before the leader's",
    tolerated="an offset beside the error, where Kafka gives -1: clients look at the error first",
    hooks=("restart",),
    deadline_s=150,
)
def epoch_of_the_past(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"x"))
    for past in range(broker.restart_leader(topic)):
        expect_everywhere(broker, topic, past, ErrorCode.FENCED_LEADER_EPOCH)
    broker.append(topic, batch(b"y"))
    expect_everywhere(broker, topic, broker.leader_epoch(topic), ErrorCode.NONE)


@requirement(
    "EPO-02",
    since="2.1",
    notices="misread: a consumer that knows a later leader reads from a deposed one what no other node has",
    source="KIP-320; Partition.checkCurrentLeaderEpoch",
    sentence="Fetch, ListOffsets and OffsetForLeaderEpoch with a current leader epoch above the leader's are "
    "UNKNOWN_LEADER_EPOCH.",
    accepted="UNKNOWN_LEADER_EPOCH(75) in every version that has the field, for the next epoch and the last",
    tolerated="an offset beside the error, where Kafka gives -1: clients look at the error first",
)
def epoch_of_the_future(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"x"))
    known = broker.leader_epoch(topic)
    if known == UNKNOWN:
        broker.skip("Metadata reports no leader epoch, and clients name none that they do not know (MET-07)")
    for ahead in (known + 1, 2_147_483_647):
        expect_everywhere(broker, topic, ahead, ErrorCode.UNKNOWN_LEADER_EPOCH)


@requirement(
    "EPO-03",
    since="2.1",
    notices="stuck: kafka-go and aiokafka send -1, Java, librdkafka, franz-go and sarama the epoch of Metadata",
    source="KIP-320; Partition.checkCurrentLeaderEpoch",
    sentence="The current leader epoch -1 is not checked, and the leader's own is right.",
    accepted="NONE(0) for -1 and for the epoch of Metadata, in every version that has the field; the record is fetched",
)
def epoch_not_given(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"x"))
    for current in (UNKNOWN, broker.leader_epoch(topic)):
        expect_everywhere(broker, topic, current, ErrorCode.NONE)
        found = broker.fetch(topic, 0, current_leader_epoch=current)
        broker.expect_equal("the batches fetched", len(batches(found.records or b"")), 1)


@requirement(
    "EPO-04",
    apis={"Metadata": METADATA_WITH_EPOCHS},
    notices="misread: Java, franz-go and librdkafka take a lower end for lost records, and reset their position",
    source="KIP-101; LeaderEpochFileCache.endOffsetFor",
    sentence="OffsetForLeaderEpoch for the current epoch gives that epoch and the log end offset.",
    accepted="the epoch of Metadata and 0 for an empty log, the number of records then, in every version",
)
def end_of_the_current_epoch(broker: Broker) -> None:
    topic, end = broker.topic(), 0
    epoch = broker.leader_epoch(topic)
    lowest, highest = broker.versions_of(OffsetForLeaderEpochRequest)
    for version in range(lowest, highest + 1):
        found = end_of_epoch(broker, topic, epoch, version=version)
        broker.expect_error(found.error_code, ErrorCode.NONE, what=f"v{version}, {end} records")
        reported = found.leader_epoch if version >= 1 else epoch
        broker.expect_equal("epoch and end offset", (reported, found.end_offset), (epoch, end))
        end = broker.append(topic, batch(b"a", b"b", b"c")) + 3


@requirement(
    "EPO-05",
    since="2.0",
    apis={"Metadata": METADATA_WITH_EPOCHS},
    notices="misread: Java, franz-go and librdkafka go back to this offset after records were lost",
    source="KIP-279; LeaderEpochFileCache.endOffsetFor",
    sentence="OffsetForLeaderEpoch for an older epoch gives the largest epoch up to it in which something was written, and where "
    "the next one begins.",
    accepted="over two restarts of the leader: (epoch, end offset) of each epoch with records, and for epochs in between that of "
    "the one before",
    hooks=("restart",),
    deadline_s=240,
)
def end_of_an_older_epoch(broker: Broker) -> None:
    written: list[tuple[int, int]]
    topic, written = broker.topic(), []
    for number in range(3):
        if number:
            broker.restart_leader(topic)
        end = broker.append(topic, batch(*[b"x"] * (number + 1))) + number + 1
        written.append((broker.leader_epoch(topic), end))
    current = written[-1][0]
    broker.saw(f"epochs and their end offsets: {written}")
    for epoch in range(written[0][0], current + 1):
        found = end_of_epoch(broker, topic, epoch)
        wanted = max(one for one in written if one[0] <= epoch)
        broker.expect_error(found.error_code, ErrorCode.NONE, what=f"epoch {epoch} of {current}")
        broker.expect_equal("epoch and end offset", (found.leader_epoch, found.end_offset), wanted)


@requirement(
    "EPO-06",
    notices="misread: Java takes it for lost records and resets by policy; an offset instead hides the loss",
    source="KIP-101; LeaderEpochFileCache.endOffsetFor (UNDEFINED_EPOCH)",
    sentence="OffsetForLeaderEpoch for an epoch later than the leader's, or for -1, gives epoch -1 and offset -1 and no error.",
    accepted="(-1, -1) with NONE(0) in every version, for the next epoch, the last and -1",
)
def unknown_epoch(broker: Broker) -> None:
    topic = broker.topic()
    broker.append(topic, batch(b"x"))
    lowest, highest = broker.versions_of(OffsetForLeaderEpochRequest)
    for version in range(lowest, highest + 1):
        later = broker.leader_epoch(topic) + 1 if broker.version_for(MetadataRequest) >= METADATA_WITH_EPOCHS else 2**30
        for epoch in (later, 2_147_483_647, UNKNOWN):
            found = end_of_epoch(broker, topic, epoch, version=version)
            broker.expect_error(found.error_code, ErrorCode.NONE, what=f"v{version}, epoch {epoch}")
            broker.expect_equal("epoch and end offset", (found.leader_epoch, found.end_offset), (UNKNOWN, UNKNOWN))


@requirement(
    "EPO-11",
    notices="client: Java renews its metadata and asks again on this code, and on most others",
    source="KafkaApis.handleOffsetForLeaderEpochRequest",
    sentence="OffsetForLeaderEpoch of an unknown topic or partition is UNKNOWN_TOPIC_OR_PARTITION.",
    accepted="UNKNOWN_TOPIC_OR_PARTITION(3), epoch -1 and offset -1 in every version",
    tolerated="an epoch or an offset beside the error: clients look at the error first",
)
def unknown_topic_or_partition(broker: Broker) -> None:
    topic = broker.topic()
    lowest, highest = broker.versions_of(OffsetForLeaderEpochRequest)
    for version in range(lowest, highest + 1):
        for what, asked, partition in (
            ("an unknown partition", topic, 7),
            ("an unknown topic", Topic(broker.unused_name(), topic.id, 1), 0),
        ):
            found = end_of_epoch(broker, asked, 0, version=version, partition=partition)
            broker.expect_error(found.error_code, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what=f"v{version}, {what}")
            broker.expect_equal("its partition", found.partition, partition)
            reported = found.leader_epoch, found.end_offset
            if reported != (UNKNOWN, UNKNOWN):
                broker.tolerate(
                    f"v{version}, {what}: epoch {reported[0]} and offset {reported[1]} in a response with an error"
                )


@requirement(
    "EPO-07",
    notices="none seen: Java, franz-go and librdkafka send no last fetched epoch; followers do, of the same vendor",
    source="KIP-595; Partition.readRecords; DelayedFetch",
    sentence="Fetch whose last fetched epoch and offset are not on the leader's history learns where the two part, gets no "
    "records, and does not wait.",
    accepted="the diverging epoch with its end offset, for an offset beyond that epoch's end and for an epoch that never was; "
    "records and no diverging epoch for what is on the history",
    nodes=3, configs=QUICK, apis={"Fetch": 12}, deadline_s=120,
)  # fmt: skip
def where_histories_part(broker: Broker) -> None:
    with cluster(broker) as nodes:
        first, second, _ = nodes.cast()
        topic = nodes.topic(first, second)
        old = nodes.state(topic).epoch
        broker.append(topic, batch(b"a", b"b", b"c"))
        new = nodes.lead(topic, second).epoch
        broker.append(topic, batch(b"d"))
        broker.append(topic, batch(b"e"))
        broker.saw(f"epoch {old} ends at 3, epoch {new} at 5")
        for offset, last in ((4, old), (5, old), (5, new - 1)):
            part = after_epoch(broker, topic, offset, last, max_wait_ms=60_000)
            parted = (part.diverging_epoch.epoch, part.diverging_epoch.end_offset, bytes(part.records or b""))
            broker.expect_error(part.error_code, ErrorCode.NONE, what=f"offset {offset} after epoch {last}")
            broker.expect_equal("diverging epoch, its end offset, records", parted, (old, 3, b""))
        for offset, last in ((3, old), (4, new), (1, old)):
            part = after_epoch(broker, topic, offset, last)
            broker.expect_equal("the diverging epoch", part.diverging_epoch.epoch, UNKNOWN)
            broker.expect(bool(part.records), f"records for offset {offset} after epoch {last}")


def after_epoch(broker: Broker, topic: Topic, offset: int, last_fetched: int, *, max_wait_ms: int = 0) -> Any:
    """A partition's result of a fetch with this last fetched epoch."""
    request = fetch_request({(topic, 0): offset}, max_wait_ms=max_wait_ms, last_fetched_epoch=last_fetched)
    answer = broker.call(request, to=broker.leader(topic))
    return only(only(answer.responses, "topic in the answer").partitions, "partition in the answer")


@requirement(
    "EPO-08",
    notices="stuck: Java and librdkafka ignore a leader whose epoch is lower than the one that they know",
    source="KIP-101; PartitionChangeBuilder",
    sentence="The leader epoch grows with each change of the leader, and is the same from all brokers.",
    accepted="a later epoch after each of four elections; every broker comes to report the same leader and epoch",
    nodes=3, configs=QUICK, deadline_s=120,
)  # fmt: skip
def epochs_grow(broker: Broker) -> None:
    with cluster(broker) as nodes:
        first, second, third = nodes.cast()
        topic = nodes.topic(first, second, third)
        for node in (second, third, first, third):
            before = nodes.state(topic)
            after = nodes.lead(topic, node)
            broker.expect(after.epoch > before.epoch, f"epoch {after.epoch} is above {before.epoch}")
            broker.eventually(
                lambda after=after: agree_from(nodes, topic, after.epoch),
                f"all brokers report one leader, in one epoch from {after.epoch} on",
            )


def agree_from(nodes: JudgedCluster, topic: Topic, epoch: int) -> bool:
    """Whether all brokers report the same leader in the same epoch, this or a later one: the leader may change by itself."""
    reported = {(seen.leader, seen.epoch) for seen in (nodes.state(topic, witness) for witness in nodes.reachable)}
    return len(reported) == 1 and all(seen >= epoch for _, seen in reported)


@requirement(
    "EPO-09",
    notices="misread: consumers check their position by these epochs after a change of leader",
    source="KIP-101; record batch format (PartitionLeaderEpoch)",
    sentence="Each batch bears the leader epoch in which it was appended, and epochs do not go down along the log, on "
    "any replica.",
    accepted="over three elections the epoch of each batch's leader, from the leader and from each follower",
    nodes=3, configs=QUICK, apis={"Fetch": 11}, deadline_s=120,
)  # fmt: skip
def epochs_along_the_log(broker: Broker) -> None:
    with cluster(broker) as nodes:
        first, second, third = nodes.cast()
        topic = nodes.topic(first, second, third)
        written: list[tuple[int, int]] = []
        for node in (first, second, third, first):
            if written:
                nodes.lead(topic, node)
            for _ in range(2):
                before = nodes.state(topic, via=node).epoch
                broker.append(topic, batch(b"x"))
                written.append((before, nodes.state(topic, via=node).epoch))
        reported: list[list[int]] = []
        for node in (first, second, third):
            log = batches(nodes.log_from(topic, node, len(written)))
            reported.append(
                [one.partition_leader_epoch for one in log for _ in range(one.base_offset, one.next_offset)]
            )
        stored = reported[0]
        epochs = f"the epochs by offset are {stored}, with {written} before and after each append"
        as_led = [low <= epoch <= high for epoch, (low, high) in zip(stored, written, strict=False)]
        broker.expect(len(stored) == len(written) and all(as_led), epochs)
        broker.expect_equal("the same in order", stored, sorted(stored))
        broker.expect_equal("the epochs on all three nodes", reported, [stored] * 3)
