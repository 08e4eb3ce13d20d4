"""Broker sessions: each broker's last heartbeat, its replayed offset, and the responses to heartbeats.

None of this is metadata: a new controller begins without it, and starts a session for every unfenced broker.
Source: KIP-631; org.apache.kafka.controller.BrokerHeartbeatManager, BrokerHeartbeatTracker and ReplicationControlManager.
"""

from __future__ import annotations

from enum import Enum

from reference.controller.brokers import (
    check_broker_epoch,
    controlled_shutdown,
    cordon_directories,
    fence_broker,
    lose_directories,
    unfence_broker,
)
from reference.controller.configs import Configuration
from reference.controller.decision import Decision
from reference.controller.elections import leads_any
from reference.controller.image import BrokerImage, MetadataImage
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from reference.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from reference.protocol.primitives import NO_OFFSET, BrokerEpoch, NodeId, Offset, TimestampMs

NOTHING_REPLAYED = NO_OFFSET
"""The replayed offset of a broker without a heartbeat since its registration last changed; as in Kafka, the next one sets it."""

Incarnation = tuple[NodeId, int]
"""A broker and its epoch; a restarted broker has another epoch."""


class BrokerState(Enum):
    FENCED = "may neither lead nor be in sync"
    UNFENCED = "serves"
    CONTROLLED_SHUTDOWN = "serves until others lead all that it led and know it"
    SHUTDOWN_NOW = "fenced, and asked to stop"

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)


def next_state(
    state: BrokerState,
    *,
    wants_fence: bool,
    wants_shutdown: bool,
    is_caught_up: bool,
    leads: bool,
    is_known_to_have_left: bool,
) -> BrokerState:
    """The state of a broker after a heartbeat (BrokerHeartbeatManager.calculateNextBrokerState).

    post: __return__ is not BrokerState.UNFENCED or not wants_shutdown
    post: state is not BrokerState.FENCED or __return__ is not BrokerState.UNFENCED or is_caught_up
    post: state is not BrokerState.CONTROLLED_SHUTDOWN or __return__ is not BrokerState.SHUTDOWN_NOW or not leads
    """
    if state is BrokerState.SHUTDOWN_NOW:
        return state
    if state is BrokerState.CONTROLLED_SHUTDOWN:
        return state if leads or not is_known_to_have_left else BrokerState.SHUTDOWN_NOW
    if wants_shutdown:
        may_stop_now = state is BrokerState.FENCED or wants_fence or not leads
        return BrokerState.SHUTDOWN_NOW if may_stop_now else BrokerState.CONTROLLED_SHUTDOWN
    if wants_fence or (state is BrokerState.FENCED and not is_caught_up):
        return BrokerState.FENCED
    return BrokerState.UNFENCED


