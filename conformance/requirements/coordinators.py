"""COO: FindCoordinator, which returns the broker that keeps the state of a group or a transactional id."""

from typing import Any

from conformance.answers import AnswerParts, error_name, only
from conformance.batches import records
from conformance.broker import Broker
from conformance.requirement import requirement
from linearizability.client.requests import GROUP, TRANSACTION, Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.offset_commit import OffsetCommitRequest

SHARE, NO_SUCH_TYPE = 2, 9
"""Key types: that of share groups (v6+), and one that does not exist."""
BATCHED = 4
"""The first version of FindCoordinator with several keys."""
SHARED = 6
"""The first version of FindCoordinator with share groups."""
NOWHERE = (-1, "", -1)
"""Node, host and port in a response without a coordinator."""
OFFSETS = "__consumer_offsets"
NOT_YET = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def find(
    broker: Broker, *keys: str, key_type: int = GROUP, version: int | None = None, to: tuple[str, int] | None = None
) -> list[Any]:
    """The response of FindCoordinator for each key; below v4 for one key only, with fields of the same names."""
    version = broker.version_for(FindCoordinatorRequest, version)
    if version >= BATCHED:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=list(keys))
        return broker.call(request, version, to=to).coordinators
    (key,) = keys
    return [broker.call(FindCoordinatorRequest(key=key, key_type=key_type if version else GROUP), version, to=to)]


def found(broker: Broker, key: str, *, key_type: int = GROUP, version: int | None = None, to: Any = None) -> Any:
    """The coordinator of a key; waits until there is one."""

    def there() -> Any:
        answer = only(find(broker, key, key_type=key_type, version=version, to=to), f"coordinator of {key}")
        if answer.error_code in NOT_YET:
            return None
        broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"coordinator of {key}")
        return answer

    return broker.eventually(there, f"{key} has a coordinator")


def place(answer: Any) -> tuple[int, str, int]:
    """Node, host and port in a response."""
    return answer.node_id, answer.host, answer.port


def java_hash(text: str) -> int:
    """String.hashCode of Java."""
    value = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def offsets_partitions(broker: Broker) -> dict[int, Any]:
    """The partitions of the offsets topic by number; empty if the topic does not exist."""
    entry = MetadataRequest.MetadataRequestTopic(name=OFFSETS)
    topic = only(broker.metadata([entry]).topics, "topic in the answer")
    return AnswerParts({one.partition_index: one for one in topic.partitions})


@requirement(
    "COO-01",
    notices="data: two halves of a group meet at two coordinators, and each reads every partition",
    source="GroupCoordinatorService.partitionFor; KafkaApis.getCoordinator",
    sentence="A group's coordinator is the same whichever broker is asked and however often, and is one of the brokers that "
    "Metadata lists.",
    accepted="for 20 groups, from every broker, twice: one and the same node, with the host and port of Metadata",
)
def the_same_from_everywhere(broker: Broker) -> None:
    brokers = {(one.node_id, one.host, one.port) for one in broker.metadata([]).brokers}
    broker.expect(bool(brokers), f"{len(brokers)} brokers, at least one, are in Metadata")
    for number in range(20):
        group = broker.unused_name(f"group-{number}")
        first = place(found(broker, group))
        broker.expect(first in brokers, f"{group} is coordinated by a broker that Metadata lists: node {first[0]}")
        for _, host, port in [*brokers, *brokers]:
            seen = place(found(broker, group, to=(host, port)))
            if seen != first:
                broker.fail(f"{host}:{port} says that {group} is at {seen}, another broker says {first}")


@requirement(
    "COO-02",
    notices="stuck: clients ask again on this code until there is a coordinator, and fail on most others",
    source="KafkaApis.getCoordinator; AutoTopicCreationManager",
    sentence="The first use of a fresh cluster makes the offsets topic: until it exists the answer is "
    "COORDINATOR_NOT_AVAILABLE, then the coordinator.",
    accepted="first COORDINATOR_NOT_AVAILABLE(15); in the end NONE(0) and an internal topic of offsets.topic.num.partitions "
    "partitions",
    tolerated="NONE(0) at once",
    configs={"offsets.topic.num.partitions": "3"},
    alone=True,
)
def first_use(broker: Broker) -> None:
    if offsets_partitions(broker):
        broker.skip(f"needs a cluster on which {OFFSETS} does not exist yet")
    group = broker.unused_name("group")
    first = only(find(broker, group), f"coordinator of {group}")
    broker.expect_error(
        first.error_code, ErrorCode.COORDINATOR_NOT_AVAILABLE, tolerated={ErrorCode.NONE}, what="the first answer"
    )
    found(broker, group)
    broker.expect_equal("the partitions of the offsets topic", sorted(offsets_partitions(broker)), [0, 1, 2])
    listed = AnswerParts({topic.name: topic.is_internal for topic in broker.metadata(None).topics})
    broker.expect_equal(f"{OFFSETS} is internal", listed.get(OFFSETS), True)


