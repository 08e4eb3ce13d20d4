"""Replicas and fetchers of a broker of ours, and their steps for Apache Kafka's `ReplicaManager` (Followers.java)."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from reference.controller.configs import Configuration
from reference.controller.image import MetadataImage
from reference.controller.metadata_records import encode_metadata_record
from reference.node.known_topics import TopicChanges
from reference.node.replicas import Replicas
from reference.node.replication import Replication
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from reference.protocol.primitives import BrokerEpoch, NodeId, Offset
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.validate import Origin
from reference.protocol.schema import Message
from reference.replication.fetch_session import Wanted
from reference.replication.fetcher import FetchSettings
from reference.replication.followed import PLACES, Stage
from reference.replication.partition import Partition
from reference.replication.partition_state import Peer
from reference.storage.errors import LogError
from reference.storage.folder_names import partition_of
from reference.storage.log_directory import LogDirectory
from reference.storage.log_manager import LogManager
from reference.storage.simulated_disk import SimulatedDisk
from tests.replication.replicas import NOW

SOURCE = Path(__file__).parent / "java" / "Followers.java"
NODE = NodeId(1)
FETCH_VERSION = 18
BACKOFF_MS = 10_000
SETTINGS = {"log.retention.ms": "-1", "log.cleanup.policy": "delete", "log.index.size.max.bytes": "4096"}

Bound = tuple[int, int]
"""The error and the offset of a ListOffsets response."""


def text(id: UUID) -> str:
    """As Kafka writes an id."""
    return urlsafe_b64encode(id.bytes).decode().rstrip("=")


@dataclass
class Answer:
    """A leader's response to a fetch, and per topic those to ListOffsets for the latest and the earliest offset."""

    fetch: FetchResponse | None
    bounds: dict[str, tuple[Bound, Bound]] = field(default_factory=dict[str, tuple[Bound, Bound]])

    may_wait: bool = False
    """Whether after it one of the two may wait while the other fetches again at once."""


