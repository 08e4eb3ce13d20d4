"""AlterPartition: the controller accepts or refuses the ISR that a leader proposes.

Source: KIP-497, KIP-704, KIP-841, KIP-903; org.apache.kafka.controller.ReplicationControlManager.
"""

from __future__ import annotations

from reference.controller.brokers import check_broker_epoch
from reference.controller.configs import Configuration
from reference.controller.decision import Decision
from reference.controller.elections import terms_of
from reference.controller.image import (
    NO_LEADER_CHANGE,
    RECOVERED,
    RECOVERING,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from reference.controller.partition_change import Target, change_partition
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from reference.protocol.messages.partition_change_record import PartitionChangeRecord
from reference.protocol.primitives import NodeId

ANY_BROKER_EPOCH = -1
"""The broker epoch of a member that has not fetched in this leader epoch; it is not checked."""

Proposal = AlterPartitionRequest.PartitionData
Member = AlterPartitionRequest.BrokerState
Answer = AlterPartitionResponse.PartitionData


def alter_partition(
    image: MetadataImage, configuration: Configuration, request: AlterPartitionRequest
) -> Decision[AlterPartitionResponse]:
    """Decide on the ISRs that a leader proposes: a record for each accepted change, an error for each refused ISR.

    Errors: KafkaError STALE_BROKER_EPOCH where the leader is not registered in this incarnation. Per partition:
    UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION, and those of `_judge`; NEW_LEADER_ELECTED where the ISR completes a
    reassignment that moves the leadership: the record is written although the response has an error.
    """
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    decision: Decision[AlterPartitionResponse] = Decision([], AlterPartitionResponse())
    for asked in request.topics:
        topic = image.topics_by_id.get(asked.topic_id)
        answers = [
            _alter(image, configuration, request.broker_id, topic, proposal, decision) for proposal in asked.partitions
        ]
        decision.response.topics.append(AlterPartitionResponse.TopicData(topic_id=asked.topic_id, partitions=answers))
    return decision


def _alter(
    image: MetadataImage,
    configuration: Configuration,
    leader: NodeId,
    topic: TopicImage | None,
    proposal: Proposal,
    decision: Decision[AlterPartitionResponse],
) -> Answer:
    index = proposal.partition_index
    if topic is None:
        return Answer(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        return Answer(partition_index=index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    try:
        _judge(image, leader, partition, proposal)
    except KafkaError as error:
        return Answer(partition_index=index, error_code=error.code)
    record = _change(image, configuration, topic, partition, proposal)
    if record is None:
        return accepted(index, partition)
    decision.records.append(record)
    if record.leader not in (leader, NO_LEADER_CHANGE):
        return Answer(partition_index=index, error_code=ErrorCode.NEW_LEADER_ELECTED)
    return accepted(index, partition.after(record))


def members(proposal: Proposal) -> list[Member]:
    """The proposed ISR. Before version 3 the request has no broker epochs: they are not checked."""
    return proposal.new_isr_with_epochs or [Member(broker_id=each) for each in proposal.new_isr]


def _judge(image: MetadataImage, leader: NodeId, partition: PartitionImage, proposal: Proposal) -> None:
    """Check a proposal; the first error is raised.

    Errors, in this order: KafkaError NOT_CONTROLLER for epochs above those of this controller's image (a newer controller
    wrote them); FENCED_LEADER_EPOCH; INVALID_REQUEST from a broker that does not lead; INVALID_UPDATE_VERSION for an older
    partition epoch; INVALID_REQUEST for an ISR that is empty, repeats a broker, has a broker that is no replica, or lacks the
    leader, and for a leader recovery state that is unknown or does not fit; INELIGIBLE_REPLICA for a member that is unregistered,
    fenced, in shutdown, or registered with another broker epoch.
    """
    _judge_epochs(leader, partition, proposal)
    isr = [each.broker_id for each in members(proposal)]
    if not isr or len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "The proposed ISR is empty, or has a broker twice or one that is no replica."
        )
    # A leader outside its ISR would advance the high watermark without its own log.
    if partition.leader not in isr:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The proposed ISR lacks the leader.")
    _judge_recovery(partition, proposal.leader_recovery_state, len(isr))
    for member in members(proposal):
        _judge_member(image, member)


def _judge_epochs(leader: NodeId, partition: PartitionImage, proposal: Proposal) -> None:
    # The epochs first: higher ones come from a newer controller, which the leader must then use.
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch < partition.leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    if leader != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {partition.leader} is the leader.")
    # An ISR proposed before another change must not undo it. The leader proposes again after it has replayed the change.
    if proposal.partition_epoch < partition.partition_epoch:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION)


def _judge_recovery(partition: PartitionImage, state: int, isr_size: int) -> None:
    if state not in (RECOVERED, RECOVERING):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown leader recovery state {state}.")
    if state == RECOVERING and isr_size > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "While the leader is recovering, the ISR must be the leader alone.")
    if state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The leader has recovered and cannot become RECOVERING again.")


def _judge_member(image: MetadataImage, member: Member) -> None:
    # A member that fetched, lost power and registered again may have lost records that it had fetched (KIP-903).
    broker = image.brokers.get(member.broker_id)
    if broker is None or not broker.is_active or member.broker_epoch not in (ANY_BROKER_EPOCH, broker.epoch):
        raise KafkaError(ErrorCode.INELIGIBLE_REPLICA)


def _change(
    image: MetadataImage,
    configuration: Configuration,
    topic: TopicImage,
    partition: PartitionImage,
    proposal: Proposal,
) -> PartitionChangeRecord | None:
    target = Target.unchanged(partition)
    target.isr = [each.broker_id for each in members(proposal)]
    target.leader_recovery_state = proposal.leader_recovery_state
    terms = terms_of(image, configuration, topic, partition)
    return change_partition(topic.id, proposal.partition_index, partition, target, terms)


def accepted(index: int, partition: PartitionImage) -> Answer:
    return Answer(
        partition_index=index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