@requirement(
    "COO-03",
    notices="stuck: Java asks from v4 on, for one key or for many, and looks for the entry of its key",
    source="KIP-699; KafkaApis.handleFindCoordinatorRequestV4AndAbove",
    sentence="From v4 on, several keys are answered by one entry each, with the key and its own coordinator.",
    accepted="for five groups their coordinators; no entry for no key",
    tolerated="an entry for no key: no client asks so",
    since="3.0",
    apis={"FindCoordinator": BATCHED},
)
def several_keys(broker: Broker) -> None:
    groups = [broker.unused_name(f"group-{number}") for number in range(5)]
    places = [place(found(broker, group)) for group in groups]
    for version in range(BATCHED, broker.version_for(FindCoordinatorRequest) + 1):
        with broker.case(f"v{version}"):
            answers = find(broker, *groups, version=version)
            broker.expect_equal("the keys of the answer", sorted(one.key for one in answers), sorted(groups))
            broker.expect_equal("the errors", [one.error_code for one in answers], [ErrorCode.NONE] * 5)
            reported = {one.key: place(one) for one in answers}
            broker.expect_equal("the coordinators", reported, dict(zip(groups, places, strict=True)))
            if len(entries := find(broker, version=version)):
                broker.tolerate(f"for no key there are {len(entries)} entries")


@requirement(
    "COO-06",
    notices="none seen: clients ask for groups and transactions only where the version has no more",
    source="KIP-932; KafkaApis.getCoordinator",
    sentence="The key type of share groups in a version below 6 is refused with INVALID_REQUEST; so is, in every version, a key "
    "type that does not exist.",
    accepted="INVALID_REQUEST(42) with node -1, empty host, port -1",
    since="4.0",
    apis={"FindCoordinator": 1},
)
def key_types(broker: Broker) -> None:
    lowest, highest = broker.versions_of(FindCoordinatorRequest)
    key = f"{broker.unused_name('group')}:AAAAAAAAAAAAAAAAAAAAAQ:0"
    for version in range(max(lowest, 1), highest + 1):
        for key_type in (SHARE, 3, NO_SUCH_TYPE, -1):
            if key_type != SHARE or version < SHARED:
                with broker.case(f"key type {key_type}, v{version}"):
                    answer = only(find(broker, key, key_type=key_type, version=version), f"coordinator of {key}")
                    broker.expect_error(answer.error_code, ErrorCode.INVALID_REQUEST)
                    broker.expect_equal("node, host and port", place(answer), NOWHERE)


@requirement(
    "COO-07",
    notices="stuck: clients of different age in one group, or one that finds none",
    source="FindCoordinatorRequest schema; KIP-98 (v1), KIP-699 (v4)",
    sentence="Every advertised version finds a group's coordinator, and the same one: v0, which knows only groups, and the ones "
    "with a single key too.",
    accepted="NONE(0) and the same node, host and port in every version",
)
def every_version(broker: Broker) -> None:
    group = broker.unused_name("group")
    wanted = place(found(broker, group))
    lowest, highest = broker.versions_of(FindCoordinatorRequest)
    for version in range(lowest, highest + 1):
        answer = only(find(broker, group, version=version), f"coordinator of {group}")
        broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"v{version}")
        broker.expect_equal(f"v{version}: node, host and port", place(answer), wanted)


