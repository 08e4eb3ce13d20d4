"""Whether the nodes of a healed cluster agree: on logs, leader epochs, metadata and in-sync replicas.

Clients have stopped, so nodes that work come to agree within seconds; they are asked again until they do, or time is over.

| compared | read from | differs where |
| --- | --- | --- |
| logs | all segments, of internal topics and `__cluster_metadata` too | log ends, or the bytes of a batch that both should hold |
| leader epochs | `leader-epoch-checkpoint` | it says other epochs than the same replica's batches (reference: flushed ones) |
| metadata image | each node's newest snapshot, and its log from there on | records of the images at one common offset |
| metadata snapshots | each node's newest one, by Kafka's metadata shell | the shell finds something else in a log up to there |
| metadata served | Metadata, from every node | topics, leaders, epochs, replicas, in-sync replicas |

A node writes its snapshots from the image in its memory. So what it dropped from that, or made of it, is seen here, if it has
written one: where nodes were to write some (`SNAPSHOT_OFTEN`), a node that has none leaves the image not judged. Images are
read by the reference's reader, and the snapshots of all nodes once more by Kafka's own (`metadata_shell.py`).
It reads folders by the reference's code, so it is no part of `faults`, which know a broker by its wire protocol only.
Replicas that are not in sync after that time are a reason for `unknown`: no time is promised in which they come back.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from linearizability.metadata_shell import snapshot_differences
from linearizability.targets.artifacts import ArtifactError
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.mixed import MixedCluster
from linearizability.targets.reference import ReferenceCluster
from linearizability.targets.target import Node
from linearizability.targets.wire import Wire, WireError
from linearizability.targets.zookeeper import ByZooKeeper
from reference.controller.image import MetadataImage
from reference.controller.image_records import image_records
from reference.controller.metadata_records import decode_metadata_record
from reference.controller.metadata_transactions import SettledRecords
from reference.controller.quorum_snapshots import NAME, records_in
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.primitives import Offset
from reference.protocol.records.batch import Batch, read_batches, records_of
from reference.protocol.schema import Message
from reference.storage.checkpoints import CLEANER_OFFSETS, LEADER_EPOCHS, RECOVERY_POINTS
from reference.storage.posix_disk import PosixDisk

AGREE_WITHIN_S = 90.0
ASK_AGAIN_S = 1.0
METADATA_LOG = "__cluster_metadata-0"
MOST_DIFFERENCES = 20
SNAPSHOT_OFTEN = {
    "metadata.log.max.snapshot.interval.ms": "10000",
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}
"""Settings by which every node writes snapshots during a hunt."""

Runs = list[tuple[int, int]]
"""Epoch and the first offset of it, in the order of offsets."""


class Agreement(BaseModel):
    """The result of the comparison."""

    differences: list[str] = []
    reasons: list[str] = []
    """Why something was not judged."""
    replicas: int = 0
    """Replicas whose bytes were compared."""
    batches: int = 0
    metadata_end: int = 0
    """The offset at which images were compared."""
    image_records: int = 0
    snapshots: dict[int, int] = {}
    """Node -> the end of the snapshot from which its image was read."""
    read_by_kafka: dict[int, int] = {}
    """Node -> the end of the snapshot that Kafka's metadata shell has read."""


class Unsettled(Exception):
    """Something could not be compared, with the reason."""


@dataclass(frozen=True)
class Copy:
    """One node's replica of a partition."""

    node: int
    batches: Mapping[Offset, Batch]
    """By base offset."""
    start: int
    end: int
    clean_until: int
    """Below this offset the replica was compacted."""
    checkpoint: Runs
    flushed_to: int | None = None
    """Epochs that begin at this offset or later may be missing in the checkpoint; None where none may."""


