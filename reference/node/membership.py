"""This broker's membership in the cluster: registration, heartbeats, and controlled shutdown.

A broker gets its epoch by registration, replays the metadata at least up to that record, makes its replicas follow them, and
is fenced until a heartbeat reports that. Then it may be elected and join ISRs. If the controller no longer knows its epoch, it
registers again.
Source: KIP-500, KIP-631; org.apache.kafka.server.BrokerLifecycleManager.

A shutdown waits for the response of a pending registration, because the clean-shutdown file needs the epoch. Without it the
next incarnation would count as one that may have lost its tail (KIP-966).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import NamedTuple
from uuid import UUID

from reference.protocol.errors import ErrorCode, name_of
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from reference.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from reference.protocol.primitives import BrokerEpoch, Offset, TimestampMs
from reference.protocol.schema import Message

RETRY_MS = 100
"""The delay before a registration or heartbeat without a response is sent again."""

FIRST_HEARTBEAT_MS = 10
"""The heartbeat interval while the broker is fenced or in controlled shutdown, instead of broker.heartbeat.interval.ms."""


NO_CONTROLLER_MS = 5_000
"""The time without a controller after which a broker in controlled shutdown stops anyway; an election is faster."""


class State(Enum):
    """The state of a broker's incarnation in the cluster."""

    STARTING = auto()
    RECOVERING = auto()
    RUNNING = auto()
    LEAVING = auto()
    GONE = auto()


TRANSITIONS: dict[tuple[State, State], str] = {
    (State.STARTING, State.RECOVERING): "the controller has registered it",
    (State.STARTING, State.GONE): "it is to stop: registered, refused, never asked, or without an answer in time",
    (State.RECOVERING, State.RUNNING): "its replicas follow the metadata up to its registration",
    (State.RECOVERING, State.STARTING): "the controller knows another incarnation, or none",
    (State.RECOVERING, State.LEAVING): "it is to stop: leaderships are moved away first",
    (State.RUNNING, State.STARTING): "the controller knows another incarnation, or none",
    (State.RUNNING, State.LEAVING): "it is to stop: leaderships are moved away first",
    (State.LEAVING, State.GONE): "the controller allows it, or the time for it is over",
}
"""The transitions between states, with their causes; any other is a bug of this module."""


Answered = Callable[[Message | None, TimestampMs], None]
Ask = Callable[[Message, Answered, TimestampMs], None]
"""Sends a request to the active controller; the answer is None if there is no controller."""


class MetadataProgress(NamedTuple):
    """This node's progress in the metadata."""

    applied: Callable[[], Offset]
    """Returns the offset up to which the metadata are replayed."""
    are_replicas_behind: Callable[[], bool]
    """Returns whether some replica does not follow the replayed metadata yet."""


