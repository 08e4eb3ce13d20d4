"""What the active controller decides on request, and what it refuses: topics, settings, reassignments, elections, features,
voters, and what only brokers and voters ask (TOP-*, CFG-*, KIP-455, KIP-595, KIP-631); see `inspecting`.

A topic of its own is made, described, grown, configured, moved and deleted. All else are refusals, so that nothing changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from linearizability.client.errors import errors_in
from linearizability.client.requests import delete_topics_request, new_topic
from linearizability.simulation.configuration import CONTROLLER
from linearizability.simulation.inspecting import (
    Chapter,
    Differs,
    Inspector,
    Question,
    changed,
    may_end,
    refusals,
    require,
    require_same,
)
from linearizability.simulation.schedule import GROUPS_TOPIC as OFFSETS
from linearizability.simulation.schedule import METADATA_TOPIC
from reference.controller.image import MetadataImage, PartitionImage
from reference.node.node import Node
from reference.protocol.errors import ErrorCode as E
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from reference.protocol.messages.alter_partition import AlterPartitionRequest
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from reference.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.unregister_broker import UnregisterBrokerRequest
from reference.protocol.messages.update_features import UpdateFeaturesRequest
from reference.protocol.messages.vote import VoteRequest
from reference.protocol.primitives import NO_UUID, NodeId
from reference.protocol.schema import Message

NOWHERE = "nowhere"
STRANGER = 99
"""The id of a node that does not exist."""
TOPIC, BROKER, GROUP = 2, 4, 32
"""Types of resources that have settings."""
SET, DELETE, APPEND, SUBTRACT = range(4)
PREFERRED, UNCLEAN = range(2)
UPGRADE, SAFE_DOWNGRADE = 1, 2
NOT_LEADING = ({E.NOT_CONTROLLER}, {E.NOT_LEADER_OR_FOLLOWER})
TIMEOUT_MS = 60_000
SOME_ID = UUID(int=0x5F1C_0000_0000_4000_8000_0000_0000_0001)


# ---- requests


def _creation(*topics: Any, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[*topics], timeout_ms=TIMEOUT_MS, validate_only=validate_only)


def _growth(name: str, count: int, placed: Sequence[Sequence[int]] | None = None) -> CreatePartitionsRequest:
    place = CreatePartitionsRequest.CreatePartitionsAssignment
    assignments = None if placed is None else [place(broker_ids=[*map(NodeId, ids)]) for ids in placed]
    topic = CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    return CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)


def _settings(type: int, name: str, *changes: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest:
    request = IncrementalAlterConfigsRequest
    configs = [request.AlterableConfig(name=key, config_operation=operation, value=v) for key, operation, v in changes]
    return request(resources=[request.AlterConfigsResource(resource_type=type, resource_name=name, configs=configs)])


def _move(name: str, index: int, replicas: Sequence[int] | None, may_change: bool = True) -> Message:
    request = AlterPartitionReassignmentsRequest
    wanted = None if replicas is None else [*map(NodeId, replicas)]
    partition = request.ReassignablePartition(partition_index=index, replicas=wanted)
    topics = [request.ReassignableTopic(name=name, partitions=[partition])]
    return request(timeout_ms=TIMEOUT_MS, topics=topics, allow_replication_factor_change=may_change)


def _election(kind: int, name: str, index: int) -> ElectLeadersRequest:
    partitions = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[index])]
    return ElectLeadersRequest(election_type=kind, topic_partitions=partitions, timeout_ms=TIMEOUT_MS)


def _feature(name: str, level: int, kind: int = UPGRADE) -> UpdateFeaturesRequest:
    update = UpdateFeaturesRequest.FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
    return UpdateFeaturesRequest(timeout_ms=TIMEOUT_MS, feature_updates=[update], validate_only=True)


# ---- what brokers forward


def refused_by_the_controller(client: Inspector) -> Chapter:
    """What operators ask and no state of the cluster grants."""
    image = client.node(client.home.node).image
    name = client.cluster.schedule.topics[0].name
    topic = image.topics.get(name)
    if topic is None:
        raise Differs(f"{name} is not known")
    count, factor, some = len(topic.partitions), len(topic.partitions[0].replicas), [*image.brokers][:1]
    fresh = client.scratch
    cases: list[tuple[Any, int, E]] = [
        (_creation(new_topic(name)), 7, E.TOPIC_ALREADY_EXISTS),
        (_creation(new_topic("")), 7, E.INVALID_TOPIC_EXCEPTION),
        (_creation(new_topic("..")), 7, E.INVALID_TOPIC_EXCEPTION),
        (_creation(new_topic("x" * 250)), 7, E.INVALID_TOPIC_EXCEPTION),
        (_creation(new_topic("x" * 249), validate_only=True), 7, E.NONE),
        (_creation(new_topic(METADATA_TOPIC)), 7, E.INVALID_TOPIC_EXCEPTION),
        (_creation(new_topic(fresh, 0)), 7, E.INVALID_PARTITIONS),
        (_creation(new_topic(fresh, 10_001)), 7, E.POLICY_VIOLATION),
        (_creation(new_topic(fresh, replication_factor=0)), 7, E.INVALID_REPLICATION_FACTOR),
        (_creation(new_topic(fresh, replication_factor=len(image.brokers) + 1)), 7, E.INVALID_REPLICATION_FACTOR),
        (_creation(new_topic(fresh, placed=[[STRANGER]])), 7, E.INVALID_REPLICA_ASSIGNMENT),
        (_creation(new_topic(fresh, placed=[some * 2])), 7, E.INVALID_REPLICA_ASSIGNMENT),
        (_creation(new_topic(fresh, placed=[[]])), 7, E.INVALID_REPLICA_ASSIGNMENT),
        (_creation(new_topic(fresh, configs={"no.such.name": "1"})), 7, E.INVALID_CONFIG),
        (_creation(new_topic(fresh, configs={"retention.ms": "long"})), 7, E.INVALID_CONFIG),
        (_creation(new_topic(fresh, configs={"min.insync.replicas": "0"})), 7, E.INVALID_CONFIG),
        (_creation(new_topic(fresh), new_topic(fresh)), 7, E.INVALID_REQUEST),
        (_creation(new_topic(fresh), validate_only=True), 7, E.NONE),
        (_growth(NOWHERE, 2), 3, E.UNKNOWN_TOPIC_OR_PARTITION),
        (_growth(name, count), 3, E.INVALID_PARTITIONS),
        (_growth(name, count + 10_001), 3, E.POLICY_VIOLATION),
        (_growth(name, count + 2, [some]), 3, E.INVALID_REPLICA_ASSIGNMENT),
        (_growth(name, count + 1, [[STRANGER] * factor]), 3, E.INVALID_REPLICA_ASSIGNMENT),
        (delete_topics_request([NOWHERE], 5), 5, E.UNKNOWN_TOPIC_OR_PARTITION),
        (DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=SOME_ID)],
                             timeout_ms=TIMEOUT_MS), 6, E.UNKNOWN_TOPIC_ID),
        (_settings(TOPIC, NOWHERE, ("retention.ms", SET, "1")), 1, E.UNKNOWN_TOPIC_OR_PARTITION),
        (_settings(TOPIC, name, ("no.such.name", SET, "1")), 1, E.INVALID_CONFIG),
        (_settings(TOPIC, name, ("retention.ms", SET, "long")), 1, E.INVALID_CONFIG),
        (_settings(TOPIC, name, ("retention.ms", APPEND, "1")), 1, E.INVALID_CONFIG),
        (_settings(TOPIC, name, ("retention.ms", 7, "1")), 1, E.INVALID_REQUEST),
        (_settings(TOPIC, name, ("retention.ms", SET, "1"), ("retention.ms", SET, "2")), 1, E.INVALID_REQUEST),
        (_settings(GROUP, "", ("consumer.session.timeout.ms", SET, "50000")), 1, E.INVALID_REQUEST),
        (_settings(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")), 1, E.INVALID_CONFIG),
        (_settings(GROUP, "g", ("no.such.name", SET, "1")), 1, E.INVALID_CONFIG),
        (_settings(77, name, ("retention.ms", SET, "1")), 1, E.INVALID_REQUEST),
        (_move(NOWHERE, 0, [1]), 1, E.UNKNOWN_TOPIC_OR_PARTITION),
        (_move(name, 0, [STRANGER]), 1, E.INVALID_REPLICA_ASSIGNMENT),
        (_move(name, 0, []), 1, E.INVALID_REPLICA_ASSIGNMENT),
        (_move(name, 0, some * 2), 1, E.INVALID_REPLICA_ASSIGNMENT),
        (_election(PREFERRED, NOWHERE, 0), 2, E.UNKNOWN_TOPIC_OR_PARTITION),
        (_election(UNCLEAN, name, 0), 2, E.ELECTION_NOT_NEEDED),
        (_election(7, name, 0), 2, E.INVALID_REQUEST),
        (UnregisterBrokerRequest(broker_id=STRANGER), 0, E.BROKER_ID_NOT_REGISTERED),
        (_feature("no.such.name", 1), 2, E.INVALID_UPDATE_VERSION),
        (_feature("metadata.version", 1_000), 2, E.INVALID_UPDATE_VERSION),
        (_feature("metadata.version", 7, SAFE_DOWNGRADE), 2, E.INVALID_UPDATE_VERSION),
        (_feature("transaction.version", 1), 2, E.INVALID_UPDATE_VERSION),
        (_feature("transaction.version", -1, SAFE_DOWNGRADE), 2, E.INVALID_UPDATE_VERSION),
        (_feature("transaction.version", 2, 7), 2, E.INVALID_UPDATE_VERSION),
        (_feature("transaction.version", 1, SAFE_DOWNGRADE), 2, E.NONE),
        (_feature("transaction.version", 2), 2, E.NONE),
    ]  # fmt: skip
    if OFFSETS in image.topics:
        cases.append((_creation(new_topic(OFFSETS.replace("_", "."))), 7, E.INVALID_TOPIC_EXCEPTION))
    if not topic.partitions[0].is_reassigning:
        cases.append((_move(name, 0, None), 1, E.NO_REASSIGNMENT_IN_PROGRESS))
        if len(image.brokers) > 1:
            others = [each for each in image.brokers if each not in topic.partitions[0].replicas]
            replicas = [*topic.partitions[0].replicas, *others]
            other_factor = replicas[: factor - 1] if factor > 1 else replicas[:2]
            cases.append((_move(name, 0, other_factor, may_change=False), 1, E.INVALID_REPLICATION_FACTOR))
    yield from refusals((Question(body, version), code) for body, version, code in cases)


def a_topic(client: Inspector) -> Chapter:
    """Create, describe, configure, grow, move and delete a topic; each step sees the one before."""
    name = client.scratch
    brokers = sorted(client.node(client.home.node).image.brokers)
    placed = [brokers[:2], brokers[:2][::-1]]
    configs = {"retention.ms": "86400000", "cleanup.policy": "delete"}
    yield from refusals([(Question(_creation(new_topic(name, placed=placed, configs=configs)), 7), E.NONE)])
    yield from refusals([(Question(_creation(new_topic(name)), 7), E.TOPIC_ALREADY_EXISTS)])
    yield from refusals([(Question(_creation(new_topic(f"{name}.other")), 7), E.NONE)])
    image = _image_with(client, name)
    require_same("the placement", [image.topics[name].partitions[index].replicas for index in (0, 1)], placed)
    require_same("the settings", dict(image.configs.get((TOPIC, name), {})), configs)
    changes = [
        ("cleanup.policy", APPEND, "compact"),
        ("retention.ms", DELETE, None),
        ("min.insync.replicas", SET, "1"),
    ]  # fmt: skip
    yield from refusals([(Question(_settings(TOPIC, name, *changes), 1), E.NONE)])
    yield from refusals([(Question(_settings(TOPIC, name, ("cleanup.policy", SUBTRACT, "delete")), 1), E.NONE)])
    expected = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
    found: dict[str, str] = {}
    for _ in range(100):
        answer = yield Question(_described(name), 4)
        found = {each.name: each.value for each in answer.results[0].configs if each.config_source == 1}
        if found == expected:
            break
    require_same(f"settings of {name}", found, expected)
    yield from refusals([(Question(_growth(name, 3), 3), E.NONE)])
    yield from refusals([(Question(_growth(name, 4, [brokers[:2]]), 3), E.NONE)])
    yield from refusals([(Question(_move(name, 0, brokers[:2][::-1]), 1), E.NONE)])
    left: list[Any] = []
    for _ in range(100):
        answer = yield Question(ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=None), 0)
        if not (left := [each for each in answer.topics if may_end(each)]):
            break
    require_same("how many reassignments are left", len(left), 0)
    answer = yield Question(_election(PREFERRED, name, 0), 2)
    codes = {result.error_code for topic in answer.replica_election_results for result in topic.partition_result}
    require_same("an election of the preferred leader", codes <= {E.NONE, E.ELECTION_NOT_NEEDED}, True)
    partitions: dict[int, PartitionImage] = {}
    for _ in range(100):
        number = client.active_controller()
        partitions = _topic(client.node(number).image, name)
        if len(partitions) == 4 and partitions[0].leader == partitions[0].replicas[0]:
            break
        yield Question(_described(name), 4)
    require_same("the preferred leader", partitions[0].leader, brokers[:2][::-1][0])
    require_same("the last partition", partitions[3].replicas, brokers[:2])
    yield from refusals([(Question(delete_topics_request([name, f"{name}.other"], 5), 5), E.NONE)])
    yield from refusals([(Question(delete_topics_request([name], 5), 5), E.UNKNOWN_TOPIC_OR_PARTITION)])


def _described(name: str) -> DescribeConfigsRequest:
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=name, configuration_keys=None
    )
    return DescribeConfigsRequest(resources=[resource])


def _topic(image: MetadataImage, name: str) -> dict[int, PartitionImage]:
    return dict(image.topics[name].partitions) if name in image.topics else {}


def _image_with(client: Inspector, name: str) -> MetadataImage:
    """Return the active controller's image, which includes all that it has confirmed."""
    number = client.active_controller()
    image = client.node(number).image
    if name not in image.topics:
        raise Differs(f"{name} was made, and the controller {number} does not know it")
    return image