def compare_nodes(target: ClusterTarget, within_s: float = AGREE_WITHIN_S) -> Agreement:
    """Compare all nodes, again and again until they agree or the time is over; returns the last comparison."""
    until = time.monotonic() + within_s
    while True:
        found = Agreement()
        has_quorum = not isinstance(target, ByZooKeeper)
        for compare in (_compare_served, _compare_logs, *((_compare_quorum, _compare_images) if has_quorum else ())):
            try:
                compare(target, found)
            except (Unsettled, WireError, OSError, ValueError) as error:
                found.reasons.append(f"{compare.__name__.removeprefix('_').replace('_', ' ')}: {error}")
        if not (found.differences or found.reasons) or time.monotonic() > until:
            if has_quorum and isinstance(target, MixedCluster):
                _read_by_kafka(target, found)
            del found.differences[MOST_DIFFERENCES:], found.reasons[MOST_DIFFERENCES:]
            return found
        time.sleep(ASK_AGAIN_S)


def _read_by_kafka(target: ClusterTarget, found: Agreement) -> None:
    """Read all snapshots with Kafka's shell, once: they and their logs do not change any more."""
    homes = {member.node.id: member.data / METADATA_LOG for member in target.members}
    try:
        for node, end, unlike in snapshot_differences(homes):
            found.read_by_kafka[node] = end
            where = f"snapshot of node {node} at {end}"
            if unlike is None:
                found.reasons.append(f"Kafka's shell read nothing of the {where}, or of a log up to there")
            else:
                found.differences += [f"Kafka's shell: {where}: {each}" for each in unlike]
    except (ArtifactError, OSError, ValueError) as error:
        found.reasons.append(f"read by Kafka's shell: {error}")


# ---- what nodes serve

View = dict[tuple[str, int], tuple[int, int, tuple[int, ...], tuple[int, ...]]]
"""Topic and partition -> leader, leader epoch, replicas, in-sync replicas."""


def _served(node: Node) -> View:
    with Wire.connect(node.host, node.port) as wire:
        answer: Any = wire.call(MetadataRequest(topics=None))
    return {
        (topic.name, each.partition_index): (
            each.leader_id,
            each.leader_epoch,
            tuple(each.replica_nodes),
            tuple(sorted(each.isr_nodes)),
        )
        for topic in answer.topics
        for each in topic.partitions
    }


def _compare_served(target: ClusterTarget, found: Agreement) -> None:
    first, *others = ((node.id, _served(node)) for node in target.nodes)
    for node, view in others:
        for name, place, one, other in _unequal(first[1], view):
            found.differences.append(
                f"metadata served: {name}-{place}: node {first[0]} says {one}, node {node} {other}"
            )
    for (topic, partition), (_, _, replicas, in_sync) in first[1].items():
        if sorted(replicas) != list(in_sync):
            found.reasons.append(f"{topic}-{partition}: in sync are {list(in_sync)} of {list(replicas)}")


def _unequal(one: View, other: View) -> Iterator[tuple[str, int, object, object]]:
    for key in sorted(one.keys() | other.keys()):
        if one.get(key) != other.get(key):
            yield *key, one.get(key), other.get(key)


# ---- logs and leader epochs


def _compare_logs(target: ClusterTarget, found: Agreement) -> None:
    for (topic, partition), (leader, _, replicas, _) in sorted(_served(target.nodes[0]).items()):
        name = f"{topic}-{partition}"
        if leader < 0:
            found.reasons.append(f"{name} has no leader")
            continue
        copies = [
            _copy(target.member(node).data, name, node, _is_reference(target, node))
            for node in (leader, *(each for each in replicas if each != leader))
        ]
        found.differences += _unlike(name, copies, None)
        found.replicas += len(copies)
        found.batches += sum(len(copy.batches) for copy in copies)


def _compare_quorum(target: ClusterTarget, found: Agreement) -> None:
    quorum = [_copy(member.data, METADATA_LOG, member.node.id) for member in target.members]
    found.differences += _unlike(METADATA_LOG, quorum, min(copy.end for copy in quorum))


