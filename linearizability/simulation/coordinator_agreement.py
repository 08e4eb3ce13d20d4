# pyright: reportPrivateUsage=false
"""Check that a coordinator's state of a partition equals its records: groups, their offsets, transactional ids.

Replays the records as a new leader would, and compares the results. Leaves out state that is only in memory: classic groups
between two generations, and the partitions that still lack a marker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from linearizability.simulation.schedule import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from linearizability.simulation.world import Violation
from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_state import State as ClassicState
from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.consumer_group_description import describe
from reference.coordinator.group_shard import GroupShard, Producer
from reference.coordinator.offsets import CommittedOffset
from reference.coordinator.transaction_coordinator import TransactionCoordinator
from reference.coordinator.transaction_state import State, Transaction
from reference.node.coordination import Shard
from reference.node.known_topics import KnownTopics
from reference.node.node import Node
from reference.protocol.codec import CodecError
from reference.protocol.primitives import FIRST_EPOCH, LONG_AGO, Buffer
from reference.protocol.records.batch import read_batches, records_of
from reference.protocol.records.control import read_end_transaction
from reference.protocol.records.record import Record
from reference.replication.partition import Partition

COORDINATED = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC})
COORDINATED_SAMPLED = 64
"""One of this many changes of these partitions is followed by a comparison."""
STABLE_GROUPS = "stable classic groups"
READ_BYTES = 1 << 20
View = Mapping[str, Mapping[Any, object]]
S = TypeVar("S", bound=Shard)


def require_replayed(name: str, node: Node, partition: Partition) -> None:
    """Compare the shard of a partition that the node leads with the partition's records. Errors: Violation."""
    if not partition.is_leader:
        return
    index = partition.index
    if partition.topic == GROUPS_TOPIC:
        groups = node.groups.coordination.loaded_shard(index)
        if groups is not None:
            _require_same(name, _of_groups(node, groups), _of_groups(node, _replayed(_new_shard(node), partition)))
    elif (transactions := node.transactions.coordination.loaded_shard(index)) is not None:
        replayed = _replayed(TransactionCoordinator(index, FIRST_EPOCH, *cast(Any, (None, None, None))), partition)
        _require_same(name, _of_transactions(transactions), _of_transactions(replayed))


def _require_same(name: str, kept: View, replayed: View) -> None:
    for part, value in replayed.items():
        ours = {key: value.get(key) for key in kept[part]} if part == STABLE_GROUPS else value
        if kept[part] != ours:
            text = f"{name}: the {part} are {kept[part]}, where the records say {value}"
            raise Violation("coordinator-disagrees", text)


def _new_shard(node: Node) -> GroupShard:
    return GroupShard(
        node.groups.settings,
        cast(Any, None),
        KnownTopics(node.image),
        lambda records, now: None,
        lambda token, said: None,
    )


def _replayed(shard: S, partition: Partition) -> S:
    """The shard after a replay of all records of the partition. Skips unreadable records, as a coordinator does."""
    offset = partition.log.log_start_offset
    while offset < partition.log.log_end_offset:
        found, before = partition.log.read(offset, READ_BYTES).records, offset
        for batch in read_batches(found if isinstance(found, bytes) else found.read()):
            header, offset = batch.header, batch.header.next_offset
            producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
            for record in records_of(batch.data):
                if header.is_control:
                    if producer is not None:
                        shard.replay_marker(producer, read_end_transaction(record).committed)
                elif record.key is not None:
                    _replay(shard, record, producer, partition.name)
        if offset == before:
            break
    return shard


def _replay(shard: Shard, record: Record, producer: Producer | None, name: str) -> None:
    """Errors: Violation for a record that a coordinator would not load, as compaction has left it."""
    try:
        shard.replay(cast(Buffer, record.key), record.value, LONG_AGO, producer)
    except CodecError:
        return
    except Exception as error:
        raise Violation("record-not-loaded", f"{name} at {record.offset}: {error!r}") from error


def _of_groups(node: Node, shard: GroupShard) -> View:
    topics = KnownTopics(node.image)
    return {
        "offsets": {group: _shown(offsets) for group, offsets in shard.offsets._committed.items()},
        "pending offsets": {producer: _shown(offsets) for producer, offsets in shard.offsets._pending.items()},
        "groups": {
            id: describe(group, topics, "") for id, group in shard.groups.items() if isinstance(group, ConsumerGroup)
        },
        STABLE_GROUPS: {
            id: (group.generation, group.protocol, group.assignments())
            for id, group in shard.groups.items()
            if isinstance(group, ClassicGroup) and group.state is ClassicState.STABLE
        },
    }


def _shown(offsets: Mapping[Any, CommittedOffset]) -> object:
    """The offsets without their numbers, which only count replayed records."""
    return {
        place: (each.offset, each.leader_epoch, each.metadata, each.committed_at, each.expires_at, each.topic_id)
        for place, each in offsets.items()
    }


def _of_transactions(coordinator: TransactionCoordinator) -> View:
    return {"transactions": {id: _fields(each) for id, each in coordinator.transactions.items()}}


def _fields(each: Transaction) -> object:
    partitions = each.partitions if each.state is State.ONGOING else None
    return each.producer_id, each.epoch, each.timeout_ms, each.state, partitions, each.started_at, each.updated_at