# ---- what only brokers ask


def refused_to_brokers(client: Inspector) -> Chapter:
    """A broker of another incarnation, a leader of another epoch, and a stranger change nothing."""
    number = client.active_controller()
    node = client.node(number)
    image = node.image
    broker = next(iter(image.brokers.values()))
    one: dict[str, Any] = {"broker_id": broker.id, "broker_epoch": broker.epoch}
    before, stranger = changed(one, broker_epoch=broker.epoch - 1), changed(one, broker_id=STRANGER)
    directory = AssignReplicasToDirsRequest.DirectoryData(id=SOME_ID)
    cases: list[tuple[Any, int, E]] = [
        *((AllocateProducerIdsRequest(**who), 0, E.STALE_BROKER_EPOCH) for who in (before, stranger)),
        *((BrokerHeartbeatRequest(**who, current_metadata_offset=1), 1, E.STALE_BROKER_EPOCH) for who in (before, stranger)),
        *((AlterPartitionRequest(**who), 3, E.STALE_BROKER_EPOCH) for who in (before, stranger)),
        *((AssignReplicasToDirsRequest(**who, directories=[directory]), 0, E.STALE_BROKER_EPOCH) for who in (before, stranger)),
        *_registrations(node, image),
        *_directories(image),
    ]  # fmt: skip
    for topic in client.cluster.schedule.topics:
        for index, partition in image.topics[topic.name].partitions.items():
            cases += _proposals(image, image.topics[topic.name].id, index, partition)
    yield from refusals((Question(body, version, number, CONTROLLER), code) for body, version, code in cases)