@requirement(
    "COO-08",
    notices="none seen: clients ask for the coordinator; tools that read __consumer_offsets read all of it",
    source="GroupCoordinatorService.partitionFor (Utils.abs(groupId.hashCode) % offsets.topic.num.partitions)",
    sentence="A group's state is kept in the partition of the offsets topic that Java's hash of its name gives, and the leader "
    "of that partition is its coordinator.",
    accepted="for groups with positive and negative hashes, ASCII or not: the coordinator leads that partition, and the "
    "record of a commit is in it and in no other one",
)
def partition_by_hash(broker: Broker) -> None:
    topic = broker.topic()
    for group in groups_of_both_signs(broker):
        with broker.case(
            f"{'ASCII' if group.isascii() else 'beyond ASCII'}, hash {'below' if java_hash(group) < 0 else 'above'} 0"
        ):
            coordinator = found(broker, group)
            partitions = offsets_partitions(broker)
            if not partitions:
                broker.skip(f"the target has no topic {OFFSETS}: it keeps groups in another place")
            wanted = abs(java_hash(group)) % len(partitions)
            broker.expect_equal("the coordinator", coordinator.node_id, partitions[wanted].leader_id)
            offsets = Topic(OFFSETS, broker.describe_topic(OFFSETS).topic_id, len(partitions))
            ends = {partition: broker.end_offset(offsets, partition) for partition in partitions}
            commit_one(broker, group, topic)
            holding = [
                partition
                for partition, end in ends.items()
                for record in records(broker.log(offsets, partition=partition, offset=end))
                if group.encode() in (record.key or b"")
            ]
            if not any(broker.end_offset(offsets, partition) > end for partition, end in ends.items()):
                broker.skip(f"a commit writes nothing into {OFFSETS}: the target keeps groups in another place")
            broker.expect_equal(f"the partition of the commit's record, for hash {java_hash(group)}", holding, [wanted])


def groups_of_both_signs(broker: Broker) -> list[str]:
    """Unused names of groups, two for each sign of Java's hash; one of the two has characters outside ASCII."""
    names: dict[tuple[bool, bool], str] = {}
    for stem in ("group", "größe-組-\U0001d11e") * 100:
        name = broker.unused_name(stem)
        names.setdefault((stem == "group", java_hash(name) < 0), name)
    return [names[key] for key in sorted(names)]


def commit_one(broker: Broker, group: str, topic: Topic) -> None:
    """Commit an offset for a group without members."""
    version = min(broker.version_for(OffsetCommitRequest), 9)
    partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    entry = OffsetCommitRequest.OffsetCommitRequestTopic(name=topic.name, partitions=[partition])
    request = OffsetCommitRequest(group_id=group, topics=[entry])

    def committed() -> bool:
        answer = broker.call(request, version, to=broker.coordinator(group))
        result = only(only(answer.topics, "topic in the answer").partitions, "partition in the answer")
        if result.error_code not in NOT_YET and result.error_code != ErrorCode.NONE:
            broker.fail(f"OffsetCommit: {error_name(result.error_code)}")
        return result.error_code == ErrorCode.NONE

    broker.eventually(committed, f"an offset of {group} is committed")


@requirement(
    "COO-09",
    notices="stuck: a transactional producer of any client begins with it",
    source="KIP-98; KafkaApis.getCoordinator",
    sentence="From v1 on, a transactional id has a coordinator, in every version the same.",
    accepted="NONE(0) and the same node, host and port in every version from 1 on",
    apis={"FindCoordinator": 1, "AddPartitionsToTxn": 0},
)
def transaction_coordinator(broker: Broker) -> None:
    name = broker.unused_name("txn")
    wanted = place(found(broker, name, key_type=TRANSACTION))
    brokers = {(one.node_id, one.host, one.port) for one in broker.metadata([]).brokers}
    broker.expect(wanted in brokers, f"{name} is coordinated by a broker that Metadata lists: node {wanted[0]}")
    lowest, highest = broker.versions_of(FindCoordinatorRequest)
    for version in range(max(lowest, 1), highest + 1):
        answer = only(find(broker, name, key_type=TRANSACTION, version=version), f"coordinator of {name}")
        broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"v{version}")
        broker.expect_equal(f"v{version}: node, host and port", place(answer), wanted)


@requirement(
    "COO-10",
    notices="none seen: clients look at the code first, and find the entry of a key by the key",
    source="KIP-699; KafkaApis.handleFindCoordinatorRequestV4AndAbove, handleFindCoordinatorRequestLessThanV4",
    sentence="From v4 on, entries come in the order of the keys; where there is an error they have no node.",
    accepted="for five keys of a type that does not exist INVALID_REQUEST(42) with node -1, empty host and port -1, in order",
    since="3.0",
    apis={"FindCoordinator": BATCHED},
)
def no_node_beside_an_error(broker: Broker) -> None:
    keys = [broker.unused_name(f"group-{number}") for number in range(5)]
    for version in range(BATCHED, broker.version_for(FindCoordinatorRequest) + 1):
        wrong = find(broker, *keys, key_type=NO_SUCH_TYPE, version=version)
        broker.expect_equal(f"v{version}: the keys of the refusals", [one.key for one in wrong], keys)
        for one in wrong:
            broker.expect_error(one.error_code, ErrorCode.INVALID_REQUEST)
            broker.expect_equal("node, host and port", place(one), NOWHERE)
