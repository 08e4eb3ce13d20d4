"""The partitions that a change of brokers affects, and elections that an administrator requests.

Source: KIP-460, KIP-631, KIP-966; org.apache.kafka.controller.ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from reference.controller.configs import Configuration
from reference.controller.decision import Decision
from reference.controller.directory_ids import UNASSIGNED, DirectoryId
from reference.controller.image import NO_LEADER, TOPIC_RESOURCE, MetadataImage, PartitionImage, TopicImage
from reference.controller.partition_change import Election, Target, Terms, change_partition
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.clear_elr_record import ClearElrRecord
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import NodeId, TopicName
from reference.protocol.schema import Message

PREFERRED_ELECTION, UNCLEAN_ELECTION = range(2)
"""Types of elections, by their numbers in the protocol (org.apache.kafka.common.ElectionType)."""

MAX_ELECTIONS_AT_ONCE = 1_000
"""The most elections in one decision that the controller starts itself; the next decision has the rest."""

ElectionResult = ElectLeadersResponse.ReplicaElectionResult
PartitionResult = ElectLeadersResponse.PartitionResult


# ---- the terms of a change


def min_isr(configuration: Configuration, topic: TopicImage) -> int:
    """The topic's min.insync.replicas, at most its number of replicas."""
    configured = configuration.topic(topic.name, "min.insync.replicas")
    assert isinstance(configured, int)
    return min(configured, len(topic.partitions[0].replicas))


def is_unclean_allowed(configuration: Configuration, topic: TopicName) -> bool:
    return configuration.topic(topic, "unclean.leader.election.enable") is True


class BrokerChange(NamedTuple):
    """The effect of a decision on a broker, while it changes partitions."""

    joining: NodeId = NO_LEADER
    """The broker that is unfenced."""
    leaving: NodeId = NO_LEADER
    """The broker that is fenced, shut down or unregistered, or whose directory is offline."""
    lost_its_tail: NodeId = NO_LEADER
    """The broker that registers after an unclean shutdown."""


NO_BROKER = BrokerChange()


class TopicTerms(NamedTuple):
    """The terms that come from the settings of a topic, equal for all its partitions."""

    min_isr: int
    election: Election

    @classmethod
    def of(cls, configuration: Configuration, topic: TopicImage) -> TopicTerms:
        usual = Election.UNCLEAN if is_unclean_allowed(configuration, topic.name) else Election.ONLINE
        return cls(min_isr(configuration, topic), usual)


def terms_of(
    image: MetadataImage,
    configuration: Configuration,
    topic: TopicImage,
    partition: PartitionImage,
    election: Election | None = None,
    broker: BrokerChange = NO_BROKER,
    settings: TopicTerms | None = None,
) -> Terms:
    """The terms of a change, with the same decision's effect on a broker.

    Without a given `election` it is unclean if the topic allows that.
    """

    def is_alive(replica: NodeId) -> bool:
        # A replica that lost its tail is not alive here even if it runs: it may lack committed records.
        if replica in (broker.leaving, broker.lost_its_tail):
            return False
        if replica != broker.joining and not image.is_active(replica):
            return False
        directory = partition.directory_of(replica)
        return directory is not None and image.brokers[replica].has_online(directory)

    min_isr, usual = settings or TopicTerms.of(configuration, topic)
    return Terms(
        min_isr=min_isr,
        has_elr=image.has_elr,
        is_alive=is_alive,
        directory_for_new_replica=lambda replica: directory_for_new_replica(image, replica),
        election=election or usual,
        lost_its_tail=broker.lost_its_tail,
        needs_whole_target=image.is_beside_zookeeper,
    )


def directory_for_new_replica(image: MetadataImage, broker: NodeId) -> DirectoryId:
    found = image.brokers.get(broker)
    return found.directory_for_new_replica() if found is not None else UNASSIGNED


# ---- brokers that come and go

Place = tuple[TopicImage, int, PartitionImage]


def places(image: MetadataImage, concerns: Callable[[PartitionImage], bool]) -> Iterator[Place]:
    """The partitions for which `concerns` is true, in the order of the topics' creation."""
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if concerns(partition):
                yield topic, index, partition


def leads_any(image: MetadataImage, broker: NodeId) -> bool:
    return next(places(image, lambda partition: partition.leader == broker), None) is not None


def move_leaders(
    image: MetadataImage,
    configuration: Configuration,
    concerned: Iterator[Place],
    broker: BrokerChange = NO_BROKER,
) -> list[Message]:
    """The records that remove a broker from ISRs and leaderships, or elect it for partitions without a leader."""
    records: list[Message] = []
    settings: dict[TopicName, TopicTerms] = {}
    for topic, index, partition in concerned:
        if topic.name not in settings:
            settings[topic.name] = TopicTerms.of(configuration, topic)
        terms = terms_of(image, configuration, topic, partition, broker=broker, settings=settings[topic.name])
        target = Target.unchanged(partition)
        target.isr = [each for each in partition.isr if each not in (broker.leaving, broker.lost_its_tail)]
        record = change_partition(topic.id, index, partition, target, terms)
        if record is not None:
            records.append(record)
    return records