def _registrations(node: Node, image: MetadataImage) -> list[tuple[Any, int, E]]:
    broker = next(iter(image.brokers.values()))
    usual: dict[str, Any] = {
        "broker_id": STRANGER,
        "cluster_id": node.context.cluster_id,
        "incarnation_id": SOME_ID,
        "features": [
            BrokerRegistrationRequest.Feature(name=name, min_supported_version=0, max_supported_version=1_000)
            for name in image.features
        ],
        "log_dirs": [SOME_ID],
        "listeners": [],
    }
    old = [BrokerRegistrationRequest.Feature(name="metadata.version", min_supported_version=1, max_supported_version=1)]
    changes: list[tuple[dict[str, Any], E]] = [
        ({"cluster_id": "another"}, E.INCONSISTENT_CLUSTER_ID),
        ({"broker_id": broker.id}, E.DUPLICATE_BROKER_REGISTRATION),
        ({"is_migrating_zk_broker": True}, E.BROKER_ID_NOT_REGISTERED),
        ({"log_dirs": []}, E.INVALID_REGISTRATION),
        ({"log_dirs": [SOME_ID, SOME_ID]}, E.INVALID_REGISTRATION),
        ({"log_dirs": [NO_UUID]}, E.INVALID_REGISTRATION),
        ({"log_dirs": [*broker.directories][:1]}, E.INVALID_REGISTRATION),
        ({"features": []}, E.INVALID_REGISTRATION),
        ({"features": old}, E.UNSUPPORTED_VERSION),
    ]
    return [(BrokerRegistrationRequest(**usual | change), 3, code) for change, code in changes]


