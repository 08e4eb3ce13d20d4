"""Leading: appending, committing, and serving those that fetch. See `quorum` for the whole.

Source: KIP-595, KIP-630, KIP-1166; org.apache.kafka.raft.LeaderState.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from reference.controller import quorum_messages as messages
from reference.controller.metadata_records import NEWEST_LEVEL
from reference.controller.quorum_log import Verdict
from reference.controller.quorum_member import PARTITION_NAME, Waiting
from reference.controller.quorum_raising import Raising
from reference.controller.quorum_roles import NEVER, Leader, Progress, Resigned
from reference.controller.quorum_rules import majority_end, next_commit
from reference.controller.quorum_snapshots import BOOTSTRAP, SnapshotId
from reference.controller.quorum_state import QuorumState
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from reference.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from reference.protocol.primitives import FIRST_OFFSET, NO_NODE, NO_OFFSET, NodeId, Offset, TimestampMs
from reference.protocol.records.errors import RecordsError
from reference.protocol.schema import Message
from reference.storage.errors import LogError, StorageError

MAX_WAITING = 1000
"""Fetches that wait at a leader; more are answered at once, with nothing."""

MAX_OBSERVERS = 1000
"""Members without a vote that a leader remembers."""

OBSERVER_SESSION_MS = 300_000
"""After this time without a fetch an observer is forgotten (LeaderState.OBSERVER_SESSION_TIMEOUT_MS)."""


class Leading(Raising):
    """The leader's part: appending, committing, serving fetches, resigning."""

    def _become_leader(self, granting: set[NodeId], now: TimestampMs) -> None:
        """Lead the epoch: its first record makes all before it committable."""
        settings = self.settings
        state = Leader(
            epoch_start=self._log.end,
            check_quorum_at=now + settings.check_quorum_ms if self._others else NEVER,
            begin_epoch_at=now if self._others else NEVER,
            voters={voter: Progress(self._voters.directory_of(voter)) for voter in self._others},
        )
        self._change(state, QuorumState(self.node, self.epoch, self._stored.voted))
        self._trace_step("BecomeLeader")
        try:
            more = self._voters_at_start()
            self._log.begin_epoch(self.epoch, self.node, self._voters.ids, sorted(granting), now, more)
        except StorageError:
            self._become_resigned(state, now)
            raise
        self._trace_step("AppendRecord")
        self._advance_high_watermark(state, now)

    def _lead(self, state: Leader, now: TimestampMs) -> None:
        self._expire_change(state, now)
        if now >= state.check_quorum_at:
            self._say("warning", f"{PARTITION_NAME}: no majority fetches in epoch {self.epoch}: resigned")
            self._become_resigned(state, now)
        elif now >= state.begin_epoch_at:
            state.begin_epoch_at = now + self.settings.begin_epoch_ms
            for voter, progress in state.voters.items():
                silent = progress.last_fetch < 0 or now - progress.last_fetch >= self.settings.begin_epoch_ms
                if silent and self._requests.may_ask(voter):
                    request = messages.begin_request(self.cluster_id, voter, self.node, self.epoch)
                    request = messages.meant_for(request, progress.directory)
                    self._name_itself(request)
                    self._send(voter, request, now)

    def _name_itself(self, request: Message) -> None:
        """Add this leader's endpoints, for members whose log does not have them."""
        if not self.is_static:
            self._addresses.add_own(request)

    def _on_begin(
        self, peer: NodeId, request: BeginQuorumEpochRequest, response: BeginQuorumEpochResponse, now: TimestampMs
    ) -> None:
        answer = messages.of_metadata(response.topics) if response.error_code == ErrorCode.NONE else None
        if answer is not None:
            self._heeds(peer, answer.error_code, answer.leader_epoch, answer.leader_id, now)

    def append(self, records: Sequence[Message], now: TimestampMs, level: int = NEWEST_LEVEL) -> Offset:
        """Append records of one decision, durably, at a level of metadata.version; gives the offset of the first.

        They are committed when `high_watermark` is above the last; until then no response may depend on them.
        Errors: KafkaError NOT_CONTROLLER when this member does not lead or is not ready, KAFKA_STORAGE_ERROR,
        MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE for what no batch holds, and then nothing was appended.
        """
        state = self._state
        if not isinstance(state, Leader) or not self.is_ready:
            whose = f"The active controller appears to be node {self.leader}." if self.leader >= 0 else None
            raise KafkaError(ErrorCode.NOT_CONTROLLER, whose or "No controller appears to be active.")
        end = self._log.end
        try:
            first = self._log.append(records, self.epoch, now, level)
        except StorageError as error:
            self._say("error", f"{PARTITION_NAME}: {error.message}")
            if self._log.end != end:
                # What may be there or not must not be built upon: another leader finds out.
                self._attempt(lambda: self._become_resigned(state, now), now)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "The metadata log cannot be written.") from error
        except (RecordsError, LogError) as error:
            raise KafkaError(error.code, error.message) from error
        self._trace_step("AppendRecord")
        self._advance_high_watermark(state, now)
        self._answer_waiting()
        return first

    def _advance_high_watermark(self, state: Leader, now: TimestampMs) -> None:
        """Commit what a majority has, once that includes a record of this epoch."""
        ends = [max(FIRST_OFFSET, progress.end) for progress in state.voters.values()]
        # What it has flushed, and not its log's end: a loss of power would take from it what was committed by its vote.
        if self._is_voter:
            ends.append(self._log.durable_end)
        # Never by counting replicas of an earlier epoch's records alone: another leader could still replace them (Raft, 5.4.2).
        moved = next_commit(self._high_watermark, majority_end(ends), state.epoch_start)
        if moved != self._high_watermark:
            self._high_watermark = moved
            self._trace_step("AdvanceHighWatermark")
            self._answer_waiting()
            self._change_committed(state, now)

    # ---- fetches of others

    def handle_fetch(self, request: FetchRequest, token: object, now: TimestampMs) -> None:
        """Serve a member's fetch, or a consumer's: records now, or when there are some, or nothing after max_wait_ms.

        A member whose log diverges gets the diverging epoch, one whose end is below the leader's log start a snapshot id.
        Answers INCONSISTENT_CLUSTER_ID, INVALID_REQUEST, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
        NOT_LEADER_OR_FOLLOWER, each with the epoch and leader that this member knows; KAFKA_STORAGE_ERROR.
        """
        partition = messages.of_metadata_by_id(request.topics)
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            self._answers.append((token, FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)))
        elif partition is None:
            self._answers.append((token, FetchResponse(error_code=ErrorCode.INVALID_REQUEST)))
        else:
            replica = messages.replica_of(request)
            response, urgent = self._read_for(partition, request, replica, now)
            if urgent or request.max_wait_ms == 0 or len(self._waiting) >= MAX_WAITING:
                self._answers.append((token, response))
            else:
                deadline = now + request.max_wait_ms
                self._waiting.append(Waiting(token, replica, request, partition, deadline))
        self._drive(now)

    def _fetch_error(self, partition: FetchRequest.FetchPartition, max_wait_ms: int, replica: NodeId) -> ErrorCode:
        epoch = partition.current_leader_epoch
        if (
            max_wait_ms < 0
            or partition.fetch_offset < 0
            or partition.last_fetched_epoch < 0
            or partition.last_fetched_epoch > epoch
            or replica == self.node
        ):
            return ErrorCode.INVALID_REQUEST
        return self._leader_error(epoch)

    def _read_for(
        self,
        partition: FetchRequest.FetchPartition,
        request: FetchRequest,
        replica: NodeId = NO_NODE,
        now: TimestampMs | None = None,
    ) -> tuple[FetchResponse, bool]:
        """The answer to a fetch as of now, and whether there is reason to send it; `now` when the fetch has just come."""
        error = self._fetch_error(partition, request.max_wait_ms, replica)
        state = self._state
        if error is not ErrorCode.NONE or not isinstance(state, Leader):
            return self._with_leader(messages.fetch_response(error, self.epoch, self._stored.leader)), True
        verdict, epoch, end = self._log.compare(partition.fetch_offset, partition.last_fetched_epoch)
        records = b""
        if verdict is Verdict.IN_LINE:
            try:
                max_bytes = max(0, min(request.max_bytes, self.settings.fetch_max_bytes))
                records = self._log.read(partition.fetch_offset, max_bytes)
            except StorageError as failure:
                self._say("error", f"{PARTITION_NAME}: {failure.message}")
                return messages.fetch_response(ErrorCode.KAFKA_STORAGE_ERROR, self.epoch, self.node), True
            # A fetch from `fetch_offset` says that all before is durable there: noted once, when it comes, and not when it is
            # read again after waiting.
            if now is not None:
                self.answer_fetch(state, (replica, partition.replica_directory_id), partition.fetch_offset, now)
        high_watermark = self._high_watermark if self.is_ready else NO_OFFSET
        response = messages.fetch_response(
            ErrorCode.NONE,
            self.epoch,
            self.node,
            high_watermark=high_watermark,
            log_start=self._log.start,
            records=records,
            diverging=(epoch, end) if verdict is Verdict.DIVERGING else None,
            snapshot=(epoch, end) if verdict is Verdict.SNAPSHOT else None,
        )
        response = self._with_leader(response)
        news = verdict is not Verdict.IN_LINE or bool(records) or partition.high_watermark < high_watermark
        return response, news

    def answer_fetch(self, state: Leader, member: tuple[NodeId, UUID], end: Offset, now: TimestampMs) -> None:
        """A member has everything below `end`, durably: remember it, and commit what a majority has now."""
        replica, directory = member
        if replica in state.voters and self._voters.is_voter(replica, directory):
            state.voters[replica].fetched(end, self._log.end, now)
            self._trace_step("AnswerFetch", {"from": replica, "to": self.node, "end": end})
            self._note_following(state, member, now)
            self._advance_high_watermark(state, now)
        elif replica >= 0:
            self._drop_silent_observers(state, now)
            if replica in state.observers or len(state.observers) < MAX_OBSERVERS:
                known = state.observers.get(replica)
                if known is None or known.directory != directory:
                    known = state.observers[replica] = Progress(directory)
                known.fetched(end, self._log.end, now)

    def _note_following(self, state: Leader, member: tuple[NodeId, UUID], now: TimestampMs) -> None:
        """A voter has fetched: when a majority has, the check-quorum timer begins again."""
        if member[0] not in state.voters or not self._voters.is_voter(*member):
            return
        state.fetched.add(member[0])
        if len(state.fetched) >= self._voters.majority - self._is_voter:
            state.fetched.clear()
            state.check_quorum_at = now + self.settings.check_quorum_ms

    def _drop_silent_observers(self, state: Leader, now: TimestampMs) -> None:
        for observer in [id for id, seen in state.observers.items() if now - seen.last_fetch >= OBSERVER_SESSION_MS]:
            del state.observers[observer]

    def _answer_waiting(self) -> None:
        """Answer the fetches for which there is something now."""
        still: list[Waiting] = []
        for waiting in self._waiting:
            response, urgent = self._read_for(waiting.partition, waiting.request)
            if urgent:
                self._answers.append((waiting.token, response))
            else:
                still.append(waiting)
        self._waiting = still

    # ---- snapshots for others

    def handle_fetch_snapshot(self, request: FetchSnapshotRequest, now: TimestampMs) -> FetchSnapshotResponse:
        """A piece of a snapshot, from a position on.

        Answers as `handle_fetch`; SNAPSHOT_NOT_FOUND, POSITION_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION.
        """
        if request.cluster_id is not None and request.cluster_id != self.cluster_id:
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        asked = messages.of_metadata(request.topics)
        if asked is None:
            return self._refuse_piece(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        error = self._leader_error(asked.current_leader_epoch)
        state = self._state
        if error is not ErrorCode.NONE or not isinstance(state, Leader):
            return self._refuse_piece(error)
        try:
            response = self._piece(asked, request.max_bytes)
        except StorageError as failure:
            self._say("error", f"{PARTITION_NAME}: {failure.message}")
            return self._refuse_piece(ErrorCode.KAFKA_STORAGE_ERROR)
        self._note_following(state, (request.replica_id, asked.replica_directory_id), now)
        self._drive(now)
        return response

    def _refuse_piece(self, error: ErrorCode) -> FetchSnapshotResponse:
        return self._with_leader(messages.fetch_snapshot_response(error, self.epoch, self._stored.leader))

    def _piece(self, asked: FetchSnapshotRequest.PartitionSnapshot, max_bytes: int) -> FetchSnapshotResponse:
        snapshots = self._log.snapshots
        id = SnapshotId(asked.snapshot_id.epoch, asked.snapshot_id.end_offset)
        if id not in snapshots.ids or id == BOOTSTRAP:
            return self._refuse_piece(ErrorCode.SNAPSHOT_NOT_FOUND)
        size = snapshots.size_bytes(id)
        if not 0 <= asked.position < size:
            return self._refuse_piece(ErrorCode.POSITION_OUT_OF_RANGE)
        length = max(1, min(max_bytes, self.settings.snapshot_chunk_bytes))
        data = snapshots.read(id, asked.position, length)
        return messages.fetch_snapshot_response(
            ErrorCode.NONE, self.epoch, self.node, id=id, size=size, position=asked.position, data=data
        )

    # ---- resigning

    def resign(self, now: TimestampMs) -> None:
        """A clean end is near: lead no longer, begin no election. The caller lets the messages go out before it stops."""
        self._shutting_down = True
        if isinstance(self._state, Leader):
            self._become_resigned(self._state, now)
        self._drive(now)

    def leave_epoch(self, now: TimestampMs) -> None:
        """No other voter was elected: a resigned leader becomes unattached in the next epoch."""
        self._become_unattached(self.epoch + 1, NO_NODE, now)
        self._trace_step("LeaveEpoch")

    def _announce_resignation(self, state: Resigned, now: TimestampMs) -> None:
        for voter in sorted(state.unaware):
            if self._requests.may_ask(voter):
                successors = [(id, self._voters.directory_of(id)) for id in state.successors]
                request = messages.end_request(self.cluster_id, self.node, self.epoch, successors)
                self._name_itself(request)
                self._send(voter, request, now)

    def _on_end(
        self, peer: NodeId, request: EndQuorumEpochRequest, response: EndQuorumEpochResponse, now: TimestampMs
    ) -> None:
        answer = messages.of_metadata(response.topics) if response.error_code == ErrorCode.NONE else None
        if answer is None:
            self._requests.pause(peer, now)
            return
        heeded = self._heeds(peer, answer.error_code, answer.leader_epoch, answer.leader_id, now)
        if heeded and isinstance(self._state, Resigned):
            self._state.unaware.discard(peer)

    # ---- describing

    def handle_describe_quorum(self, body: DescribeQuorumRequest, now: TimestampMs) -> DescribeQuorumResponse:
        """How far every member is, as the leader knows. The caller adds `nodes`.

        Errors in the response: UNKNOWN_TOPIC_OR_PARTITION for each partition where another than the metadata log is
        asked for, NOT_LEADER_OR_FOLLOWER of a member that does not lead.
        """
        if refused := messages.unknown_described(body):
            return refused
        state = self._state
        if not isinstance(state, Leader):
            refusal = DescribeQuorumResponse.PartitionData(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return messages.describe_response(refusal)
        self._drop_silent_observers(state, now)
        own = DescribeQuorumResponse.ReplicaState(
            replica_id=self.node,
            replica_directory_id=self._directory,
            log_end_offset=self._log.end,
            last_fetch_timestamp=now,
            last_caught_up_timestamp=now,
        )
        partition = DescribeQuorumResponse.PartitionData(
            leader_id=self.node,
            leader_epoch=self.epoch,
            high_watermark=self._high_watermark if self.is_ready else NO_OFFSET,
            current_voters=[*([own] if self._is_voter else ()), *_described(state.voters)],
            observers=_described(state.observers),
        )
        return messages.describe_response(partition)


def _described(members: Mapping[NodeId, Progress]) -> list[DescribeQuorumResponse.ReplicaState]:
    return [
        DescribeQuorumResponse.ReplicaState(
            replica_id=member,
            replica_directory_id=progress.directory,
            log_end_offset=progress.end,
            last_fetch_timestamp=progress.last_fetch,
            last_caught_up_timestamp=progress.caught_up,
        )
        for member, progress in sorted(members.items())
    ]