def _unlike(name: str, copies: Sequence[Copy], end: int | None) -> Iterator[str]:
    """The differences of the first copy from the others; `end` where they are compared up to there alone."""
    first = copies[0]
    for copy in copies:
        if copy.end != first.end and end is None:
            yield f"log: {name} ends at {first.end} on node {first.node}, at {copy.end} on node {copy.node}"
        start = max(first.start, copy.start, first.clean_until, copy.clean_until)
        for offset in sorted(first.batches.keys() | copy.batches.keys()):
            if start <= offset < (copy.end if end is None else end):
                one, other = first.batches.get(offset), copy.batches.get(offset)
                if one is None or other is None or one.data != other.data:
                    yield (
                        f"log: {name} at {offset}: node {first.node} holds {_brief(one)}, node {copy.node} {_brief(other)}"
                    )
        written = _runs(copy)
        kept = _within(copy.checkpoint, copy.start, copy.end)
        is_right = (
            _is_kept(copy.flushed_to, kept, written) if copy.flushed_to is not None else _is_as_kafkas(kept, written)
        )
        if name != METADATA_LOG and not is_right and not copy.clean_until:
            yield f"leader epochs: {name} on node {copy.node}: the batches say {written}, the checkpoint {kept}"


def _is_kept(flushed_to: int, kept: Runs, written: Runs) -> bool:
    """Whether the reference has every epoch where it begins, but for late ones that it has not flushed."""
    late = written[len(kept) :]
    return kept + late == written and all(start >= flushed_to for _, start in late)


def _is_as_kafkas(kept: Runs, written: Runs) -> bool:
    """Whether Kafka has every epoch where it begins, but for the first, which may be noted later: no epoch ends there.

    A broker that lost its end with its power, and led once more in its former epoch, notes this one at its shorter end. When it
    then follows, the older epoch's records come there, and `LeaderEpochFileCache.assign` drops both notes ("caused truncation
    of conflicting entries", 4.3.1) and keeps the last.
    """
    if [epoch for epoch, _ in kept] != [epoch for epoch, _ in written]:
        return False
    return kept[1:] == written[1:] and all(
        begins <= noted for (_, noted), (_, begins) in zip(kept, written, strict=True)
    )


def _brief(batch: Batch | None) -> str:
    if batch is None:
        return "no batch"
    header = batch.header
    return f"{header.base_offset} to {header.last_offset} of epoch {header.leader_epoch}, {len(batch.data)} bytes"


def _runs(copy: Copy) -> Runs:
    runs: Runs = []
    for offset, batch in sorted(copy.batches.items()):
        if not runs or runs[-1][0] != batch.header.leader_epoch:
            runs.append((batch.header.leader_epoch, offset))
    return runs


def _within(runs: Runs, start: int, end: int) -> Runs:
    """The epochs that own an offset from `start` to `end`: an epoch in which nothing was written owns none."""
    following = [*(offset for _, offset in runs[1:]), end]
    owned = [
        (epoch, max(offset, start))
        for (epoch, offset), until in zip(runs, following, strict=False)
        if max(offset, start) < min(until, end)
    ]
    return owned


def _is_reference(target: ClusterTarget, node: int) -> bool:
    kind = target.kinds[node - 1] if isinstance(target, MixedCluster) else target
    return isinstance(kind, ReferenceCluster)


def _copy(data: Path, name: str, node: int, is_reference: bool = False) -> Copy:
    """One node's replica. `is_reference`: an epoch reaches the checkpoint when its first record is flushed.

    Errors: Unsettled where the node holds none; OSError, ValueError."""
    home = data / name
    segments = sorted(home.glob("*.log"))
    if not segments:
        raise Unsettled(f"node {node} holds no {name}")
    batches = {batch.header.base_offset: batch for segment in segments for batch in read_batches(segment.read_bytes())}
    first = int(segments[0].stem)
    start = min(batches, default=first)
    end = max((batch.header.next_offset for batch in batches.values()), default=int(segments[-1].stem))
    clean = {f"{topic}-{number}": offset for topic, number, offset in _lines(data / CLEANER_OFFSETS)}
    epochs = [(int(epoch), offset) for epoch, offset in _lines(home / LEADER_EPOCHS)]
    flushed = {f"{topic}-{number}": offset for topic, number, offset in _lines(data / RECOVERY_POINTS)}
    flushed_to = flushed.get(name, 0) if is_reference else None
    return Copy(node, batches, start, end, clean.get(name, 0), epochs, flushed_to)