class Heartbeats:
    """The broker sessions of the active controller. Times are monotonic milliseconds."""

    def __init__(self, session_timeout_ms: int, image: MetadataImage, now: TimestampMs) -> None:
        """Begin on a new active controller: each broker that is unfenced in the image gets a full session from now on."""
        self.session_timeout_ms = session_timeout_ms
        self._received: dict[Incarnation, TimestampMs] = {
            (each.id, each.epoch): now for each in image.brokers.values() if not each.fenced
        }
        self._extended: dict[Incarnation, int] = {}
        """The time by which each session was extended since its last heartbeat."""
        self._replayed: dict[Incarnation, Offset] = {}
        self._shutdown_offsets: dict[Incarnation, Offset] = {}

    def receive(self, image: MetadataImage, broker: NodeId, epoch: BrokerEpoch, now: TimestampMs) -> None:
        """Renew a session on arrival of a heartbeat, before it waits for anything. Unregistered brokers are ignored."""
        found = image.brokers.get(broker)
        if found is not None and found.epoch == epoch:
            self._received[broker, epoch] = now
            self._extended.pop((broker, epoch), None)

    def extend(self, ms: int, now: TimestampMs) -> None:
        """Extend all sessions by a time up to `now` in which no heartbeat could be received; none then ends later than one that
        begins now.

        The first extension after a heartbeat is unlimited; later ones raise the total to at most one session timeout. So a
        busy controller still fences silent brokers, but later.
        """
        for incarnation, received_at in self._received.items():
            extended = self._extended.get(incarnation, 0)
            more = min(ms, max(0, self.session_timeout_ms - extended)) if extended else ms
            self._received[incarnation] = min(now, TimestampMs(received_at + more))
            self._extended[incarnation] = extended + more

    def has_session(self, image: MetadataImage, broker: NodeId, now: TimestampMs) -> bool:
        """Whether the registered incarnation sent a heartbeat within its session timeout."""
        found = image.brokers.get(broker)
        return found is not None and not self._is_overdue((broker, found.epoch), now)

    def next_deadline(self) -> TimestampMs | None:
        """The time to check for expired sessions; None without sessions."""
        return min(self._received.values()) + self.session_timeout_ms + 1 if self._received else None

    def _is_overdue(self, incarnation: Incarnation, now: TimestampMs) -> bool:
        received_at = self._received.get(incarnation)
        return received_at is None or received_at + self.session_timeout_ms < now

    def overdue(self, image: MetadataImage, now: TimestampMs) -> NodeId | None:
        """Remove and return one broker whose session has expired; None if there is none left.

        The caller fences one broker at a time, so that each decision is made on an image in which earlier ones are fenced. A
        broker that is fenced already mostly needs no record.
        """
        for incarnation in [each for each in self._received if self._is_overdue(each, now)]:
            self._forget(incarnation)
            found = image.brokers.get(incarnation[0])
            if found is not None and found.epoch == incarnation[1]:
                return found.id
        return None

    def _forget(self, incarnation: Incarnation) -> None:
        for each in (self._received, self._extended, self._replayed, self._shutdown_offsets):
            each.pop(incarnation, None)

    # ---- a heartbeat

    def broker_heartbeat(
        self,
        image: MetadataImage,
        configuration: Configuration,
        request: BrokerHeartbeatRequest,
        offset: Offset,
    ) -> Decision[BrokerHeartbeatResponse]:
        """Answer a received heartbeat, and change the broker's state by it.

        `offset` is that of the first record: a broker that requested a shutdown waits until the other brokers have replayed the
        last record.
        Errors: KafkaError STALE_BROKER_EPOCH.
        """
        broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
        state = self.state_of(broker)
        is_caught_up = request.current_metadata_offset >= broker.registered_at
        may_stop = request.want_shut_down or state is BrokerState.CONTROLLED_SHUTDOWN
        after = next_state(
            state,
            wants_fence=request.want_fence,
            wants_shutdown=request.want_shut_down,
            is_caught_up=is_caught_up,
            leads=may_stop and leads_any(image, broker.id),
            is_known_to_have_left=self._is_known_to_have_left(image, broker),
        )
        records = _STEPS[after](image, configuration, broker.id) if after is not state else []
        records += lose_directories(image, configuration, broker.id, request.offline_log_dirs)
        records += cordon_directories(image, broker.id, request.cordoned_log_dirs)
        is_changed = any(isinstance(each, BrokerRegistrationChangeRecord) for each in records)
        replayed = NOTHING_REPLAYED if is_changed else request.current_metadata_offset
        self._note(broker, after, replayed, offset + len(records) - 1)
        response = BrokerHeartbeatResponse(
            is_caught_up=is_caught_up,
            is_fenced=after.is_fenced,
            should_shut_down=after is BrokerState.SHUTDOWN_NOW,
        )
        return Decision(records, response)

    def state_of(self, broker: BrokerImage) -> BrokerState:
        if broker.fenced:
            return BrokerState.FENCED
        is_stopping = (broker.id, broker.epoch) in self._shutdown_offsets
        return BrokerState.CONTROLLED_SHUTDOWN if is_stopping else BrokerState.UNFENCED

    def _is_known_to_have_left(self, image: MetadataImage, broker: BrokerImage) -> bool:
        """Whether all unfenced brokers have replayed the records of the broker's shutdown; True if there is none."""
        left_at = self._shutdown_offsets.get((broker.id, broker.epoch), NOTHING_REPLAYED)
        return all(
            self._replayed.get((each.id, each.epoch), NOTHING_REPLAYED) >= left_at
            for each in image.brokers.values()
            if self.state_of(each) is BrokerState.UNFENCED
        )

    def _note(self, broker: BrokerImage, after: BrokerState, replayed: Offset, last_offset: Offset) -> None:
        incarnation = (broker.id, broker.epoch)
        self._replayed[incarnation] = replayed
        if after is BrokerState.CONTROLLED_SHUTDOWN:
            self._shutdown_offsets.setdefault(incarnation, last_offset)
        else:
            self._shutdown_offsets.pop(incarnation, None)


_STEPS = {
    BrokerState.FENCED: fence_broker,
    BrokerState.UNFENCED: unfence_broker,
    BrokerState.CONTROLLED_SHUTDOWN: controlled_shutdown,
    BrokerState.SHUTDOWN_NOW: fence_broker,
}
"""The function that writes the records of each new state."""