def change_min_isr(image: MetadataImage, changes: Iterable[ConfigRecord]) -> list[Message]:
    """The records that follow changed settings: another min.insync.replicas makes the ELRs invalid (KIP-966)."""
    if not image.has_elr:
        return []
    return [
        ClearElrRecord(topic_name=change.resource_name if change.resource_type == TOPIC_RESOURCE else "")
        for change in changes
        if change.name == "min.insync.replicas"
    ]


# ---- elections on demand (ElectLeaders)


def elect_leaders(
    image: MetadataImage, configuration: Configuration, request: ElectLeadersRequest
) -> Decision[ElectLeadersResponse]:
    """Elect leaders, with a result for each partition; a request for all partitions omits those that need no election.

    Errors: KafkaError INVALID_REQUEST for an unknown type of election.
    """
    if request.election_type not in (PREFERRED_ELECTION, UNCLEAN_ELECTION) and request.topic_partitions != []:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    elect = elect_leader if request.election_type == PREFERRED_ELECTION else elect_unclean_leader
    decision: Decision[ElectLeadersResponse] = Decision([], ElectLeadersResponse())
    for name, indexes in _wanted(image, request).items():
        result = ElectionResult(topic=name)
        decision.response.replica_election_results.append(result)
        for index in indexes:
            answer = PartitionResult(partition_id=index, error_message=None)
            try:
                decision.records.append(elect(image, configuration, name, index))
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            if request.topic_partitions is not None or answer.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                result.partition_result.append(answer)
    return decision


def _wanted(image: MetadataImage, request: ElectLeadersRequest) -> dict[TopicName, list[int]]:
    if request.topic_partitions is None:
        return {topic.name: [*topic.partitions] for topic in image.topics.values()}
    wanted: dict[TopicName, list[int]] = {}
    for each in request.topic_partitions:
        wanted.setdefault(each.topic, []).extend(index for index in each.partitions if index not in wanted[each.topic])
    return wanted


def _find(image: MetadataImage, name: TopicName, index: int) -> tuple[TopicImage, PartitionImage]:
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    return topic, partition


def elect_leader(
    image: MetadataImage, configuration: Configuration, name: TopicName, index: int
) -> PartitionChangeRecord:
    """Elect a partition's preferred replica.

    Errors: KafkaError UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED if it leads already, PREFERRED_LEADER_NOT_AVAILABLE if it
    may not lead.
    """
    topic, partition = _find(image, name, index)
    if partition.has_preferred_leader:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    record = _elected(image, configuration, topic, index, Election.PREFERRED)
    if record is None:
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    return record


def elect_unclean_leader(
    image: MetadataImage, configuration: Configuration, name: TopicName, index: int
) -> PartitionChangeRecord:
    """Elect any live replica of a partition without a leader, preferably one of the ISR or ELR.

    Errors: KafkaError UNKNOWN_TOPIC_OR_PARTITION, ELECTION_NOT_NEEDED if there is a leader, ELIGIBLE_LEADERS_NOT_AVAILABLE if
    no replica is alive.
    """
    topic, partition = _find(image, name, index)
    if partition.leader != NO_LEADER:
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    record = _elected(image, configuration, topic, index, Election.UNCLEAN)
    if record is None:
        raise KafkaError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available."
        )
    return record


def _elected(
    image: MetadataImage, configuration: Configuration, topic: TopicImage, index: int, election: Election
) -> PartitionChangeRecord | None:
    partition = topic.partitions[index]
    terms = terms_of(image, configuration, topic, partition, election)
    return change_partition(topic.id, index, partition, Target.unchanged(partition), terms)


# ---- elections that the controller holds by itself


def balance_leaders(image: MetadataImage, configuration: Configuration) -> Decision[bool]:
    """Elect preferred replicas for partitions with another leader (auto.leader.rebalance.enable); True if there may be more."""
    return _elect_many(image, configuration, lambda each: not each.has_preferred_leader, Election.PREFERRED)


def elect_unclean_leaders(image: MetadataImage, configuration: Configuration) -> Decision[bool]:
    """Elect leaders for partitions without one whose topics allow unclean elections; True if there may be more."""
    return _elect_many(image, configuration, lambda each: each.leader == NO_LEADER, Election.UNCLEAN)


def _elect_many(
    image: MetadataImage,
    configuration: Configuration,
    concerns: Callable[[PartitionImage], bool],
    election: Election,
) -> Decision[bool]:
    records: list[Message] = []
    for topic, index, _ in places(image, concerns):
        if len(records) == MAX_ELECTIONS_AT_ONCE:
            return Decision(records, response=True)
        if election is Election.UNCLEAN and not is_unclean_allowed(configuration, topic.name):
            continue
        record = _elected(image, configuration, topic, index, election)
        if record is not None:
            records.append(record)
    return Decision(records, response=False)