class PairedFollowers:
    """A broker of ours; `steps` are for Kafka's, `ours` has our results."""

    def __init__(self, folder: str) -> None:
        self.now = NOW
        self.steps: list[str] = []
        self.ours: list[dict[str, Any] | None] = []
        self.image = MetadataImage()
        self._disk = SimulatedDisk()
        self._nested: list[dict[str, Any]] | None = None
        self._start()
        self._note("begin", "", folder=folder)

    def _start(self) -> None:
        configuration = Configuration(NODE, SETTINGS, self.image)
        self.directory = LogDirectory(self._disk, Path("/data"))
        logs = LogManager([self.directory])
        logs.load(self.now)
        listener: Any = SimpleNamespace(
            peer_of=self._peer_of,
            on_role=lambda partition, is_new, now: self.replication.on_role(partition),
            on_given_up=lambda partition, now: self.replication.on_given_up(partition),
            on_retention=lambda partition: self.replication.on_retention(partition),
        )
        self.replicas = Replicas(self.image, configuration, logs, listener, self._log, self.now, None)
        context: Any = SimpleNamespace(
            node=NODE,
            configuration=configuration,
            replicas=self.replicas,
            log=self._log,
            purgatories=SimpleNamespace(wake=lambda partition, now: None),
        )
        nothing: Any = None
        settings = FetchSettings(backoff_ms=BACKOFF_MS)
        self.replication = Replication(context, nothing, nothing, lambda: BrokerEpoch(0), settings, self.now)

    def _log(self, level: str, message: str) -> None:
        pass

    def _peer_of(self, broker: NodeId) -> Peer | None:
        found = self.image.brokers.get(broker)
        return None if found is None else Peer(found.epoch)

    def partition(self, topic: str) -> Partition | None:
        return self.replicas.partitions.get((topic, 0))

    # ---- what is noted

    def _note(self, op: str, gave: str, **arguments: Any) -> None:
        row = {"op": op, "now": self.now, **arguments}
        if self._nested is not None:
            self._nested.append(row)
            return
        self.steps.append(json.dumps(row))
        self.ours.append({"answer": gave, **self.state()})

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = {topic: self._state_of(each) for (topic, _), each in self.replicas.partitions.items()}
        found["folders"] = sorted(self._folders())
        return found

    def _folders(self) -> Iterator[str]:
        """The folders of logs. One that no metadata name is called stray if it is not empty, as Kafka renames it at a start."""
        for path in map(Path("/data").joinpath, self._disk.list_folder(Path("/data"))):
            key = partition_of(path.name)
            if key in self.replicas.partitions:
                yield path.name
            elif self._disk.is_folder(path) and not path.name.endswith("-delete"):
                logs = [path / name for name in self._disk.list_folder(path) if name.endswith(".log")]
                if any(self._disk.read_file(each) for each in logs):
                    yield path.name.split(".")[0].removesuffix("-stray") + "-stray"

    def _state_of(self, partition: Partition) -> dict[str, Any]:
        log, topic_id = partition.log, text(partition.topic_id)
        return {
            "id": f"{topic_id} {text(log.topic_id)}",
            "role": f"{'leads' if partition.leading else 'follows'} {partition.leader_epoch} {partition.state.partition_epoch}",
            "end": log.log_end_offset,
            "start": log.log_start_offset,
            "high watermark": partition.high_watermark,
            "last stable": partition.last_stable_offset(),
            "producers": [
                f"{each.producer_id} {each.producer_epoch} {each.last_sequence} {each.current_transaction_start_offset} "
                f"{_or_none(log.last_written[each.producer_id].data_offset)}"
                for each in sorted(log.active_producers(), key=lambda each: each.producer_id)
            ],
            "batches": [
                f"{batch.header.base_offset}-{batch.header.last_offset} {batch.header.leader_epoch} {batch.header.crc}"
                for segment in log._segments
                for batch in segment.batches()
            ],
            "epochs": [f"{epoch} {start}" for epoch, start in log._epochs.entries],
            "fetchers": self._fetchers_of(partition),
        }

    def _fetchers_of(self, partition: Partition) -> list[str]:
        key, found = (partition.topic_id, partition.index), list[str]()
        for leader, fetcher in sorted(self.replication._fetchers.items()):
            followed = fetcher._followed.get(key)
            if followed is not None and followed.is_followed_from(leader):
                delayed = "delayed" if followed.ready_at > self.now else "ready"
                found.append("failed" if followed.stage is Stage.FAILED else f"{leader} {delayed}")
        return found

    # ---- steps

    def apply(self, records: Iterable[Message]) -> None:
        """Apply metadata records that arrive together."""
        changes, written = TopicChanges(self.image), list[str]()
        for record in records:
            written.append(encode_metadata_record(record).hex())
            changes.see(record)
            self.image.apply(record)
        self.replicas.reconcile(self.now, changes.partitions)
        # Kafka ends a fetcher at once that has nothing to fetch; ours ends its session first.
        for leader, fetcher in [*self.replication._fetchers.items()]:
            if not any(each.is_followed_from(leader) for each in fetcher._followed.values()):
                del self.replication._fetchers[leader]
        self._note("delta", "", records=written)

    def restart(self, *, clean: bool, meanwhile: Iterable[Message] = ()) -> None:
        """Stop the process, cleanly or by a kill, and start it again after decisions of the controller."""
        if clean:
            self.replicas._logs.shut_down(self.replicas.high_watermarks(), self.now, BrokerEpoch(1))
        written: list[str] = []
        for record in meanwhile:
            written.append(encode_metadata_record(record).hex())
            self.image.apply(record)
        self._start()
        self.replicas.reconcile(self.now)
        self._note("restart", "", clean=clean, records=written)

    def append(self, topic: str, data: bytearray, origin: Origin) -> None:
        sent, partition = bytes(data).hex(), self.partition(topic)
        assert partition is not None
        try:
            info = partition.produce(data, self.now, required_acks=1, origin=origin)
            answer = f"{info.first_offset}-{info.last_offset}"
        except (KafkaError, LogError, RecordsError) as error:
            answer = ErrorCode(error.code).name
        self._note("append", answer, topic=topic, data=sent, origin=origin.name)

    def delete(self, topic: str, offset: Offset) -> None:
        partition = self.partition(topic)
        assert partition is not None
        self._note("delete", str(partition.delete_records(offset)), topic=topic, offset=offset)

    def roll(self, topic: str) -> None:
        partition = self.partition(topic)
        if partition is not None and partition.log._active.file.size:
            partition.log.roll(self.now)
            self._note("roll", "", topic=topic)

    def retention(self) -> None:
        self.replicas._apply_retention(self.now)
        self._note("retention", "")

    def checkpoint(self, *, high_watermarks: bool) -> None:
        self.directory._checkpoint()
        if high_watermarks:
            self.replicas._checkpoint()
        self._note("checkpoint", "", **{"high watermarks": high_watermarks})

    def elapse(self) -> None:
        self.now += BACKOFF_MS
        self._note("elapse", "")

    @property
    def leaders(self) -> list[NodeId]:
        """The leaders from which the broker fetches."""
        return [*self.replication._fetchers]

    def round(
        self,
        leader: NodeId,
        answer_to: Callable[[dict[str, Wanted], bool], Answer],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """One fetch from a leader, and the two ListOffsets that may follow; the `meanwhile` steps are made before the response.

        `answer_to` gets the partitions in the session by topic, and whether the request was a full one.
        """
        fetcher = self.replication._fetchers[leader]
        request = fetcher.next_request(self.now)
        if not isinstance(request, FetchRequest):
            return
        topics = self.image.topics_by_id
        wanted = {topics[id].name: each for (id, _), each in fetcher.session.partitions.items()}
        asked = {
            topics[
                id
            ].name: f"{text(id)} {each.fetch_offset} {each.leader_epoch} {each.last_fetched_epoch} {each.log_start}"
            for (id, _), each in fetcher.session.partitions.items()
        }
        if not wanted:
            fetcher.answered(FetchResponse(session_id=request.session_id), self.now)
            return
        answer = answer_to(wanted, fetcher.session.is_full)
        outer, self._nested = self._nested, []
        meanwhile()
        nested, self._nested = self._nested, outer
        if self.replication._fetchers.get(leader) is fetcher:
            taken = fetcher.failed(self.now) if answer.fetch is None else fetcher.answered(answer.fetch, self.now)
            self.replication._take(taken, self.now)
            self._answer_bounds(fetcher, answer)
        bounds = {
            topic: {"latest": latest, "earliest": earliest} for topic, (latest, earliest) in answer.bounds.items()
        }
        said = encode(answer.fetch, FETCH_VERSION).hex() if answer.fetch is not None else ""
        rows = ", ".join(f"{name}={each}" for name, each in sorted(asked.items()))
        self._note(
            "round",
            "{" + rows + "}",
            leader=leader,
            answer=said,
            fails=answer.fetch is None,
            bounds=bounds,
            meanwhile=nested,
        )
        if answer.may_wait:
            self.ours[-1] = None
            self.elapse()

    def _answer_bounds(self, fetcher: Any, answer: Answer) -> None:
        while any(
            each.stage in PLACES and each.ready_at <= self.now and each.is_followed_from(fetcher.leader)
            for each in fetcher._followed.values()
        ):
            request = fetcher.next_request(self.now)
            assert isinstance(request, ListOffsetsRequest)
            topics = [
                ListOffsetsResponse.ListOffsetsTopicResponse(
                    name=topic.name, partitions=[_bound(topic.partitions[0].timestamp, answer.bounds[topic.name])]
                )
                for topic in request.topics
            ]
            self.replication._take(fetcher.answered(ListOffsetsResponse(topics=topics), self.now), self.now)


def _or_none(offset: int | None) -> int:
    return -1 if offset is None else offset


def _bound(place: int, bounds: tuple[Bound, Bound]) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
    error, offset = bounds[0 if place == -1 else 1]
    return ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=0, error_code=error, offset=offset)
