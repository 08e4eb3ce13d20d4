"""Reads all znodes for a new controller: brokers, topics with partition states, producer ids, topics to delete.

The reads are sent in rounds, each at once; then the controller's image is rebuilt from their results. A damaged znode is
logged and skipped: its partition has no leader until it is repaired.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from reference.controller.directory_ids import MIGRATING
from reference.controller.image import FIRST_PRODUCER_ID, MetadataImage
from reference.controller.producer_ids import MAX_PRODUCER_ID
from reference.controller.topics import new_topic_id
from reference.protocol.messages.partition_record import PartitionRecord
from reference.protocol.messages.producer_ids_record import ProducerIdsRecord
from reference.protocol.messages.register_broker_record import RegisterBrokerRecord
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.primitives import (
    NO_UUID,
    BrokerEpoch,
    Chance,
    NodeId,
    PartitionEpoch,
    ProducerId,
    TimestampMs,
    TopicId,
    TopicName,
)
from reference.storage.log_directory import Logger
from reference.zookeeper import znodes
from reference.zookeeper.operations import Code, GetChildren, GetData, Result
from reference.zookeeper.session import OnWatch, Session

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """One registration; its zxid is the broker epoch."""

    id: NodeId
    epoch: BrokerEpoch
    registration: znodes.Registration


def registered(broker: LiveBroker) -> RegisterBrokerRecord:
    """The registration as a record for the controller's image; a broker is unfenced as soon as it is registered."""
    return RegisterBrokerRecord(
        broker_id=broker.id,
        broker_epoch=broker.epoch,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=each.listener, host=each.host, port=each.port, security_protocol=each.protocol
            )
            for each in broker.registration.endpoints
        ],
        rack=broker.registration.rack,
        fenced=False,
    )


@dataclass(slots=True)
class Found:
    """The results of a full read."""

    brokers: list[LiveBroker] = field(default_factory=list[LiveBroker])
    topics: dict[TopicName, znodes.Assignment] = field(default_factory=dict[TopicName, znodes.Assignment])
    states: dict[tuple[TopicName, int], tuple[znodes.State, PartitionEpoch]] = field(
        default_factory=dict[tuple[TopicName, int], tuple[znodes.State, PartitionEpoch]]
    )
    written: dict[tuple[TopicName, int], int] = field(default_factory=dict[tuple[TopicName, int], int])
    """The transaction that wrote each state."""
    damaged: set[tuple[TopicName, int]] = field(default_factory=set[tuple[TopicName, int]])
    deleting: list[TopicName] = field(default_factory=list[TopicName])
    next_producer_id: ProducerId = FIRST_PRODUCER_ID

    def former_members(self) -> dict[NodeId, set[tuple[TopicName, int]]]:
        """Brokers that registered after they were written into ISRs: an earlier incarnation was in sync."""
        former: dict[NodeId, set[tuple[TopicName, int]]] = {}
        for broker in self.brokers:
            for place, (state, _) in self.states.items():
                if broker.id in state.isr and broker.epoch > self.written[place]:
                    former.setdefault(broker.id, set()).add(place)
        return former

    def without_state(self) -> list[tuple[TopicName, int]]:
        """Assigned partitions that never had a leader."""
        places = [(name, index) for name, each in self.topics.items() for index in each.partitions]
        return [place for place in places if place not in self.states and place not in self.damaged]