def _lines(path: Path) -> Iterator[Any]:
    """The fields of a checkpoint's lines, the last a number; nothing where there is no file."""
    if path.exists():
        for line in path.read_text().splitlines()[2:]:
            *fields, offset = line.split(" ")
            yield *fields, int(offset)


# ---- images of the metadata


def _compare_images(target: ClusterTarget, found: Agreement) -> None:
    logs = {member.node.id: member.data / METADATA_LOG for member in target.members}
    end = min(_copy(home.parent, METADATA_LOG, node).end for node, home in logs.items())
    images: dict[int, set[str]] = {}
    for node, home in logs.items():
        snapshot, image = _image(home, end)
        found.snapshots[node] = snapshot
        images[node] = {_text(record) for record in image_records(image) if not _is_zero(record)}
    found.metadata_end = end
    first, *others = images.items()
    found.image_records = len(first[1])
    for node, records in others:
        for text in sorted(first[1] ^ records):
            holder = first[0] if text in first[1] else node
            found.differences.append(
                f"metadata image at {end}: of nodes {first[0]} and {node} only {holder} has {text}"
            )
    if SNAPSHOT_OFTEN.keys() & target.given.keys():
        found.reasons += [f"node {node} has written no snapshot" for node, at in found.snapshots.items() if at == 0]


def _image(home: Path, end: int) -> tuple[int, MetadataImage]:
    """The image at `end`, and where the snapshot ended from which it was read. Errors: Unsettled, OSError, ValueError."""
    ids = [int(found[1]) for path in home.glob("*.checkpoint") if (found := NAME.fullmatch(path.name))]
    snapshot = max((each for each in ids if each <= end), default=0)
    image = MetadataImage()
    path = next(iter(sorted(home.glob(f"{snapshot:020d}-*.checkpoint"))), None)
    if snapshot and path is not None:
        for record in records_in(PosixDisk().open_file(path), path):
            image.apply(record)
    reached = snapshot

    def logged() -> Iterator[tuple[Offset, Message]]:
        nonlocal reached
        for segment in sorted(home.glob("*.log")):
            for batch in read_batches(segment.read_bytes()):
                if not snapshot <= batch.header.base_offset < end:
                    continue
                if batch.header.base_offset != reached:
                    raise Unsettled(f"{home}: the log goes on at {batch.header.base_offset}, not at {reached}")
                reached = batch.header.next_offset
                if not batch.header.is_control:
                    for record in records_of(batch.data):
                        yield record.offset, decode_metadata_record(record.value or b"")

    for offset, record in SettledRecords(logged()):
        image.apply(record, offset)
    if reached != end:
        raise Unsettled(f"{home}: the log ends at {reached}, not at {end}")
    return snapshot, image


def _is_zero(record: Message) -> bool:
    """A feature at level 0 is one that is not finalized; Kafka's snapshots leave it out."""
    return isinstance(record, FeatureLevelRecord) and record.feature_level == 0


def _text(value: Any) -> str:
    """A record in words, with its lists of structures in one order: listeners and features have none."""
    if isinstance(value, Message):
        fields = [f"{each.name}={_text(getattr(value, each.name))}" for each in value.FIELDS]
        return f"{type(value).__qualname__}({', '.join(fields)})"
    if isinstance(value, list):
        structures = any(isinstance(each, Message) for each in value)  # pyright: ignore[reportUnknownVariableType]
        texts = [_text(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
        return f"[{', '.join(sorted(texts) if structures else texts)}]"
    return repr(value)
