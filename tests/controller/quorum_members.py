"""Quorum members under a test's control: it decides which messages arrive, and when."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from reference.controller import quorum_messages as messages
from reference.controller.image import Endpoint
from reference.controller.quorum import Quorum
from reference.controller.quorum_roles import Role
from reference.controller.quorum_settings import QuorumSettings
from reference.controller.quorum_snapshots import format_voters
from reference.controller.quorum_voters import FEATURE, LEVELS, Entry, Voter, VoterSet, voter_records
from reference.protocol.codec import decode, encode
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.topic_record import TopicRecord
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from reference.protocol.messages.vote import VoteRequest
from reference.protocol.primitives import NO_UUID, LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.schema import Message
from reference.storage.config import LogConfig
from reference.storage.log_directory import METADATA_TOPIC, METADATA_TOPIC_ID, LogDirectory
from reference.storage.simulated_disk import SimulatedDisk

CLUSTER = "a-cluster"
FOLDER = Path("/data")
LOG_FOLDER = FOLDER / f"{METADATA_TOPIC}-0"
OF_METADATA = DescribeQuorumRequest(
    topics=[
        DescribeQuorumRequest.TopicData(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequest.PartitionData(partition_index=0)]
        )
    ]
)
CONFIG = LogConfig(retention_ms=-1, max_message_bytes=1 << 20, segment_bytes=600, segment_index_bytes=240)


def topic(number: int) -> TopicRecord:
    """A metadata record that can be distinguished from others."""
    return TopicRecord(name=f"t{number}", topic_id=UUID(int=number))


def copied(message: Message) -> Any:
    """The message after it was encoded and decoded."""
    version = type(message).VERSIONS.highest
    return decode(type(message), version, encode(message, version))


class Turns(Random):
    """A random source with which members become candidates in the order of their ids."""

    def __init__(self, id: int) -> None:
        super().__init__()
        self._id = id

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        assert stop is not None
        return start + (stop - start) * self._id // 10


class Members:
    """Voters 0 to n - 1, and observers with the next ids; the test starts each."""

    def __init__(
        self,
        voters: int = 3,
        observers: int = 0,
        *,
        changing: bool = False,
        reporting: bool = False,
        **settings: Any,
    ) -> None:
        """`changing` voters are in the log (KIP-853), not in the configuration; those that may come to be there report."""
        self.now = TimestampMs(1_000_000)
        named = changing or reporting
        self.directories = {id: UUID(int=id + 1) if named else NO_UUID for id in range(voters + observers)}
        self._reporting = reporting
        self._changing = changing
        self.settings = QuorumSettings(tuple(map(NodeId, range(voters))), **settings)
        self.ids = range(voters + observers)
        self.disks = [SimulatedDisk() for _ in self.ids]
        self.quorums: dict[int, Quorum] = {}
        self.levels: tuple[int, int] = LEVELS
        """The levels of kraft.version that a new voter reports."""
        self.answers: list[tuple[object, Any]] = []
        self.traces: list[tuple[int, str]] = []
        self.sayings: list[str] = []
        self.reaches: Callable[[int, int], bool] = lambda sender, receiver: True
        for disk in self.disks:
            disk.make_folder(FOLDER)
            disk.sync_folder(FOLDER.parent)
        if changing:
            first = VoterSet(self.voter(id) for id in range(voters))
            for disk in self.disks[:voters]:
                format_voters(disk, LOG_FOLDER, voter_records(Entry(Offset(-1), first, 1)), self.now)
                disk.sync_folder(FOLDER)

    def __getitem__(self, id: int) -> Quorum:
        return self.quorums[id]

    def voter(self, id: int) -> Voter:
        """The entry of a member among changing voters."""
        return Voter(NodeId(id), self.directories[id], (Endpoint("CONTROLLER", f"node-{id}", 9093),), LEVELS)

    def settings_of(self, id: int) -> QuorumSettings:
        """The settings of a member; with changing voters its bootstrap server is node 0, for node 0 node 1."""
        if not self._changing:
            return replace(self.settings, endpoints=self.voter(id).endpoints) if self._reporting else self.settings
        bootstrap = ((f"node-{0 if id else 1}", 9093),)
        return replace(self.settings, voters=(), endpoints=self.voter(id).endpoints, bootstrap=bootstrap)

    def replace_disk(self, id: int) -> None:
        """A stopped member begins again with an empty disk, which is another directory."""
        self.disks[id] = SimulatedDisk()
        self.disks[id].make_folder(FOLDER)
        self.disks[id].sync_folder(FOLDER.parent)
        self.directories[id] = UUID(int=self.directories[id].int + 100)

    def start(self, *ids: int) -> None:
        """Start members on their disks."""
        for id in ids:
            logs = LogDirectory(self.disks[id], FOLDER)
            logs.load(self.now)
            log = logs.get_or_create(METADATA_TOPIC, 0, METADATA_TOPIC_ID, CONFIG, self.now)
            self.quorums[id] = Quorum(
                NodeId(id),
                CLUSTER,
                self.settings_of(id),
                self.disks[id],
                log,
                Turns(id),
                self.now,
                directory=self.directories[id],
                say=lambda level, message: self.sayings.append(f"{level}: {message}"),
                trace=lambda action, fields, id=id: self.traces.append((id, action)),
            )

    def lose_power(self, *ids: int) -> None:
        """Stop members and lose their data that was not flushed."""
        for id in ids:
            del self.quorums[id]
            self.disks[id].lose_power(Random(7))

    def deliver(self, rounds: int = 200) -> None:
        """Deliver messages until none is left; a waiting fetch stays open."""
        for _ in range(rounds):
            moved = [self._carry(id) for id in list(self.quorums)]
            if not any(moved):
                return
        raise AssertionError("messages without end")

    def _carry(self, id: int) -> bool:
        sends = self.quorums[id].take_sends()
        for peer, request in sends:
            target = self._reached(id, peer)
            if target not in self.quorums or not self.reaches(id, target):
                self.quorums[id].unreachable(peer, request, self.now)
                continue
            response = self.ask(target, copied(request), (id, peer, request))
            if response is not None:
                self.quorums[id].receive(peer, request, copied(response), self.now)
        answers = self.quorums[id].take_answers()
        for token, response in answers:
            if isinstance(token, tuple):
                asker, peer, request = token
                if asker in self.quorums and self.reaches(self._reached(asker, peer), asker):
                    self.quorums[asker].receive(peer, request, copied(response), self.now)
            else:
                self.answers.append((token, response))
        return bool(sends or answers)

    def _reached(self, id: int, peer: int) -> int:
        """The member that a peer id stands for; with changing voters the one at the address known for it."""
        address = self.quorums[id].address_of(NodeId(peer)) if self._changing else None
        return peer if address is None else int(address[0].removeprefix("node-"))

    def ask(self, id: int, request: Message, token: object = None) -> Any:
        """A member's answer; None for a fetch, whose answer comes by its token."""
        quorum = self.quorums[id]
        handlers: Any = {
            VoteRequest: quorum.handle_vote,
            BeginQuorumEpochRequest: quorum.handle_begin_quorum_epoch,
            EndQuorumEpochRequest: quorum.handle_end_quorum_epoch,
            FetchSnapshotRequest: quorum.handle_fetch_snapshot,
        }
        if isinstance(request, FetchRequest | AddRaftVoterRequest | RemoveRaftVoterRequest):
            handle: Any = {
                FetchRequest: quorum.handle_fetch,
                AddRaftVoterRequest: quorum.handle_add_raft_voter,
                RemoveRaftVoterRequest: quorum.handle_remove_raft_voter,
            }[type(request)]
            handle(request, token, self.now)
            return None
        if isinstance(request, UpdateRaftVoterRequest):
            return quorum.handle_update_raft_voter(request, "CONTROLLER", self.now)
        if isinstance(request, ApiVersionsRequest):
            levels = ApiVersionsResponse.SupportedFeatureKey(
                name=FEATURE, min_version=self.levels[0], max_version=self.levels[1]
            )
            return ApiVersionsResponse(supported_features=[levels])
        return handlers[type(request)](request, self.now)

    def fetch(self, id: int, request: FetchRequest) -> Any:
        """The answer to a fetch that need not wait. Errors: AssertionError when it does."""
        token = object()
        self.quorums[id].handle_fetch(request, token, self.now)
        found = [response for given, response in self.quorums[id].take_answers() if given is token]
        assert len(found) == 1, found
        return found[0]

    def pass_time(self, ms: int, step: int = 10) -> None:
        """Let time pass, and deliver messages at once."""
        for _ in range(0, ms, step):
            self.now += step
            for quorum in list(self.quorums.values()):
                quorum.tick(self.now)
            self.deliver()

    def elect(self, id: int) -> Quorum:
        """Let time pass for one member alone until it stands, and the others vote."""
        quorum = self.quorums[id]
        for _ in range(1000):
            self.now += 10
            quorum.tick(self.now)
            self.deliver()
            if quorum.role is Role.LEADER:
                return quorum
        raise AssertionError(f"member {id} is {quorum.role.value}")

    def names(self, id: int) -> list[str]:
        """The committed records of a member, by their names."""
        start = self.quorums[id].log_start_offset
        return [record.name for _, record in self.quorums[id].committed(start) if isinstance(record, TopicRecord)]


