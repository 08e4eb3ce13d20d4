"""Following: fetching the leader's log, or its snapshot when the log begins too late. See `quorum` for the whole.

A follower also reports its own entry among the voters to the leader (KIP-853). A voter whose endpoints or levels differ from
the log sends UpdateRaftVoter. With kraft.version 0, where the log has no entries, each voter does so once per leader, which
needs them to raise kraft.version. A controller that is no voter may join by itself (controller.quorum.auto.join.enable). If
there is a voter with its id and another directory, from before it lost its disk, it sends RemoveRaftVoter; then AddRaftVoter.

Source: KIP-595, KIP-630, KIP-853; org.apache.kafka.raft.FollowerState, KafkaRaftClient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar
from uuid import UUID

from reference.controller import quorum_messages as messages
from reference.controller.quorum_member import Member
from reference.controller.quorum_roles import Role
from reference.controller.quorum_rules import successor_delay_ms
from reference.controller.quorum_snapshots import SnapshotId, SnapshotReceipt
from reference.controller.quorum_voters import LEVELS, Voter
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest
from reference.protocol.primitives import AT_ONCE, NO_UUID, LeaderEpoch, NodeId, TimestampMs
from reference.protocol.records.errors import RecordsError
from reference.protocol.schema import Message
from reference.storage.errors import CorruptFile, LogError, StorageError


def become_follower(member: Member, epoch: LeaderEpoch, leader: NodeId, now: TimestampMs) -> None:
    """Follow a known leader: fetch from it."""
    timeout = TimestampMs(now + member.settings.fetch_timeout_ms)
    member.change(Follower(member, timeout, next_report=timeout), member.stored_with(epoch, leader))


def fetch_from_any_voter(member: Member, now: TimestampMs) -> None:
    """Fetch from any voter: if it does not lead, its error response names the leader."""
    if member.requests.any_open:
        return
    known = *member.others, *member.addresses.bootstrap
    candidates = [peer for peer in known if member.requests.may_ask(peer)]
    if candidates:
        peer = candidates[member.chance.randrange(0, len(candidates))]
        member.send(peer, _fetch_request(member), now)


def _fetch_request(member: Member) -> FetchRequest:
    log, settings = member.log, member.settings
    return messages.fetch_request(
        member.asker,
        (log.last_epoch, log.end),
        member.high_watermark,
        max_wait_ms=settings.fetch_max_wait_ms,
        max_bytes=settings.fetch_max_bytes,
    )


@dataclass(slots=True, eq=False)
class Follower:
    """A member that knows its leader: its state and its steps."""

    role: ClassVar[Role] = Role.FOLLOWER
    member: Member
    deadline: TimestampMs
    has_fetched: bool = False
    """Whether the leader has answered a fetch: then this member grants no pre-votes."""
    receipt: SnapshotReceipt | None = None
    """The snapshot that is being fetched; meanwhile no records are fetched."""
    next_report: TimestampMs = AT_ONCE
    """The time from which the leader may be asked again to change this node's entry among the voters."""
    has_reported: bool = False
    """Whether the leader has this node's entry, which is not in the log with kraft.version 0."""

    def end(self) -> None:
        """Drop a partly received snapshot when another role begins."""
        if self.receipt is not None:
            self.receipt.abandon()

    def leader_resigned(self, successors: Sequence[tuple[NodeId, UUID]], now: TimestampMs) -> None:
        """Wait for this member's turn among the preferred successors; a restarted leader names none."""
        member = self.member
        turns = [
            at
            for at, (id, directory) in enumerate(successors)
            if id == member.node and directory in (NO_UUID, member.directory)
        ]
        position = turns[0] if turns else -1 if successors else 0
        most_ms = member.settings.election_backoff_max_ms
        self.deadline = now + successor_delay_ms(position, len(successors), most_ms)
        self.has_fetched = False

    def _is_answered(self, now: TimestampMs) -> None:
        self.deadline = now + self.member.settings.fetch_timeout_ms
        self.has_fetched = True

    # ---- fetching

    def fetch_from_leader(self, now: TimestampMs) -> None:
        """Send a fetch; while the leader does not answer, fetch from another voter, which may know a newer leader.

        A request about this node's own entry goes first, once in each fetch timeout.
        """
        member, leader = self.member, self.member.stored.leader
        request = self._request_for_entry() if now >= self.next_report else None
        if request is not None:
            if member.requests.may_ask(leader):
                self.next_report = TimestampMs(now + member.settings.fetch_timeout_ms)
                member.send(leader, request, now)
            return
        if member.requests.is_pausing(leader):
            fetch_from_any_voter(member, now)
        elif not member.requests.any_open:
            member.send(leader, self._next_request(), now)

    def _next_request(self) -> Message:
        if self.receipt is None:
            return _fetch_request(self.member)
        max_bytes = self.member.settings.snapshot_chunk_bytes
        return messages.fetch_snapshot_request(self.member.asker, self.receipt.id, self.receipt.size, max_bytes)

    def on_fetch(
        self, peer: NodeId, request: FetchRequest, answer: FetchResponse.PartitionData, now: TimestampMs
    ) -> None:
        """Handle the leader's response to a fetch."""
        log = self.member.log
        asked = request.topics[0].partitions[0]
        # The log has changed since the request: the records would be appended at the wrong offset.
        if (asked.last_fetched_epoch, asked.fetch_offset) != (log.last_epoch, log.end):
            return
        if self.apply_fetch(answer, now):
            self._is_answered(now)
        else:
            self.member.requests.pause(peer, now)

    def apply_fetch(self, answer: FetchResponse.PartitionData, now: TimestampMs) -> bool:
        """Apply a fetch response: append records, truncate, or begin to fetch a snapshot; False if it cannot be applied.

        Errors: StorageError.
        """
        if answer.diverging_epoch.epoch >= 0 or answer.diverging_epoch.end_offset >= 0:
            done = self._cut(answer.diverging_epoch, now)
        elif answer.snapshot_id.epoch >= 0 or answer.snapshot_id.end_offset >= 0:
            done = self._begin_snapshot(answer.snapshot_id)
        else:
            done = self._append_fetched(answer, now)
        if done:
            self.member.trace_step("ApplyFetch", {"from": self.member.stored.leader, "to": self.member.node})
        return done

    def _cut(self, diverging: FetchResponse.EpochEndOffset, now: TimestampMs) -> bool:
        member = self.member
        offset = member.log.truncation_offset(diverging.epoch, diverging.end_offset)
        # A sound leader has all committed records: one that lacks some has lost a part of its log.
        if offset < member.high_watermark:
            member.say_error(
                f"the leader of epoch {member.epoch} asks to cut the log at {offset}, below what is "
                f"committed ({member.high_watermark}): refused"
            )
            return False
        if offset >= member.log.end:
            return False
        member.log.truncate(offset, now)
        return True

    def _append_fetched(self, answer: FetchResponse.PartitionData, now: TimestampMs) -> bool:
        member, before = self.member, self.member.log.end
        records = messages.bytes_of(answer.records)
        if records:
            # Fetched records are durable before the next fetch, on every node that may become a voter.
            flushes = member.is_voter or bool(member.settings.endpoints)
            try:
                member.log.append_fetched(records, member.epoch, now, durably=flushes)
            except StorageError:
                raise
            except (RecordsError, LogError) as error:
                member.say_error(f"records of the leader of epoch {member.epoch}: {error}")
            if member.log.end == before:
                return False
        if answer.high_watermark >= 0:
            # At most the own log end, and never lower: a newly elected leader may have a lower one than this member.
            member.high_watermark = max(member.high_watermark, min(answer.high_watermark, member.log.end))
        return True

    # ---- snapshots

    def _begin_snapshot(self, said: FetchResponse.SnapshotId) -> bool:
        member, log = self.member, self.member.log
        id = SnapshotId(said.epoch, said.end_offset)
        # A snapshot replaces the whole log: an older one would remove committed records.
        if id.epoch < 0 or id.end_offset <= member.high_watermark or id <= (log.last_epoch, log.end):
            member.say_error(f"the leader offers snapshot {id.file_name}, which is behind: refused")
            return False
        self.receipt = log.snapshots.receive(id)
        return True

    def on_fetch_snapshot(
        self, peer: NodeId, answer: FetchSnapshotResponse.PartitionSnapshot, is_current: bool, now: TimestampMs
    ) -> None:
        """Handle a response to a request for the next piece; `is_current` is False if only its error is valid."""
        if self.receipt is None:
            return
        if is_current and self._take_piece(self.receipt, answer, now):
            self._is_answered(now)
            return
        # The leader has dropped the snapshot, or sent a wrong piece: fetch again, and learn of another.
        self.receipt.abandon()
        self.receipt = None
        if answer.error_code == ErrorCode.SNAPSHOT_NOT_FOUND:
            self._is_answered(now)
        else:
            self.member.requests.pause(peer, now)

    def _take_piece(
        self, receipt: SnapshotReceipt, answer: FetchSnapshotResponse.PartitionSnapshot, now: TimestampMs
    ) -> bool:
        """Append the next piece of a snapshot, and install it after the last one. False if the piece does not fit."""
        data = messages.bytes_of(answer.unaligned_records)
        id = SnapshotId(answer.snapshot_id.epoch, answer.snapshot_id.end_offset)
        # A late response to an earlier request: pieces are only accepted in order.
        if id != receipt.id or answer.position != receipt.size:
            return False
        if not data or receipt.size + len(data) > answer.size:
            return False
        receipt.append(data)
        return receipt.size < answer.size or self._install(receipt, now)

    def _install(self, receipt: SnapshotReceipt, now: TimestampMs) -> bool:
        member = self.member
        try:
            member.log.install(receipt, now)
        except (CorruptFile, ValueError) as error:
            member.say_error(str(error))
            return False
        self.receipt = None
        member.high_watermark = max(member.high_watermark, receipt.id.end_offset)
        member.snapshot_notice = True
        member.trace_step("ApplyFetch", {"from": member.stored.leader, "to": member.node, "snapshot": True})
        return True

    # ---- its own entry among the voters

    def _request_for_entry(self) -> Message | None:
        """The request about this node's entry; None if the entry is right, or not for this node to change."""
        member, settings = self.member, self.member.settings
        if not settings.endpoints:
            return None
        own = Voter(member.node, member.directory, settings.endpoints, LEVELS)
        found = member.voters.get(member.node)
        if member.kraft_version == 0:
            return self._update_request(own) if member.is_voter and self._reports_to_static_leader() else None
        if member.is_voter:
            return None if found == own else self._update_request(own)
        if not settings.auto_join:
            return None
        if found is not None:
            return RemoveRaftVoterRequest(
                cluster_id=member.cluster_id, voter_id=found.id, voter_directory_id=found.directory
            )
        return AddRaftVoterRequest(
            cluster_id=member.cluster_id,
            timeout_ms=settings.request_timeout_ms,
            voter_id=own.id,
            voter_directory_id=own.directory,
            listeners=[
                AddRaftVoterRequest.Listener(name=each.listener, host=each.host, port=each.port)
                for each in own.endpoints
            ],
            ack_when_committed=False,
        )

    def _reports_to_static_leader(self) -> bool:
        """Whether to report with kraft.version 0. Releases before 4.1 refuse that; without pre-votes the voters are older than
        4.0."""
        return self.member.is_static and self.member.settings.pre_vote and not self.has_reported

    def _update_request(self, own: Voter) -> UpdateRaftVoterRequest:
        lowest, highest = own.levels
        return UpdateRaftVoterRequest(
            cluster_id=self.member.cluster_id,
            current_leader_epoch=self.member.epoch,
            voter_id=own.id,
            voter_directory_id=own.directory,
            listeners=[
                UpdateRaftVoterRequest.Listener(name=each.listener, host=each.host, port=each.port)
                for each in own.endpoints
            ],
            k_raft_version_feature=UpdateRaftVoterRequest.KRaftVersionFeature(
                min_supported_version=lowest, max_supported_version=highest
            ),
        )

    def on_update_raft_voter(self, now: TimestampMs) -> None:
        """Note that the leader has this node's entry, or does not support the request."""
        self.has_reported = True
        self._is_answered(now)