def _directories(image: MetadataImage) -> list[tuple[Any, int, E]]:
    """What a broker that is registered says of replicas that are not its own."""
    request, broker = AssignReplicasToDirsRequest, next(iter(image.brokers.values()))

    def said(topic: UUID, index: int) -> AssignReplicasToDirsRequest:
        place = request.PartitionData(partition_index=index)
        topics = [request.TopicData(topic_id=topic, partitions=[place])]
        directory = request.DirectoryData(id=broker.directories[0], topics=topics)
        return request(broker_id=broker.id, broker_epoch=broker.epoch, directories=[directory])

    cases: list[tuple[Any, int, E]] = [(said(SOME_ID, 0), 0, E.UNKNOWN_TOPIC_ID)]
    for topic in image.topics.values():
        cases.append((said(topic.id, 77), 0, E.UNKNOWN_TOPIC_OR_PARTITION))
        cases += [
            (said(topic.id, index), 0, E.NOT_LEADER_OR_FOLLOWER)
            for index, partition in topic.partitions.items()
            if broker.id not in partition.replicas
        ]
    return cases


def _proposals(image: MetadataImage, topic: UUID, index: int, partition: PartitionImage) -> list[tuple[Any, int, E]]:
    """ISRs that a controller does not take, from the partition's leader and from another broker."""
    request = AlterPartitionRequest
    leader = image.brokers.get(partition.leader)
    if leader is None:
        return []
    isr = [request.BrokerState(broker_id=each, broker_epoch=-1) for each in partition.isr]
    fine: dict[str, Any] = {
        "partition_index": index, "leader_epoch": partition.leader_epoch, "partition_epoch": partition.partition_epoch,
        "new_isr_with_epochs": isr, "leader_recovery_state": 0,
    }  # fmt: skip

    def proposal(who: Any = leader, id: UUID = topic, **change: Any) -> AlterPartitionRequest:
        data = request.PartitionData(**fine | change)
        topics = [request.TopicData(topic_id=id, partitions=[data])]
        return request(broker_id=who.id, broker_epoch=who.epoch, topics=topics)

    wrong = [*isr[:-1], request.BrokerState(broker_id=isr[-1].broker_id, broker_epoch=0)]
    cases: list[tuple[Any, int, E]] = [
        (proposal(id=SOME_ID), 3, E.UNKNOWN_TOPIC_ID),
        (proposal(partition_index=77), 3, E.UNKNOWN_TOPIC_OR_PARTITION),
        (proposal(leader_epoch=partition.leader_epoch + 1), 3, E.NOT_CONTROLLER),
        (proposal(partition_epoch=partition.partition_epoch + 1), 3, E.NOT_CONTROLLER),
        (proposal(leader_epoch=partition.leader_epoch - 1), 3, E.FENCED_LEADER_EPOCH),
        (proposal(partition_epoch=partition.partition_epoch - 1), 3, E.INVALID_UPDATE_VERSION),
        (proposal(new_isr_with_epochs=[]), 3, E.INVALID_REQUEST),
        (proposal(new_isr_with_epochs=[isr[0], isr[0]]), 3, E.INVALID_REQUEST),
        (proposal(new_isr_with_epochs=[*isr, request.BrokerState(broker_id=STRANGER)]), 3, E.INVALID_REQUEST),
        (proposal(leader_recovery_state=7), 3, E.INVALID_REQUEST),
        (proposal(leader_recovery_state=1), 3, E.INVALID_REQUEST),
        (proposal(new_isr_with_epochs=wrong), 3, E.INELIGIBLE_REPLICA),
        (proposal(), 3, E.NONE),
    ]
    others = [each for each in image.brokers.values() if each.id != partition.leader]
    cases += [(proposal(who=each), 3, E.INVALID_REQUEST) for each in others[:1]]
    without = [each for each in isr if each.broker_id != partition.leader]
    cases += [(proposal(new_isr_with_epochs=without), 3, E.INVALID_REQUEST)] if without else []
    return cases


