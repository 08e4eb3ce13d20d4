"""Registers, fences, unfences, shuts down and unregisters brokers.

A registered broker is fenced until its heartbeats report that it has replayed its registration. Only a broker that is neither
fenced nor in controlled shutdown may lead and be in an ISR. So each step here includes the elections that it requires.
Source: KIP-631, KIP-841, KIP-966; org.apache.kafka.controller.ClusterControlManager and ReplicationControlManager.
"""

from __future__ import annotations

from collections.abc import Mapping

from reference.controller.broker_rules import FIRST_WITH_CORDONS
from reference.controller.configs import Configuration
from reference.controller.decision import Decision
from reference.controller.directory_ids import DirectoryId, is_reserved
from reference.controller.elections import BrokerChange, move_leaders, places
from reference.controller.image import NO_LEADER, BrokerImage, MetadataImage
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.unregister_broker_record import UnregisterBrokerRecord
from reference.protocol.primitives import BrokerEpoch, NodeId, Offset
from reference.protocol.schema import Message

NO_PREVIOUS_EPOCH = -2
"""The previous epoch of a broker that was never registered; no broker reports it as its own."""

METADATA_FEATURE = "metadata.version"

FENCE, UNFENCE = 1, -1
IN_CONTROLLED_SHUTDOWN = 1
"""The values of the changed field in BrokerRegistrationFencingChange and BrokerRegistrationInControlledShutdownChange."""


def check_broker_epoch(image: MetadataImage, broker: NodeId, epoch: BrokerEpoch) -> BrokerImage:
    """The registration of a broker in this incarnation. Errors: KafkaError STALE_BROKER_EPOCH if there is none, or another
    incarnation."""
    found = image.brokers.get(broker)
    if found is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker}")
    if found.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {found.epoch}, but got broker epoch {epoch}"
        )
    return found


# ---- registration


