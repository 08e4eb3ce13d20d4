"""A partition of ours, and the same steps for Apache Kafka's `Partition` (Partitions.java)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.records.batch import read_batches
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.validate import Origin
from reference.replication.follower import Following
from reference.replication.partition import Partition, PartitionState
from reference.replication.partition_state import Peer
from reference.replication.proposal import AcceptedIsr, Proposal
from reference.replication.reading import FollowerFetch, Read
from reference.storage.config import LogConfig
from reference.storage.errors import LogError
from tests.replication.replicas import LAG_MS, NOW, Registry, bytes_of, nodes, open_log

SOURCE = Path(__file__).parent / "java" / "Partitions.java"
NODE = NodeId(1)
OTHERS = nodes(2, 3, 4)
ISOLATIONS = {"READ_COMMITTED": (True, False), "READ_UNCOMMITTED": (False, False), "": (False, True)}


def java_map(values: dict[int, Any]) -> str:
    return "{" + ", ".join(f"{key}={value}" for key, value in sorted(values.items())) + "}"


def spans(data: Any) -> str:
    return "[" + ", ".join(f"{each.base_offset}-{each.last_offset}" for each in headers(data)) + "]"


def headers(data: Any) -> list[Any]:
    return [batch.header for batch in read_batches(bytes_of(data))]


@dataclass
class PairedPartition:
    """A partition of ours; `steps` are for Kafka's, `ours` has our results, None where they are not compared."""

    topic: str
    min_isr: int
    now: TimestampMs = NOW
    proposals: list[Proposal] = field(default_factory=list[Proposal])
    """Proposals without a response."""
    steps: list[str] = field(default_factory=list[str])
    ours: list[dict[str, Any] | None] = field(default_factory=list[dict[str, Any] | None])

    def __post_init__(self) -> None:
        self.registry = Registry((NODE, *OTHERS))
        self._log = open_log(config=LogConfig(retention_ms=-1, cleanup_policy="delete"))
        self.partition = Partition(
            self.topic,
            UUID(int=7),
            0,
            self._log,
            NODE,
            brokers=self.registry,
            lag_max_ms=LAG_MS,
            min_isr=self.min_isr,
        )
        self.do("begin", lambda: None, topic=self.topic, id=7, lag=LAG_MS, **self._config())
        self.register(NODE, self.registry.peers[NODE])

    def do(self, op: str, step: Callable[[], Any], *, is_compared: bool = True, **arguments: Any) -> str:
        self.steps.append(json.dumps({"op": op, "now": self.now, **arguments}))
        try:
            found = step()
            answer = found if isinstance(found, str) else ""
        except (KafkaError, LogError, RecordsError) as error:
            answer = ErrorCode(error.code).name
        state = {"answer": answer, **self._state()}
        self.ours.append(state if is_compared and self.partition.role is not None else None)
        return answer

    def _state(self) -> dict[str, Any]:
        partition, log = self.partition, self.partition.log
        found: dict[str, Any] = {
            "end": log.log_end_offset,
            "start": log.log_start_offset,
            "high watermark": partition.high_watermark,
            "last stable": partition.last_stable_offset(),
            "leader epoch": partition.leader_epoch,
            "partition epoch": partition.state.partition_epoch,
            "proposals": self._sent(),
            "batches": [
                f"{batch.header.base_offset}-{batch.header.last_offset} {batch.header.leader_epoch}"
                for segment in log._segments
                for batch in segment.batches()
            ],
        }
        leading = partition.leading
        if leading is None:
            return found
        pending = leading.pending.isr if leading.pending is not None else ()
        isr = {*partition.state.isr}
        return found | {
            "low watermark": leading.low_watermark(),
            "isr": sorted(isr),
            "maximal isr": sorted(isr | {*pending}),
            "in flight": leading.pending is not None,
            "lagging": self.lagging(),
            "under min isr": leading.is_under_min_isr,
            "followers": {
                str(node): f"{each.end} {each.log_start} {max(0, each.last_caught_up)} {each.broker_epoch}"
                for node, each in leading.followers.items()
            },
        }

    def lagging(self) -> list[int]:
        leading = self.partition.leading
        if leading is None or leading.pending is not None:
            return []
        return [each for each in sorted(self.partition.state.isr) if each != NODE and leading._lags(each, self.now)]

    def _sent(self) -> list[str]:
        proposal = self.partition.leading.take_proposal() if self.partition.leading is not None else None
        if proposal is None:
            return []
        self.proposals.append(proposal)
        members = java_map(dict(zip(proposal.isr, proposal.broker_epochs, strict=True)))
        return [f"{proposal.leader_epoch} {proposal.partition_epoch} {members}"]

    # ---- metadata

    def _config(self) -> dict[str, Any]:
        settings = {"min.insync.replicas": self.min_isr, "cleanup.policy": "delete", "retention.ms": -1}
        return {"config": {name: str(value) for name, value in settings.items()}}

    def configure(self, min_isr: int) -> None:
        self.min_isr = min_isr
        self.do("configure", lambda: self.partition.learn_min_isr(min_isr), **self._config())

    def register(self, node: int, peer: Peer | None) -> None:
        if peer is None:
            self.registry.peers.pop(node, None)
        else:
            self.registry.peers[node] = peer
        rows = [
            {"id": id, "epoch": each.broker_epoch, "fenced": each.is_fenced, "leaves": each.is_shutting_down}
            for id, each in sorted(self.registry.peers.items())
        ]
        self.do("brokers", lambda: None, brokers=rows)

    def take_up(self, state: PartitionState) -> None:
        arguments: dict[str, Any] = {
            name: [*getattr(state, name)] for name in ("replicas", "isr", "adding", "removing")
        }
        arguments |= {"leader": state.leader, "epoch": state.leader_epoch, "partition epoch": state.partition_epoch}
        self.do(
            "state",
            lambda: self.partition.take_up(state, self.now),
            **arguments,
        )

    def answer(self, error: ErrorCode, accepted: AcceptedIsr | None = None, *, is_compared: bool = True) -> None:
        proposal, leading = self.proposals.pop(0), self.partition.leading

        def step() -> None:
            if leading is not None:
                leading.proposal_answered(proposal, error, self.now, accepted)

        said: dict[str, Any] = {}
        if accepted is not None:
            said = {"epoch": accepted.leader_epoch, "partition epoch": accepted.partition_epoch, "isr": [*accepted.isr]}
        self.do("answer", step, is_compared=is_compared, error=error.name, **said)

    def shrink(self) -> None:
        leading = self.partition.leading
        self.do("shrink", lambda: leading.shrink_isr(self.now) if leading is not None else None)

    # ---- records

    def append(self, data: bytearray, acks: int, origin: Origin) -> None:
        sent = bytes(data).hex()

        def step() -> str:
            info = self.partition.produce(data, self.now, required_acks=acks, origin=origin)
            return f"{info.first_offset}-{info.last_offset}"

        self.do("append", step, data=sent, acks=acks, origin=origin.name)

    def take(self, data: bytes, high_watermark: int, start: int) -> None:
        """Handle the leader's response to a fetch from the log end offset."""
        end, state = self.partition.log.log_end_offset, self.partition.state

        def step() -> None:
            following = self.partition.require_follower_of(state.leader)
            following.append_fetched(end, data, Offset(high_watermark), Offset(start), self.now)

        arguments = {"offset": end, "epoch": state.leader_epoch, "high watermark": high_watermark, "start": start}
        self.do("take", step, data=data.hex(), **arguments)

    def truncate(self, offset: int) -> None:
        self.do("truncate", lambda: self._followed()._cut(Offset(offset)), offset=offset)

    def start_over(self, offset: int) -> None:
        self.do("start over", lambda: self._followed().start_over_at(Offset(offset), self.now), offset=offset)

    def _followed(self) -> Following:
        return self.partition.require_follower_of(self.partition.state.leader)

    # ---- requests

    def follower_fetch(self, asked: FollowerFetch, *, counts: bool) -> None:
        def step() -> str:
            leading = self.partition.require_leader(asked.asked_epoch)
            return self._read(leading.answer_fetch(asked, self.now) if counts else leading.read_as_follower(asked))

        self.do(
            "fetch",
            step,
            replica=asked.follower,
            **{"broker epoch": asked.broker_epoch, "last epoch": asked.last_fetched_epoch},
            offset=asked.offset,
            start=asked.log_start,
            epoch=asked.asked_epoch,
            counts=counts,
            committed=False,
            any=False,
        )

    def consumer_fetch(self, offset: int, epoch: int, last_epoch: int, *, committed: bool, from_any: bool) -> None:
        def step() -> str:
            found = self.partition.read(
                Offset(offset),
                max_bytes=1 << 20,
                minimum_one=True,
                committed=committed,
                asked_epoch=LeaderEpoch(epoch),
                last_epoch=LeaderEpoch(last_epoch),
                from_any_replica=from_any,
            )
            return self._read(found)

        epochs: dict[str, Any] = {"broker epoch": -1, "last epoch": last_epoch}
        self.do(
            "fetch",
            step,
            replica=-1,
            **epochs,
            offset=offset,
            start=-1,
            epoch=epoch,
            counts=False,
            committed=committed,
            any=from_any,
        )

    def _read(self, read: Read) -> str:
        diverging = "-" if read.diverging is None else f"{read.diverging[0]} {read.diverging[1]}"
        last = max((each.last_offset for each in headers(read.records)), default=-1)
        aborted = ", ".join(
            f"{each.producer_id}@{each.first_offset}" for each in read.aborted or () if each.first_offset <= last
        )
        return (
            f"{read.high_watermark} {read.last_stable_offset} {read.log_start_offset} diverging {diverging} "
            f"{spans(read.records)} aborted [{aborted}]"
        )

    def find(self, timestamp: int, isolation: str, epoch: int) -> None:
        committed, for_replica = ISOLATIONS[isolation]

        def step() -> str:
            leading = self.partition.require_leader(LeaderEpoch(epoch))
            found = leading.list_offset(TimestampMs(timestamp), committed, for_replica=for_replica)
            return f"{found.offset} {found.timestamp} {found.leader_epoch}"

        self.do("find", step, timestamp=timestamp, isolation=isolation, epoch=epoch)

    def end_of_epoch(self, epoch: int, of: int) -> None:
        def step() -> str:
            found = self.partition.require_leader(LeaderEpoch(epoch)).offset_for_leader_epoch(LeaderEpoch(of))
            return f"{found[0]} {found[1]}"

        self.do("end of epoch", step, epoch=epoch, of=of)

    def delete(self, offset: int) -> None:
        self.do("delete", lambda: str(self.partition.delete_records(Offset(offset))), offset=offset)

    def acknowledge(self, offset: int) -> None:
        def step() -> str:
            code = self.partition.require_leader().answer_to_produce(Offset(offset))
            return "waits" if code is None else code.name

        self.do("acknowledge", step, offset=offset)