def asker_of(node: int, epoch: int, cluster: str = CLUSTER) -> messages.Asker:
    return messages.Asker(cluster, NodeId(node), NO_UUID, LeaderEpoch(epoch))


def vote(
    candidate: int = 1,
    epoch: int = 5,
    *,
    voter: int = 0,
    last: tuple[int, int] = (4, 100),
    pre_vote: bool = False,
    cluster: str = CLUSTER,
) -> VoteRequest:
    asker, end = asker_of(candidate, epoch, cluster), (LeaderEpoch(last[0]), Offset(last[1]))
    return messages.vote_request(asker, NodeId(voter), end, pre_vote=pre_vote)


def asked_vote(members: Members, request: VoteRequest) -> tuple[int, bool]:
    """Error and whether the vote was granted, by member 0."""
    partition = members.ask(0, request).topics[0].partitions[0]
    return partition.error_code, partition.vote_granted


def fetch(
    replica: int = 1, epoch: int = 1, *, last: tuple[int, int] = (0, 0), known: int = 2**62, wait_ms: int = 0
) -> FetchRequest:
    asker, end = asker_of(replica, epoch), (LeaderEpoch(last[0]), Offset(last[1]))
    return messages.fetch_request(asker, end, Offset(known), max_wait_ms=wait_ms, max_bytes=1 << 20)


def levels(lowest: int, highest: int) -> UpdateRaftVoterRequest.KRaftVersionFeature:
    return UpdateRaftVoterRequest.KRaftVersionFeature(min_supported_version=lowest, max_supported_version=highest)


def part(response: Any) -> Any:
    return response.responses[0].partitions[0]


def stand(members: Members, id: int, *, voter: int) -> None:
    """Let one other voter elect a member, from which none has fetched yet."""
    quorum = members[id]
    for _ in range(2000):
        members.now += 5
        quorum.tick(members.now)
        for peer, request in quorum.take_sends():
            if peer == voter and not isinstance(request, FetchRequest) and not quorum.is_leader:
                quorum.receive(peer, request, members.ask(voter, request), members.now)
        if quorum.is_leader:
            return
    raise AssertionError(f"member {id} was not elected")