def register_broker(
    image: MetadataImage,
    configuration: Configuration,
    request: BrokerRegistrationRequest,
    *,
    cluster_id: str,
    offset: Offset,
    has_session: bool,
    knows_previous_epoch: bool = True,
) -> Decision[BrokerRegistrationResponse]:
    """Register a broker, or update the registration of the same incarnation.

    `offset` is that of the first record, and so the epoch of a new incarnation. `has_session` means that the registered
    incarnation sent a heartbeat within its session timeout (`Heartbeats`). `knows_previous_epoch` is false before version 3 of
    the request. A new incarnation begins fenced and in no ISR. If it does not name the epoch of the previous incarnation, that
    one ended uncleanly: it may have lost the end of its log, and leaves the ELR too (KIP-966).
    Errors: KafkaError INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION, BROKER_ID_NOT_REGISTERED for a migrating
    ZooKeeper broker, INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    existing = image.brokers.get(request.broker_id)
    is_same_incarnation = existing is not None and existing.registration.incarnation_id == request.incarnation_id
    _check_identity(request, cluster_id, is_taken=has_session and not is_same_incarnation)
    _check_directories(image, request)
    _check_features(image.features, request)
    record = _registration(request, offset)
    records: list[Message] = []
    if existing is not None and is_same_incarnation:
        record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
    else:
        previous = existing.epoch if existing is not None else NO_PREVIOUS_EPOCH
        was_clean = knows_previous_epoch and request.previous_broker_epoch == previous
        records = _end_incarnation(image, configuration, request.broker_id, was_clean)
    return Decision([*records, record], BrokerRegistrationResponse(broker_epoch=record.broker_epoch))


def _end_incarnation(
    image: MetadataImage, configuration: Configuration, broker: NodeId, was_clean: bool
) -> list[Message]:
    if was_clean or not image.has_elr:
        return _leave_isrs(image, configuration, broker)
    concerned = places(image, lambda each: broker in each.isr or broker in each.eligible_leader_replicas)
    return move_leaders(image, configuration, concerned, BrokerChange(lost_its_tail=broker))


def _leave_isrs(image: MetadataImage, configuration: Configuration, broker: NodeId) -> list[Message]:
    return move_leaders(
        image, configuration, places(image, lambda each: broker in each.isr), BrokerChange(leaving=broker)
    )


def _check_identity(request: BrokerRegistrationRequest, cluster_id: str, *, is_taken: bool) -> None:
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if is_taken:
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")


def _check_directories(image: MetadataImage, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(is_reserved(each) for each in directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len({*directories}) != len(directories):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for other in image.brokers.values():
        for directory in other.directories:
            if other.id != request.broker_id and directory in directories:
                raise KafkaError(
                    ErrorCode.INVALID_REGISTRATION,
                    f"Broker {other.id} is already registered with directory {directory}",
                )


def _check_features(finalized: Mapping[str, int], request: BrokerRegistrationRequest) -> None:
    """Check that the broker supports every finalized level; 0 means that a feature is disabled."""
    supported = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    if METADATA_FEATURE not in supported:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
    for name in [*supported, *finalized]:
        level = finalized.get(name, 0)
        lowest, highest = supported.get(name, (0, 0))
        if not lowest <= level <= highest:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The broker "
                f"wants a version between {lowest} and {highest}, inclusive.",
            )


def _registration(request: BrokerRegistrationRequest, epoch: Offset) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in request.listeners
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
        rack=request.rack,
        fenced=True,
        log_dirs=request.log_dirs,
    )


def unregister_broker(image: MetadataImage, configuration: Configuration, broker: NodeId) -> list[Message]:
    """Unregister a broker and remove it from the ISRs. It may stay in ELRs: it may come back with all its records.

    Errors: KafkaError BROKER_ID_NOT_REGISTERED.
    """
    found = image.brokers.get(broker)
    if found is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker} is not currently registered")
    concerned = places(image, lambda each: broker in each.isr or broker in each.eligible_leader_replicas)
    return [
        *move_leaders(image, configuration, concerned, BrokerChange(leaving=broker)),
        UnregisterBrokerRecord(broker_id=broker, broker_epoch=found.epoch),
    ]


# ---- fencing


def fence_broker(image: MetadataImage, configuration: Configuration, broker: NodeId) -> list[Message]:
    """Fence a broker whose session has expired or that requests it: it leaves the ISRs, and other replicas lead.

    For a broker that is fenced already Kafka writes the record again; here there is none.
    """
    found = image.brokers[broker]
    records = _leave_isrs(image, configuration, broker)
    if not found.fenced:
        change = _change_of(found)
        change.fenced = FENCE
        records.append(change)
    return records


def unfence_broker(image: MetadataImage, configuration: Configuration, broker: NodeId) -> list[Message]:
    """Unfence a broker that has replayed its registration. It becomes the leader of partitions without one if it is eligible."""
    change = _change_of(image.brokers[broker])
    change.fenced = UNFENCE
    leaderless = places(image, lambda each: each.leader == NO_LEADER)
    return [change, *move_leaders(image, configuration, leaderless, BrokerChange(joining=broker))]


def controlled_shutdown(image: MetadataImage, configuration: Configuration, broker: NodeId) -> list[Message]:
    """Begin a broker's controlled shutdown: other replicas lead, and it leaves the ISRs while it still serves."""
    found = image.brokers[broker]
    records: list[Message] = []
    if not found.in_controlled_shutdown:
        change = _change_of(found)
        change.in_controlled_shutdown = IN_CONTROLLED_SHUTDOWN
        records.append(change)
    return [*records, *_leave_isrs(image, configuration, broker)]


def _change_of(broker: BrokerImage) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch)


# ---- directories


def lose_directories(
    image: MetadataImage, configuration: Configuration, broker: NodeId, offline: list[DirectoryId]
) -> list[Message]:
    """Remove the replicas in a broker's offline directories from the ISRs."""
    found = image.brokers[broker]
    lost = [each for each in found.directories if each in offline]
    if not lost:
        return []
    concerned = places(image, lambda each: each.directory_of(broker) in lost)
    change = _change_of(found)
    change.log_dirs = [each for each in found.directories if each not in lost]
    return [*move_leaders(image, configuration, concerned, BrokerChange(leaving=broker)), change]


def cordon_directories(image: MetadataImage, broker: NodeId, cordoned: list[DirectoryId] | None) -> list[Message]:
    """Record the directories that take no new replicas; `cordoned` is None if the request does not have the field (KIP-1066).

    The first report of an empty list is recorded too, as in Apache Kafka 4.3.1.
    """
    found = image.brokers[broker]
    known = found.cordoned_directories
    if image.metadata_level < FIRST_WITH_CORDONS or cordoned is None or (known is not None and {*cordoned} == {*known}):
        return []
    change = _change_of(found)
    change.cordoned_log_dirs = cordoned
    return [change]