# ---- what only voters ask


def _voters(client: Inspector) -> list[int]:
    return sorted(client.cluster.schedule.voters or client.cluster.schedule.node_ids)


def refused_to_voters(client: Inspector) -> Chapter:
    """Votes, new leaders and ends of another epoch, cluster or voter are refused; the leader grants no vote."""
    number = client.active_controller()
    node = client.node(number)
    cluster, epoch = node.context.cluster_id, client.cluster.machine(number).controller_epoch
    other = next((each for each in _voters(client) if each != number), None)
    if other is None:
        return
    image = node.image

    def vote(cluster_id: str = cluster, voter: int = number, **change: Any) -> VoteRequest:
        usual: dict[str, Any] = {
            "partition_index": 0, "replica_epoch": epoch, "replica_id": other, "last_offset_epoch": epoch - 1,
            "last_offset": image.end_offset, "replica_directory_id": NO_UUID, "voter_directory_id": NO_UUID,
            "pre_vote": False,
        }  # fmt: skip
        data = VoteRequest.PartitionData(**usual | change)
        topics = [VoteRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[data])]
        return VoteRequest(cluster_id=cluster_id, voter_id=voter, topics=topics)

    def begin(cluster_id: str = cluster, voter: int = number, leader: int = other, at: int = epoch) -> Any:
        request = BeginQuorumEpochRequest
        data = request.PartitionData(partition_index=0, leader_id=leader, leader_epoch=at, voter_directory_id=NO_UUID)
        topics = [request.TopicData(topic_name=METADATA_TOPIC, partitions=[data])]
        return request(cluster_id=cluster_id, voter_id=voter, topics=topics)

    def end(cluster_id: str = cluster, leader: int = other, at: int = epoch) -> EndQuorumEpochRequest:
        data = EndQuorumEpochRequest.PartitionData(partition_index=0, leader_id=leader, leader_epoch=at)
        topics = [EndQuorumEpochRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[data])]
        return EndQuorumEpochRequest(cluster_id=cluster_id, topics=topics)

    def piece(cluster_id: str = cluster, at: int = epoch, name: str = METADATA_TOPIC) -> FetchSnapshotRequest:
        request = FetchSnapshotRequest
        data = request.PartitionSnapshot(
            partition=0,
            current_leader_epoch=at,
            snapshot_id=request.SnapshotId(end_offset=1 << 40, epoch=1),
            position=0,
        )
        topics = [request.TopicSnapshot(name=name, partitions=[data])]
        return request(cluster_id=cluster_id, replica_id=other, max_bytes=100, topics=topics)

    old = epoch - 1
    cases: list[tuple[Any, int, E]] = [
        (vote("another"), 2, E.INCONSISTENT_CLUSTER_ID),
        (vote(replica_epoch=old, last_offset_epoch=0), 2, E.FENCED_LEADER_EPOCH if old else E.INVALID_REQUEST),
        (vote(last_offset=-1), 2, E.INVALID_REQUEST),
        (vote(last_offset_epoch=-1), 2, E.INVALID_REQUEST),
        (vote(last_offset_epoch=epoch), 2, E.INVALID_REQUEST),
        (vote(last_offset_epoch=epoch + 1, pre_vote=True), 2, E.INVALID_REQUEST),
        (vote(replica_id=STRANGER), 2, E.INCONSISTENT_VOTER_SET),
        (vote(replica_id=number), 2, E.INVALID_REQUEST),
        (vote(voter=STRANGER), 2, E.INVALID_VOTER_KEY),
        (begin("another"), 1, E.INCONSISTENT_CLUSTER_ID),
        (begin(at=old), 1, E.FENCED_LEADER_EPOCH),
        (begin(leader=STRANGER), 1, E.INCONSISTENT_VOTER_SET),
        (begin(), 1, E.INVALID_REQUEST),
        (end("another"), 1, E.INCONSISTENT_CLUSTER_ID),
        (end(at=old), 1, E.FENCED_LEADER_EPOCH),
        (end(leader=STRANGER), 1, E.INCONSISTENT_VOTER_SET),
        (piece("another"), 1, E.INCONSISTENT_CLUSTER_ID),
        (piece(name=NOWHERE), 1, E.UNKNOWN_TOPIC_OR_PARTITION),
        (piece(at=old), 1, E.FENCED_LEADER_EPOCH),
        (piece(at=epoch + 1), 1, E.UNKNOWN_LEADER_EPOCH),
        (piece(), 1, E.SNAPSHOT_NOT_FOUND),
        (_added(cluster_id="another"), 1, E.INCONSISTENT_CLUSTER_ID),
        (_added(voter_id=-1), 1, E.INVALID_REQUEST),
        (_added(voter_directory_id=NO_UUID), 1, E.INVALID_REQUEST),
        (_added(listeners=[]), 1, E.INVALID_REQUEST),
        (_added(), 1, E.UNSUPPORTED_VERSION),
        (RemoveRaftVoterRequest(cluster_id="another", voter_id=other, voter_directory_id=SOME_ID), 0,
         E.INCONSISTENT_CLUSTER_ID),
        (RemoveRaftVoterRequest(cluster_id=cluster, voter_id=other, voter_directory_id=NO_UUID), 0, E.INVALID_REQUEST),
        (RemoveRaftVoterRequest(cluster_id=cluster, voter_id=other, voter_directory_id=SOME_ID), 0, E.UNSUPPORTED_VERSION),
    ]  # fmt: skip
    yield from refusals((Question(body, version, number, CONTROLLER), code) for body, version, code in cases)
    for pre_vote in (False, True):
        answer = yield Question(vote(pre_vote=pre_vote), 2, number, CONTROLLER)
        answered = answer.topics[0].partitions[0]
        said = (answered.error_code, answered.vote_granted, answered.leader_id, answered.leader_epoch)
        require_same("a vote that the leader is asked for", said, (E.NONE, False, number, epoch))


