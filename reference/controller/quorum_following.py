"""Following: fetching the leader's log, or its snapshot when the log begins too late. See `quorum` for the whole.

Source: KIP-595, KIP-630; org.apache.kafka.raft.FollowerState.
"""

from __future__ import annotations

from reference.controller import quorum_messages as messages
from reference.controller.quorum_member import PARTITION_NAME, Member
from reference.controller.quorum_roles import Follower
from reference.controller.quorum_snapshots import SnapshotId
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from reference.protocol.primitives import NodeId, TimestampMs
from reference.protocol.records.errors import RecordsError
from reference.storage.errors import CorruptFile, LogError, StorageError


class Following(Member):
    """Replication from the leader, as a follower."""

    def _fetch_from_leader(self, state: Follower, now: TimestampMs) -> None:
        """Fetch; while the leader does not answer, ask another voter, which may know a newer leader."""
        leader = self._stored.leader
        if self._requests.is_pausing(leader):
            self._fetch_from_any_voter(now)
        elif not self._requests.any_open:
            receipt = state.receipt
            if receipt is None:
                self._send(leader, self._fetch_request(), now)
            else:
                request = messages.fetch_snapshot_request(
                    self.cluster_id,
                    self.node,
                    self._directory,
                    self.epoch,
                    receipt.id,
                    receipt.size,
                    self.settings.snapshot_chunk_bytes,
                )
                self._send(leader, request, now)

    def _fetch_from_any_voter(self, now: TimestampMs) -> None:
        """Ask any voter: if it does not lead, its error response names the leader."""
        if self._requests.any_open:
            return
        known = *self._others, *self._addresses.bootstrap
        candidates = [peer for peer in known if self._requests.may_ask(peer)]
        if candidates:
            peer = candidates[self._chance.randrange(0, len(candidates))]
            self._send(peer, self._fetch_request(), now)

    def _fetch_request(self) -> FetchRequest:
        return messages.fetch_request(
            self.cluster_id,
            self.node,
            self._directory,
            self.epoch,
            (self._log.last_epoch, self._log.end),
            self._high_watermark,
            max_wait_ms=self.settings.fetch_max_wait_ms,
            max_bytes=self.settings.fetch_max_bytes,
        )

    def _on_fetch(self, peer: NodeId, request: FetchRequest, response: FetchResponse, now: TimestampMs) -> None:
        answer = messages.of_metadata_by_id(response.responses) if response.error_code == ErrorCode.NONE else None
        if answer is None:
            self._requests.pause(peer, now)
            return
        said = answer.current_leader
        if not self._heeds(peer, answer.error_code, said.leader_epoch, said.leader_id, now):
            return
        state = self._state
        asked = request.topics[0].partitions[0]
        if not isinstance(state, Follower) or peer != self._stored.leader:
            if not self.is_static:
                self._requests.pause(peer, now)
            return
        # The log has moved since the request: the records would be appended in the wrong place.
        if (asked.last_fetched_epoch, asked.fetch_offset) != (self._log.last_epoch, self._log.end):
            return
        if self.apply_fetch(state, answer, now):
            state.deadline = now + self.settings.fetch_timeout_ms
            state.has_fetched = True
        else:
            self._requests.pause(peer, now)

    def apply_fetch(self, state: Follower, answer: FetchResponse.PartitionData, now: TimestampMs) -> bool:
        """Apply a fetch response: append records, truncate, or begin to fetch a snapshot; False if it cannot be applied.

        Errors: StorageError.
        """
        if answer.diverging_epoch.epoch >= 0 or answer.diverging_epoch.end_offset >= 0:
            done = self._cut(answer.diverging_epoch, now)
        elif answer.snapshot_id.epoch >= 0 or answer.snapshot_id.end_offset >= 0:
            done = self._begin_snapshot(state, answer.snapshot_id)
        else:
            done = self._append_fetched(answer, now)
        if done:
            self._trace_step("ApplyFetch", {"from": self._stored.leader, "to": self.node})
        return done

    def _cut(self, diverging: FetchResponse.EpochEndOffset, now: TimestampMs) -> bool:
        offset = self._log.truncation_offset(diverging.epoch, diverging.end_offset)
        # No leader of a sound quorum lacks what is committed: one that does has lost a part of its log.
        if offset < self._high_watermark:
            self._say(
                "error",
                f"{PARTITION_NAME}: the leader of epoch {self.epoch} asks to cut the log at {offset}, below what is "
                f"committed ({self._high_watermark}): refused",
            )
            return False
        if offset >= self._log.end:
            return False
        self._log.truncate(offset, now)
        return True

    def _begin_snapshot(self, state: Follower, said: FetchResponse.SnapshotId) -> bool:
        id = SnapshotId(said.epoch, said.end_offset)
        if id.epoch < 0 or id.end_offset <= self._high_watermark or id <= (self._log.last_epoch, self._log.end):
            self._say("error", f"{PARTITION_NAME}: the leader offers snapshot {id.file_name}, which is behind: refused")
            return False
        state.receipt = self._log.snapshots.receive(id)
        return True

    def _append_fetched(self, answer: FetchResponse.PartitionData, now: TimestampMs) -> bool:
        before = self._log.end
        records = messages.bytes_of(answer.records)
        if records:
            try:
                self._log.append_fetched(records, self.epoch, now, durably=self._flushes)
            except StorageError:
                raise
            except (RecordsError, LogError) as error:
                self._say("error", f"{PARTITION_NAME}: records of the leader of epoch {self.epoch}: {error}")
            if self._log.end == before:
                return False
        if answer.high_watermark >= 0:
            self._high_watermark = max(self._high_watermark, min(answer.high_watermark, self._log.end))
        return True

    @property
    def _flushes(self) -> bool:
        """Whether what it fetches is durable before it fetches on: so it is with every node that may become a voter."""
        return self._is_voter or bool(self.settings.endpoints)

    # ---- snapshots

    def _on_fetch_snapshot(
        self, peer: NodeId, request: FetchSnapshotRequest, response: FetchSnapshotResponse, now: TimestampMs
    ) -> None:
        answer = messages.of_metadata(response.topics) if response.error_code == ErrorCode.NONE else None
        if answer is None:
            self._requests.pause(peer, now)
            return
        said = answer.current_leader
        heeded = self._heeds(peer, answer.error_code, said.leader_epoch, said.leader_id, now)
        state = self._state
        if not isinstance(state, Follower) or state.receipt is None:
            return
        if heeded and self._take_piece(state, answer, now):
            state.deadline = now + self.settings.fetch_timeout_ms
            state.has_fetched = True
            return
        # The leader has dropped the snapshot, or sends what does not fit: fetch again, and learn of another.
        state.receipt.abandon()
        state.receipt = None
        self._requests.pause(peer, now)

    def _take_piece(self, state: Follower, answer: FetchSnapshotResponse.PartitionSnapshot, now: TimestampMs) -> bool:
        """The next piece of a snapshot; with the last one the log begins again. False if it does not fit."""
        receipt, data = state.receipt, messages.bytes_of(answer.unaligned_records)
        assert receipt is not None
        id = SnapshotId(answer.snapshot_id.epoch, answer.snapshot_id.end_offset)
        if id != receipt.id or answer.position != receipt.size:
            return False
        if not data or receipt.size + len(data) > answer.size:
            return False
        receipt.append(data)
        if receipt.size < answer.size:
            return True
        return self._install(state, now)

    def _install(self, state: Follower, now: TimestampMs) -> bool:
        receipt = state.receipt
        assert receipt is not None
        try:
            self._log.install(receipt, now)
        except (CorruptFile, ValueError) as error:
            self._say("error", f"{PARTITION_NAME}: {error}")
            return False
        state.receipt = None
        self._high_watermark = max(self._high_watermark, receipt.id.end_offset)
        self._snapshot_notice = True
        self._trace_step("ApplyFetch", {"from": self._stored.leader, "to": self.node, "snapshot": True})
        return True
