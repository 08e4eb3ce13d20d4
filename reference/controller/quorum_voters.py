"""The voters of the quorum, and how they change: one voter at a time, by records of the log (KIP-853).

A *voter* is a node with one data directory. The same node with a new disk is another voter, because it has lost its votes and
its log. A voter set is in force when a member appends it, committed or not; a truncation restores the former set. If two sets
differ by one voter, any two majorities of them have a member in common.

With kraft.version 0 the voters are those of the configuration, which has no directories: a node is a voter with any directory.
Source: KIP-853; org.apache.kafka.raft.VoterSet, internals.VoterSetHistory, KRaftControlRecordStateMachine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from reference.controller.image import Endpoint
from reference.protocol.messages.k_raft_version_record import KRaftVersionRecord
from reference.protocol.messages.voters_record import VotersRecord
from reference.protocol.primitives import NO_OFFSET, NO_UUID, NodeId, Offset
from reference.protocol.records.control import ControlType
from reference.protocol.schema import Message

FEATURE = "kraft.version"
LEVELS = (0, 1)
"""The supported levels of kraft.version; since 1 the voters are in the log."""


@dataclass(frozen=True, slots=True)
class Voter:
    """One voter; a voter of the configuration has no directory, no endpoints and no levels."""

    id: NodeId
    directory: UUID = NO_UUID
    endpoints: tuple[Endpoint, ...] = ()
    levels: tuple[int, int] = (0, 0)

    def is_replica(self, id: NodeId, directory: UUID) -> bool:
        """Whether a node with a directory is this voter."""
        return self.id == id and self.directory in (NO_UUID, directory)

    def __str__(self) -> str:
        return f"{self.id} with directory {self.directory}"


class VoterSet:
    """An immutable set of voters, by id."""

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._voters = {voter.id: voter for voter in voters}
        self.ids = tuple(self._voters)
        self.majority = len(self.ids) // 2 + 1
        """The size of a majority."""

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._voters.values())

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id: object) -> bool:
        return id in self._voters

    def __str__(self) -> str:
        return ", ".join(map(str, self._voters.values())) or "none"

    def get(self, id: NodeId) -> Voter | None:
        return self._voters.get(id)

    def is_voter(self, id: NodeId, directory: UUID) -> bool:
        """Whether a node with a directory is one of the voters."""
        found = self._voters.get(id)
        return found is not None and found.is_replica(id, directory)

    def directory_of(self, id: NodeId) -> UUID:
        found = self._voters.get(id)
        return NO_UUID if found is None else found.directory

    def added(self, voter: Voter) -> VoterSet | None:
        """The set with one more voter; None if its id is a voter already, with any directory."""
        return None if voter.id in self._voters else VoterSet([*self._voters.values(), voter])

    def removed(self, id: NodeId, directory: UUID) -> VoterSet | None:
        """The set without a voter; None if there is no such voter, or no other."""
        found = self._voters.get(id)
        if found is None or found.directory != directory or len(self) == 1:
            return None
        return VoterSet(voter for voter in self._voters.values() if voter.id != id)

    def updated(self, voter: Voter) -> VoterSet | None:
        """The set with a voter's new endpoints and levels; None if there is no such voter."""
        if not self.is_voter(voter.id, voter.directory):
            return None
        return VoterSet(voter if each.id == voter.id else each for each in self._voters.values())

    def overlaps(self, other: VoterSet) -> bool:
        """Whether any two majorities of the sets have a voter in common: each has at most one voter that the other lacks."""
        ours = {(voter.id, voter.directory) for voter in self._voters.values()}
        theirs = {(voter.id, voter.directory) for voter in other._voters.values()}
        return len(ours - theirs) <= 1 and len(theirs - ours) <= 1

    def record(self) -> VotersRecord:
        """The set as a record for the log."""
        return VotersRecord(
            voters=[
                VotersRecord.Voter(
                    voter_id=voter.id,
                    voter_directory_id=voter.directory,
                    endpoints=[
                        VotersRecord.Endpoint(name=each.listener, host=each.host, port=each.port)
                        for each in voter.endpoints
                    ],
                    k_raft_version_feature=VotersRecord.KRaftVersionFeature(
                        min_supported_version=voter.levels[0], max_supported_version=voter.levels[1]
                    ),
                )
                for voter in self._voters.values()
            ]
        )

    @staticmethod
    def of_record(record: VotersRecord) -> VoterSet:
        return VoterSet(
            Voter(
                each.voter_id,
                each.voter_directory_id,
                endpoints_of(each.endpoints),
                (each.k_raft_version_feature.min_supported_version, each.k_raft_version_feature.max_supported_version),
            )
            for each in record.voters
        )


