"""Places the replicas of new partitions: over racks first, then over brokers, on unfenced brokers if there are enough.

Partitions are placed in rounds. In a round each rack contributes its brokers one after another, unfenced ones first. The next
round begins with the next rack, and in each rack with the next broker, so that leaders and followers spread evenly.
Source: org.apache.kafka.metadata.placement.StripedReplicaPlacer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle, islice

from reference.controller.image import BrokerImage, MetadataImage
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import Chance, NodeId


@dataclass(slots=True)
class Rack:
    serving: list[NodeId] = field(default_factory=list[NodeId])
    fenced: list[NodeId] = field(default_factory=list[NodeId])

    def turn(self, number: int) -> Turn:
        return Turn(_turned(self.serving, number), _turned(self.fenced, number))


@dataclass(slots=True)
class Turn:
    """The brokers of a rack that a round has not used yet."""

    serving: list[NodeId]
    fenced: list[NodeId]

    def take(self) -> NodeId | None:
        brokers = self.serving or self.fenced
        return brokers.pop(0) if brokers else None


def _turned(brokers: list[NodeId], number: int) -> list[NodeId]:
    start = number % len(brokers) if brokers else 0
    return brokers[start:] + brokers[:start]


def _shuffle(items: list[NodeId] | list[Rack], chance: Chance) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = chance.randrange(last + 1)
        items[last], items[other] = items[other], items[last]  # type: ignore[assignment]


def usable_brokers(image: MetadataImage) -> list[BrokerImage]:
    """The brokers that may get replicas, sorted by id: also fenced ones, but none in controlled shutdown or with all
    directories cordoned.

    A broker that has shut down is fenced, and may get replicas again, although its registration keeps the controlled shutdown.
    Source: org.apache.kafka.controller.BrokerHeartbeatManager, `touch` and `UsableBrokerIterator`.
    """
    return [
        broker
        for _, broker in sorted(image.brokers.items())
        if (broker.fenced or not broker.in_controlled_shutdown)
        and (not broker.directories or {*broker.directories} - {*(broker.cordoned_directories or ())})
    ]


def place_replicas(image: MetadataImage, partitions: int, replication: int, chance: Chance) -> list[list[NodeId]]:
    """The replicas of new partitions; the first replica of each is on an unfenced broker.

    Errors: KafkaError INVALID_REPLICATION_FACTOR if no broker is unfenced, or fewer brokers exist than a partition needs.
    """
    brokers = usable_brokers(image)
    serving = sum(not broker.fenced for broker in brokers)
    if not serving:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced.")
    if replication > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The target replication factor of {replication} cannot be reached because only {len(brokers)} broker(s) are "
            "registered or some brokers have all their log directories cordoned.",
        )
    racks = _racks(brokers, chance)
    first = chance.randrange(len(racks))
    placed: list[list[NodeId]] = []
    for index in range(partitions):
        number = index % serving
        if index and not number and serving > 1:
            _shuffle_all(racks, chance)
        placed.append(_place(racks, first + index, number, replication))
    return placed


def _racks(brokers: list[BrokerImage], chance: Chance) -> list[Rack]:
    """The racks sorted by name, brokers without a rack first; each rack begins at a random broker."""
    racks: dict[str, Rack] = {}
    for broker in sorted(brokers, key=lambda each: (each.rack or "", each.id)):
        rack = racks.setdefault(broker.rack or "", Rack())
        (rack.fenced if broker.fenced else rack.serving).append(broker.id)
    for rack in racks.values():
        rack.serving = _turned(rack.serving, chance.randrange(max(1, len(rack.serving))))
        rack.fenced = _turned(rack.fenced, chance.randrange(max(1, len(rack.fenced))))
    return [*racks.values()]


def _shuffle_all(racks: list[Rack], chance: Chance) -> None:
    """Shuffle racks and brokers, so that the next rounds differ from the last ones."""
    _shuffle(racks, chance)
    for rack in racks:
        _shuffle(rack.serving, chance)
        _shuffle(rack.fenced, chance)


def _place(racks: list[Rack], first: int, number: int, replication: int) -> list[NodeId]:
    """The replicas of one partition: an unfenced broker of the first rack that has one, then one of each rack in turn."""
    turns = _turned_racks([rack.turn(number) for rack in racks], first)
    leading = next(turn for turn in turns if turn.serving)
    replicas = [leading.serving.pop(0)]
    limit = (len(turns) + 1) * (replication + 1)
    for turn in islice(cycle(turns), limit):
        if len(replicas) == replication:
            break
        if turn is leading:
            leading = None  # it contributed the leader already
            continue
        broker = turn.take()
        if broker is not None:
            replicas.append(broker)
    return replicas


def _turned_racks(turns: list[Turn], first: int) -> list[Turn]:
    start = first % len(turns)
    return turns[start:] + turns[:start]
