"""This broker's membership in the cluster: its session, its ephemeral registration, and controlled shutdown.

With each connection it compares the cluster's id, creates the persistent znodes, reads the settings, registers the broker if
it is not registered, and reads the controller. A broker whose session has expired registers again in a new one, with another
broker epoch. Until it learns of the expiry, it acts as before.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from reference.node.identity import Identity
from reference.node.membership import RETRY_MS, State
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from reference.protocol.primitives import BrokerEpoch, TimestampMs
from reference.protocol.schema import Message
from reference.storage.log_directory import Logger
from reference.zookeeper import znodes
from reference.zookeeper.operations import Code, Create, GetData, Result
from reference.zookeeper.session import Session

Answered = Callable[[Message | None, TimestampMs], None]
Ask = Callable[[Message, Answered, TimestampMs], None]
Load = Callable[[Callable[[TimestampMs], None], TimestampMs], None]
"""Reads from ZooKeeper what a broker needs before it registers, then calls the function; not if the connection is lost."""


class ZooKeeperMembership:
    """The broker's registration in ZooKeeper; the counterpart of `Membership`."""

    def __init__(
        self,
        identity: Identity,
        session: Session,
        load: Load,
        ask: Ask,
        registered: Callable[[TimestampMs], None],
        log: Logger,
    ) -> None:
        """`ask` sends a request to the controller; `registered` is called on each connection on which the broker is
        registered."""
        self.state = State.STARTING
        self.broker_epoch = BrokerEpoch(-1)
        self.is_fenced = False
        self.has_caught_up = False
        """Whether an UpdateMetadata request has listed this broker."""
        self.failure: str | None = None
        self._node = identity.node
        self._cluster_id = identity.cluster_id
        self._registration = znodes.Registration(identity.endpoints, identity.rack)
        self._session = session
        self._load = load
        self._ask = ask
        self._registered = registered
        self._log = log
        self._is_refused = False
        self._leave_by: TimestampMs | None = None
        self._next: TimestampMs | None = None

    # ---- with each connection

    def connected(self, now: TimestampMs) -> None:
        self._session.ask(GetData(znodes.CLUSTER_ID), self._take_cluster_id, now)

    def _take_cluster_id(self, result: Result, now: TimestampMs) -> None:
        if result.code == Code.NO_NODE:
            paths = ["/cluster", *_with_parents(znodes.PERSISTENT)]
            creations = [Create(path, b"") for path in paths]
            identified = Create(znodes.CLUSTER_ID, znodes.encode_cluster_id(self._cluster_id))
            self._session.ask_all([*creations, identified], lambda results, at: self._made(results, at), now)
            return
        if result.code != Code.OK:
            return
        try:
            found = znodes.decode_cluster_id(znodes.CLUSTER_ID, result.data)
        except znodes.DamagedZnode as error:
            self.failure = str(error)
            return
        if found != self._cluster_id:
            self.failure = (
                f"ZooKeeper holds the data of cluster {found}, and this broker is of cluster {self._cluster_id}"
            )
            return
        self._load(self._register, now)

    def _made(self, results: list[Result], now: TimestampMs) -> None:
        if all(each.code in (Code.OK, Code.NODE_EXISTS) for each in results):
            self.connected(now)

    def _register(self, now: TimestampMs) -> None:
        if self.state is State.GONE:
            return
        data = znodes.encode_registration(self._registration, now)
        creation = Create(znodes.broker_path(self._node), data, ephemeral=True)
        self._session.ask(creation, self._created, now)

    def _created(self, result: Result, now: TimestampMs) -> None:
        if result.code in (Code.OK, Code.NODE_EXISTS):
            path = znodes.broker_path(self._node)
            self._session.ask(GetData(path, watch=True), self._take_registration, now, self.connected)

    def _take_registration(self, result: Result, now: TimestampMs) -> None:
        if result.code == Code.NO_NODE:
            self._register(now)
        elif result.code == Code.OK and result.stat.ephemeral_owner != self._session.id:
            if not self._is_refused:
                self._is_refused = True
                self._log("warning", f"a broker with the id {self._node} is registered: waiting for its session's end")
        elif result.code == Code.OK:
            self._is_refused = False
            if self.broker_epoch != result.stat.czxid:
                self.broker_epoch = BrokerEpoch(result.stat.czxid)
                self._log("info", f"registered with broker epoch {self.broker_epoch}")
            if self.state is State.STARTING:
                self.state = State.RUNNING
            self._registered(now)

    # ---- leaving

    def leave(self, now: TimestampMs, timeout_ms: int) -> None:
        """Begin a controlled shutdown, in which leaderships are moved away first."""
        if self.state is State.RUNNING:
            self.state = State.LEAVING
            self._leave_by, self._next = TimestampMs(now + timeout_ms), now
            self.tick(now)
        elif self.state is State.STARTING:
            self.state = State.GONE

    def lose_directory(self, directory: UUID, now: TimestampMs) -> None:
        """Shut down: Kafka's broker continues with its other directories, and has the controller elect other leaders."""
        self.failure = f"log directory {directory} has failed, which the controller cannot be informed of"

    def tick(self, now: TimestampMs) -> None:
        if self.state is not State.LEAVING:
            return
        if self._leave_by is not None and now >= self._leave_by:
            self._log("warning", "no leave to stop was given in time: stopping all the same")
            self.state = State.GONE
        elif self._next is not None and now >= self._next:
            self._next = None
            body = ControlledShutdownRequest(broker_id=self._node, broker_epoch=self.broker_epoch)
            self._ask(body, self._answered, now)

    def next_deadline(self) -> TimestampMs | None:
        if self.state is not State.LEAVING:
            return None
        return min((each for each in (self._leave_by, self._next) if each is not None), default=None)

    def _answered(self, answer: Message | None, now: TimestampMs) -> None:
        if self.state is not State.LEAVING:
            return
        if (
            isinstance(answer, ControlledShutdownResponse)
            and answer.error_code == ErrorCode.NONE
            and not answer.remaining_partitions
        ):
            self.state = State.GONE
        else:
            self._next = TimestampMs(now + RETRY_MS)


def _with_parents(paths: tuple[str, ...]) -> list[str]:
    """The paths and all their parents, each once, parents first."""
    found: dict[str, None] = {}
    for path in paths:
        parts = path.strip("/").split("/")
        found |= {"/" + "/".join(parts[:end]): None for end in range(1, len(parts) + 1)}
    return [*found]