class NamedEndpoint(Protocol):
    """An endpoint as in AddRaftVoter, UpdateRaftVoter, BeginQuorumEpoch and VotersRecord."""

    name: str
    host: str
    port: int


def endpoints_of(endpoints: Sequence[NamedEndpoint]) -> tuple[Endpoint, ...]:
    """The endpoints of a message, with listener names in capitals."""
    return tuple(Endpoint(each.name.upper(), each.host, each.port) for each in endpoints)


class Entry(NamedTuple):
    """The voters and the level in force from an offset on; -1 for those that the node was formatted with."""

    offset: Offset
    voters: VoterSet
    level: int
    voters_offset: Offset = NO_OFFSET
    """The offset of the voters' record."""


class VoterHistory:
    """The voters and kraft.version in the log and its snapshot, by offset."""

    def __init__(self, configured: Iterable[NodeId]) -> None:
        """`configured` are the voters of the configuration, which are in force if the log has none."""
        self._first = Entry(NO_OFFSET, VoterSet(map(Voter, configured)), 0)
        self._entries: list[Entry] = []
        self._latest = self._first

    @property
    def voters(self) -> VoterSet:
        """The latest set, committed or not."""
        return self._latest.voters

    @property
    def level(self) -> int:
        """The latest kraft.version, committed or not."""
        return self._latest.level

    @property
    def offset(self) -> Offset:
        """The offset of the latest voters' record; -1 if the log has none."""
        return self._latest.voters_offset

    @property
    def before(self) -> VoterSet:
        """The set before the latest one; the configuration's if the log has no earlier one."""
        return self.at(Offset(self.offset - 1)).voters

    def at(self, offset: Offset) -> Entry:
        """The entry in force at an offset, including the record there."""
        return next((entry for entry in reversed(self._entries) if entry.offset <= offset), self._first)

    def take(self, offset: Offset, record: Message) -> None:
        """Add a control record of the log. Errors: ValueError for voters that differ from the former set by more than one."""
        latest = self._latest
        if isinstance(record, KRaftVersionRecord):
            entry = Entry(offset, latest.voters, record.k_raft_version, latest.voters_offset)
        elif isinstance(record, VotersRecord):
            voters = VoterSet.of_record(record)
            if latest.voters_offset >= 0 and not latest.voters.overlaps(voters):
                raise ValueError(f"voters {voters} at offset {offset} differ by more than one from {latest.voters}")
            entry = Entry(offset, voters, latest.level, offset)
        else:
            return
        self._entries = [each for each in self._entries if each.offset < offset] + [entry]
        self._latest = entry

    def truncate(self, end: Offset) -> None:
        """Drop the entries at or above the log's new end."""
        self._entries = [entry for entry in self._entries if entry.offset < end]
        self._latest = self._entries[-1] if self._entries else self._first

    def forget_before(self, start: Offset) -> None:
        """Drop the entries below the log's new start, except the one in force there."""
        kept = self.at(start)
        self._entries = [entry for entry in self._entries if entry is kept or entry.offset > start]

    def clear(self) -> None:
        """Drop all entries, before another snapshot is loaded."""
        self._entries = []
        self._latest = self._first


VOTER_RECORDS: dict[int, type[Message]] = {
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
"""The control records about voters."""


def voter_records(entry: Entry) -> list[tuple[ControlType, Message]]:
    """The control records that set an entry's level and voters; none with the configuration's voters."""
    if entry.level == 0:
        return []
    return [
        (ControlType.KRAFT_VERSION, KRaftVersionRecord(k_raft_version=entry.level)),
        (ControlType.KRAFT_VOTERS, entry.voters.record()),
    ]