def _added(**change: Any) -> AddRaftVoterRequest:
    listener = AddRaftVoterRequest.Listener(name=CONTROLLER, host="node-99", port=9093)
    usual: dict[str, Any] = {
        "cluster_id": None, "timeout_ms": TIMEOUT_MS, "voter_id": STRANGER, "voter_directory_id": SOME_ID,
        "listeners": [listener],
    }  # fmt: skip
    return AddRaftVoterRequest(**usual | change)


def described_quorum(client: Inspector) -> Chapter:
    """The leader of the quorum describes itself and its voters; the other voters refuse."""
    number = client.active_controller()
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    body = DescribeQuorumRequest(
        topics=[DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[partition])]
    )
    voters = _voters(client)
    for node in voters:
        answer = yield Question(body, 2, node, CONTROLLER)
        if node != number:
            require(
                {*errors_in(answer)} in NOT_LEADING, f"{node}, which does not lead the quorum, describes it: {answer}"
            )
            continue
        described = answer.topics[0].partitions[0]
        epoch = client.cluster.machine(number).controller_epoch
        said = (described.error_code, described.leader_id, described.leader_epoch)
        require_same("the quorum's leader", said, (E.NONE, number, epoch))
        require_same("the voters", sorted(each.replica_id for each in described.current_voters), voters)
        ends = [each.log_end_offset for each in described.current_voters]
        require_same("the high watermark", described.high_watermark <= sorted(ends)[(len(ends) - 1) // 2], True)


FORWARDED = (refused_by_the_controller, a_topic)
"""The chapters of requests that any broker takes."""
OF_CONFIGURED_VOTERS = (refused_to_voters, described_quorum)
AT_CONTROLLERS = {"kraft": (refused_to_brokers, *OF_CONFIGURED_VOTERS), "changing-voters": (refused_to_brokers,)}
"""With several nodes, by what coordinates them: at the controllers' listener."""