class Reader:
    """Reads znodes for a controller."""

    def __init__(self, session: Session, on_topic: Callable[[TopicName, TimestampMs], None], log: Logger) -> None:
        """`on_topic` is called when the assignment of a topic changes after its read."""
        self._session = session
        self._on_topic = on_topic
        self._log = log

    def read_brokers(
        self, watch: OnWatch, then: Callable[[list[LiveBroker], TimestampMs], None], now: TimestampMs
    ) -> None:
        """Read the live brokers. Without an answer `then` is not called: the next connection reads everything again."""

        def listed(result: Result, at: TimestampMs) -> None:
            if result.code not in (Code.OK, Code.NO_NODE):
                return
            ids = sorted(int(name) for name in result.children if name.isdigit())
            self._session.ask_all(
                [GetData(znodes.broker_path(NodeId(id))) for id in ids],
                lambda results, later: _complete(results, lambda: then(self._brokers(ids, results), later)),
                at,
            )

        self._session.ask(GetChildren(znodes.BROKER_IDS, watch=True), listed, now, watch)

    def _brokers(self, ids: list[int], results: list[Result]) -> list[LiveBroker]:
        found: list[LiveBroker] = []
        for id, result in zip(ids, results, strict=True):
            path = znodes.broker_path(NodeId(id))
            if result.code == Code.OK and (each := self._decoded(znodes.decode_registration, path, result)) is not None:
                found.append(LiveBroker(NodeId(id), BrokerEpoch(result.stat.czxid), each))
        return found

    def read_topics(
        self, names: list[TopicName], found: Found, then: Callable[[TimestampMs], None], now: TimestampMs
    ) -> None:
        """Read the assignments and states of topics into `found`, with watches on the assignments."""

        def assigned(results: list[Result], at: TimestampMs) -> None:
            for name, result in zip(names, results, strict=True):
                if result.code != Code.OK:
                    continue
                assignment = self._decoded(znodes.decode_assignment, znodes.topic_path(name), result)
                if assignment is not None:
                    found.topics[name] = assignment
            places = [
                (name, index) for name in names if name in found.topics for index in found.topics[name].partitions
            ]
            self._session.ask_all(
                [GetData(znodes.state_path(*place)) for place in places],
                lambda states, later: _complete(
                    states, lambda: (self._take_states(places, states, found), then(later))
                ),
                at,
            )

        self._session.ask_all(
            [GetData(znodes.topic_path(name), watch=True) for name in names],
            lambda results, at: _complete(results, lambda: assigned(results, at)),
            now,
            [partial(self._on_topic, name) for name in names],
        )

    def _take_states(self, places: list[tuple[TopicName, int]], results: list[Result], found: Found) -> None:
        for place, result in zip(places, results, strict=True):
            if result.code != Code.OK:
                continue
            state = self._decoded(znodes.decode_state, znodes.state_path(*place), result)
            if state is None:
                found.damaged.add(place)
            else:
                found.states[place] = state, PartitionEpoch(result.stat.version)
                found.written[place] = result.stat.mzxid

    def read_all(
        self, on_brokers: OnWatch, on_topics: OnWatch, then: Callable[[Found, TimestampMs], None], now: TimestampMs
    ) -> None:
        """Read all znodes, with watches also on the lists of brokers and topics."""
        found = Found()

        def read(brokers: list[LiveBroker], at: TimestampMs) -> None:
            found.brokers = brokers
            self._session.ask(GetData(znodes.PRODUCER_IDS), take_producer_ids, at)
            self._session.ask(GetChildren(znodes.DELETE_TOPICS), take_deleting, at)
            self._session.ask(GetChildren(znodes.TOPICS, watch=True), take_topics, at, on_topics)

        def take_producer_ids(result: Result, at: TimestampMs) -> None:
            if result.code == Code.OK:
                next_id = self._decoded(znodes.decode_next_producer_id, znodes.PRODUCER_IDS, result)
                # Ids of a damaged block may have been given out: none is left to the image, so that it allocates no other.
                found.next_producer_id = next_id if next_id is not None else ProducerId(MAX_PRODUCER_ID)

        def take_deleting(result: Result, at: TimestampMs) -> None:
            found.deleting = sorted(result.children)

        def take_topics(result: Result, at: TimestampMs) -> None:
            if result.code in (Code.OK, Code.NO_NODE):
                self.read_topics(sorted(result.children), found, lambda later: then(found, later), at)

        self.read_brokers(on_brokers, read, now)

    def _decoded(self, decode: Callable[[str, bytes], T], path: str, result: Result) -> T | None:
        try:
            return decode(path, result.data)
        except znodes.DamagedZnode as error:
            self._log("error", str(error))
            return None


def _complete(results: list[Result], go_on: Callable[[], object]) -> None:
    """Continue, unless the connection was lost in between."""
    if all(each.code in (Code.OK, Code.NO_NODE) for each in results):
        go_on()


def fill(image: MetadataImage, found: Found, chance: Chance) -> None:
    """Rebuild the controller's image, except for its settings, which are kept separately."""
    for table in (image.topics, image.topics_by_id, image.brokers):
        table.clear()
    for broker in found.brokers:
        image.apply(registered(broker))
    image.apply(ProducerIdsRecord(next_producer_id=found.next_producer_id))
    for name, assignment in found.topics.items():
        add_topic(image, name, assignment, found, chance)


def add_topic(
    image: MetadataImage, name: TopicName, assignment: znodes.Assignment, found: Found, chance: Chance
) -> None:
    """Add a topic, with its partitions that have a state."""
    topic_id = assignment.topic_id if assignment.topic_id != NO_UUID else new_topic_id(chance)
    image.apply(TopicRecord(name=name, topic_id=topic_id))
    for index, replicas in sorted(assignment.partitions.items()):
        state = found.states.get((name, index))
        if state is not None:
            image.apply(_partition(topic_id, index, [*replicas], assignment, *state))


def _partition(
    topic_id: TopicId,
    index: int,
    replicas: list[NodeId],
    assignment: znodes.Assignment,
    state: znodes.State,
    version: PartitionEpoch,
) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=replicas,
        isr=[*state.isr],
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=version,
        adding_replicas=[*assignment.adding.get(index, ())],
        removing_replicas=[*assignment.removing.get(index, ())],
        leader_recovery_state=state.recovery_state,
        directories=[MIGRATING] * len(replicas),
    )