class Membership:
    """The broker's side of registration and heartbeats."""

    def __init__(
        self,
        registration: BrokerRegistrationRequest,
        *,
        heartbeat_interval_ms: int,
        directory_failure_timeout_ms: int,
        progress: MetadataProgress,
        ask: Ask,
        log: Callable[[str, str], None],
        now: TimestampMs,
    ) -> None:
        """`registration.previous_broker_epoch` is that of the former incarnation after a clean shutdown, else -1 (KIP-966)."""
        self.state = State.STARTING
        self.broker_epoch = BrokerEpoch(-1)
        self.is_fenced = True
        self.has_caught_up = False
        """Whether the metadata are replayed up to the registration. Before, the broker must serve no client, and the metadata
        about its partitions belong to an earlier incarnation, also during its shutdown."""
        self._registration = registration
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self.cordoned: Callable[[], list[UUID] | None] = lambda: None
        """Returns the directories that take no new replicas; None if the metadata cannot have them."""
        self._applied, self._are_replicas_behind = progress
        self._ask = ask
        self._log = log
        self._asking = False
        self._next: TimestampMs = now
        self._leave_by: TimestampMs | None = None
        self._offline_directories: list[UUID] = []
        """The directories that have failed in this run. The controller knows the first `_reported_directories` of them."""
        self._reported_directories = self._sent_directories = 0
        self._sent_cordons: list[UUID] | None = None
        self._report_by: TimestampMs | None = None
        self._directory_failure_timeout_ms = directory_failure_timeout_ms
        self.failure: str | None = None
        """The reason why the broker must shut down."""
        self._refusal: int = ErrorCode.NONE
        """The error of the controller's last response to a registration."""
        self._answered_at: TimestampMs = now
        """The time of a controller's last response."""

    def tick(self, now: TimestampMs) -> None:
        """Send the request that is due."""
        if self.state is not State.GONE and self._leave_by is not None and now >= self._leave_by:
            self._go("no leave to stop was given in time")
        if self._report_by is not None and now >= self._report_by:
            self.failure = "no controller has taken a heartbeat that names a failed log directory"
        # Not before the step after the one in which it has caught up: at its end all replicas have been compared.
        if self.state is State.RECOVERING and self.has_caught_up and not self._are_replicas_behind():
            self._change(State.RUNNING)
            self._next = now
        self.metadata_applied(now)
        if self._asking or now < self._next or self.state is State.GONE:
            return
        self._asking = True
        if self.state is State.STARTING:
            self._ask(self._registration, self._registered, now)
        else:
            self._ask(self._heartbeat(), self._answered, now)

    def next_deadline(self) -> TimestampMs | None:
        if self.state is State.GONE:
            return None
        times = [None if self._asking else self._next, self._leave_by, self._report_by]
        return min((time for time in times if time is not None), default=None)

    def metadata_applied(self, now: TimestampMs) -> None:
        """Check whether this broker has replayed its registration, after the image has changed."""
        # Before its own registration the metadata describe an earlier incarnation: a broker that applied them could lead
        # partitions whose log it has lost.
        if self.state in (State.STARTING, State.GONE) or not -1 < self.broker_epoch < self._applied():
            return
        if self.state is State.RECOVERING and not self.has_caught_up:
            self._next = now
        self.has_caught_up = True

    def lose_directory(self, directory: UUID, now: TimestampMs) -> None:
        """Report a failed log directory in the next heartbeat, which is due now, and in all later ones (KIP-858)."""
        self._offline_directories.append(directory)
        # From the first failure on: a broker that cannot report it must shut down, or the controller keeps it as the leader of
        # offline partitions.
        self._report_by = self._report_by or now + self._directory_failure_timeout_ms
        self._next = now

    def replayed(self, may_cordon: bool, now: TimestampMs) -> None:
        """Note applied metadata, which may have changed this broker's settings: report cordoned directories at once."""
        self.metadata_applied(now)
        if may_cordon and self._cordons() != self._sent_cordons:
            self._next = now

    def _cordons(self) -> list[UUID] | None:
        """The cordoned directories for a heartbeat. A broker that never had any sends null; Kafka's sends an empty list.

        Before it has caught up its settings may be out of date.
        """
        found = self.cordoned() if self.has_caught_up else None
        return found if found or self._sent_cordons is not None else None

    def leave(self, now: TimestampMs, timeout_ms: int) -> None:
        """Begin a controlled shutdown, in which leaderships are moved away first.

        With a timeout of 0 the controller is not asked, and fences the broker when its session expires.
        """
        if self.state in (State.RUNNING, State.RECOVERING):
            self._change(State.LEAVING)
            self._next = self._answered_at = now
            self._leave_by = now + timeout_ms
            if timeout_ms <= 0:
                self._change(State.GONE)
        elif self.state is State.STARTING and self._asking:
            self._leave_by = now + min(timeout_ms, NO_CONTROLLER_MS)
        elif self.state is State.STARTING:
            self._change(State.GONE)

    def _change(self, state: State) -> None:
        assert (self.state, state) in TRANSITIONS, f"{self.state.name} to {state.name}"
        self.state = state

    def _go(self, reason: str) -> None:
        self._log("warning", f"{reason}: stopping all the same")
        self._change(State.GONE)

    def _registered(self, answer: Message | None, now: TimestampMs) -> None:
        self._asking = False
        self._next = now + RETRY_MS
        if not isinstance(answer, BrokerRegistrationResponse):
            return
        if answer.error_code != ErrorCode.NONE:
            self._refused(answer.error_code)
            is_final = self._leave_by is not None and answer.error_code != ErrorCode.NOT_CONTROLLER
            if is_final and self.state is State.STARTING:
                self._change(State.GONE)
            return
        self._refusal = ErrorCode.NONE
        self.broker_epoch = answer.broker_epoch
        if self.state is State.STARTING:
            # A broker that shuts down is still fenced, and has no leaderships to move.
            self._change(State.RECOVERING if self._leave_by is None else State.GONE)
        self._log("info", f"registered with broker epoch {self.broker_epoch}")
        self._next = now
        self.metadata_applied(now)

    def _refused(self, error: int) -> None:
        """Log a refused registration once. NOT_CONTROLLER is not logged, because it is temporary."""
        if error in (self._refusal, ErrorCode.NOT_CONTROLLER):
            return
        self._refusal = error
        passes = error == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        reason = ": a broker with this id is registered and not yet fenced" if passes else ""
        self._log(
            "warning" if passes else "error", f"the controller does not register this broker: {name_of(error)}{reason}"
        )

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        self._sent_directories = len(self._offline_directories)
        self._sent_cordons = self._cordons()
        return BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._applied() - 1,
            # Until its replicas follow the metadata: an unfenced broker may be elected, and join ISRs.
            want_fence=self.state is State.RECOVERING,
            want_shut_down=self.state is State.LEAVING,
            offline_log_dirs=[*self._offline_directories],
            cordoned_log_dirs=self._sent_cordons,
        )

    def _answered(self, answer: Message | None, now: TimestampMs) -> None:
        self._asking = False
        self._next = now + RETRY_MS
        if not isinstance(answer, BrokerHeartbeatResponse):
            if self.state is State.LEAVING and self._leave_by is not None:
                # When a whole cluster stops, the last nodes have no controller left.
                self._leave_by = min(self._leave_by, self._answered_at + NO_CONTROLLER_MS)
            return
        self._answered_at = now
        if answer.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            # The controller knows another incarnation of this broker: what it granted to this one is void.
            if self.state in (State.RECOVERING, State.RUNNING):
                self._change(State.STARTING)
                self.has_caught_up = False
                self._next = now
            return
        if answer.error_code != ErrorCode.NONE:
            return
        if answer.is_fenced != self.is_fenced:
            self.is_fenced = answer.is_fenced
            self._log("info", "fenced" if answer.is_fenced else "unfenced")
        if answer.should_shut_down and self.state is State.LEAVING:
            self._change(State.GONE)
            return
        self._reported_directories = self._sent_directories
        if self._reported_directories < len(self._offline_directories):
            self._next = now
            return
        self._report_by = None
        waits = self.is_fenced or self.state is State.LEAVING
        self._next = now + (FIRST_HEARTBEAT_MS if waits else self._heartbeat_interval_ms)
