"""One member of the metadata quorum: who is the active controller, and which records of `__cluster_metadata` are true.

# What it is for

The cluster's metadata are one log. One *voter* leads and appends; the others, and the *observers* (brokers without a vote),
fetch from it. A record is *committed* when a majority of the voters has it durably and one of the leader's own epoch with
it; what is committed is never lost and never changes, and only from committed records a node makes its image. Every leader
has an epoch of its own, larger than all before: a leader that learns of a larger one stops leading.

# Inputs and outputs

`Quorum` is a state machine: messages and time in, messages out. Nothing here waits, and what needs chance gets a generator.

- Requests of others: `handle_vote`, `handle_begin_quorum_epoch`, `handle_end_quorum_epoch`, `handle_fetch_snapshot`,
  `handle_describe_quorum` give the response at once. `handle_fetch` is a long poll: its response comes out of
  `take_answers`, with the token that was given, now or later; `forget` drops a token whose connection is gone.
- Our requests: `take_sends` gives (peer, request body). The caller sends each as it likes, and says how it went by
  `receive(peer, request, response, now)` or `unreachable(peer, request, now)`, with the very object that it was given. A
  request that is neither answered nor lost is given up after request_timeout_ms. A fetch may be held by the leader: other
  requests to the same peer should not have to wait behind it.
- Time: `tick(now)`, at the latest at `next_deadline()`.
- The leader: `append(records, now)`, once it `is_ready`; `resign(now)` before a clean end.
- The committed state: `committed(start)` gives the metadata records from an offset up to `high_watermark`. When
  `take_snapshot_notice()` is true (at the start, if there is a snapshot, and whenever the leader sent one), begin again with
  `snapshot_records()` and go on with `committed(latest_snapshot.end_offset)`. `write_snapshot` keeps the log short.

So a node's loop is, after every call: take sends and answers; then

    if quorum.take_snapshot_notice(): image = image of quorum.snapshot_records(); applied = quorum.latest_snapshot.end_offset
    for offset, record in quorum.committed(applied): image.apply(record)
    applied = quorum.high_watermark

A leader whose decisions depend on uncommitted records reads them by `appended(start)`; when it is deposed (`epoch` or
`is_leader` changes) it goes back to what is committed.

# What is durable, and when

Epoch, vote and leader are flushed (`quorum-state`) before the role changes, and so before any message leaves. A voter flushes
what it fetched before it fetches on, for the offset of its next fetch says that it has it. The leader counts itself only
with what it has flushed. When the disk refuses, the step has not happened: a handler answers KAFKA_STORAGE_ERROR, `append`
raises it, and everything else is tried again after STORAGE_PAUSE_MS. But when it refuses within a truncation, the member
`is_broken`: the log's state is unknown then, and only a restart can recover it.

# Known deviations from Apache Kafka 4.3, whose org.apache.kafka.raft.KafkaRaftClient is the model

- Where the voters are the configuration's (kraft.version 0), a vote or epoch of a node that is no voter is refused with
  INCONSISTENT_VOTER_SET (as Kafka did up to 3.8) before its epoch is looked at: a stranger cannot depose a leader.
- The leader flushes before it answers fetches that wait, so that no node has a record durably before the leader.
- A member that is prospective and knows a leader follows it again when that leader's BeginQuorumEpoch comes.
- A follower that learns by EndQuorumEpoch that its leader has resigned grants pre-votes at once, so that the best
  successor need not wait for the others' timeouts.
- A leader that is no voter any more resigns when the record that says so is committed, also where the request timed out before.

# Who votes

The voters are the configuration's, or those in the log (KIP-853): `quorum_voters` has their history, which the log keeps up to
date, `quorum_changing` the leader's part in changing them, `quorum_raising` in writing those of the configuration into the log,
`quorum_joining` what a follower asks for itself. What counts is
always the latest set in this member's log, committed or not.

Source: KIP-595, KIP-630, KIP-853, KIP-996, KIP-1166; org.apache.kafka.raft.
"""

from __future__ import annotations

from collections.abc import Iterable

from reference.controller.metadata_records import NEWEST_LEVEL
from reference.controller.quorum_electing import Electing
from reference.controller.quorum_joining import Joining
from reference.controller.quorum_roles import NEVER, Follower, Leader, Nominee, Resigned, Unattached
from reference.controller.quorum_snapshots import SnapshotId
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest
from reference.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from reference.protocol.messages.vote import VoteRequest, VoteResponse
from reference.protocol.primitives import NodeId, Offset, TimestampMs
from reference.protocol.schema import Message
from reference.storage.errors import CorruptFile


class Quorum(Electing, Joining):
    """One voter or observer."""

    def _begin(self, now: TimestampMs) -> None:
        if self.is_only_voter:
            self._become_prospective(now)
        self._drive(now)

    def tick(self, now: TimestampMs) -> None:
        """Do what is due: elections, resignation, requests, responses to delayed fetches, cleaning."""
        for waiting in [waiting for waiting in self._waiting if waiting.deadline <= now]:
            self._waiting.remove(waiting)
            self._answers.append((waiting.token, self._read_for(waiting.partition, waiting.request)[0]))
        if len(self._log.snapshots.ids) > 1 and now >= self._log.next_cleaning:
            self._attempt(lambda: self._clean(now), now)
        self._drive(now)

    def next_deadline(self) -> TimestampMs | None:
        """When `tick` has something to do next; None when nothing is due ever."""
        times = [waiting.deadline for waiting in self._waiting]
        if self._log.is_broken:
            return min(times, default=None)
        if self._paused_until is not None:
            return min([*times, self._paused_until])
        if self._state.deadline != NEVER and not self._stays_until_the_end():
            times.append(self._state.deadline)
        if (request := self._requests.next_deadline()) is not None:
            times.append(request)
        if len(self._log.snapshots.ids) > 1:
            times.append(self._log.next_cleaning)
        return min(times, default=None)

    def _act(self, now: TimestampMs) -> None:
        state = self._state
        overdue = now >= state.deadline and not self._stays_until_the_end()
        match state:
            case Leader():
                self._lead(state, now)
            case Nominee() if overdue:
                self._lose(state, now)
            case Nominee():
                self._ask_for_votes(state, now)
            case Follower() if overdue and self._is_voter:
                self._become_prospective(now)
            case Follower() if overdue:
                self._become_unattached(self.epoch, self._stored.leader, now)
            case Follower():
                self._fetch_from_leader(state, now)
            case Unattached() if overdue and self._is_voter:
                self._become_prospective(now)
            case Unattached():
                self._fetch_from_any_voter(now)
            case Resigned() if overdue:
                self.leave_epoch(now)
            case Resigned():
                self._announce_resignation(state, now)

    # ---- answers

    def receive(self, peer: NodeId, request: Message, response: Message, now: TimestampMs) -> None:
        """An answer has come to a request of `take_sends`; to one that is not open any more it is ignored."""
        if self._requests.close(peer, request) and not self._log.is_broken:
            self._attempt(lambda: self._read_answer(peer, request, response, now), now)
        self._drive(now)

    def _read_answer(self, peer: NodeId, request: Message, response: Message, now: TimestampMs) -> None:
        self._addresses.learn_from(response)
        match request, response:
            case ApiVersionsRequest(), ApiVersionsResponse():
                self._on_api_versions(peer, response, now)
            case UpdateRaftVoterRequest(), UpdateRaftVoterResponse():
                self._on_update_raft_voter(response)
            case AddRaftVoterRequest() | RemoveRaftVoterRequest(), _:
                pass  # the log says what became of it
            case VoteRequest(), VoteResponse():
                self._on_vote(peer, request, response, now)
            case BeginQuorumEpochRequest(), BeginQuorumEpochResponse():
                self._on_begin(peer, request, response, now)
            case EndQuorumEpochRequest(), EndQuorumEpochResponse():
                self._on_end(peer, request, response, now)
            case FetchRequest(), FetchResponse():
                self._on_fetch(peer, request, response, now)
            case FetchSnapshotRequest(), FetchSnapshotResponse():
                self._on_fetch_snapshot(peer, request, response, now)
            case _:
                self._requests.pause(peer, now)

    def unreachable(self, peer: NodeId, request: Message, now: TimestampMs) -> None:
        """A request of `take_sends` will not be answered."""
        if self._requests.close(peer, request):
            self._requests.pause(peer, now)
        if isinstance(request, ApiVersionsRequest):
            self._on_no_api_versions(peer)
        self._drive(now)

    # ---- snapshots

    def write_snapshot(
        self, end_offset: Offset, records: Iterable[Message], now: TimestampMs, level: int = NEWEST_LEVEL
    ) -> SnapshotId | None:
        """Write a snapshot of the committed log below an offset, so that the log's beginning may be deleted.

        `end_offset` is `high_watermark`, or an earlier one; `level` is the metadata.version there.
        None where a snapshot already reaches so far.
        Errors: ValueError for an offset that is not committed or inside of a batch; StorageError, and there is none.
        """
        if not self._may_replace(end_offset):
            raise ValueError(f"a snapshot up to {end_offset}, where {self._high_watermark} is committed")
        id = self._log.write_snapshot(end_offset, records, now, level)
        if id is not None:
            self._attempt(lambda: self._clean(now), now)
        return id

    def _may_replace(self, end_offset: Offset) -> bool:
        """What is not committed may still go: no snapshot must hold it."""
        return end_offset <= self._high_watermark

    def _clean(self, now: TimestampMs) -> None:
        settings = self.settings
        try:
            self._log.clean(now, self._high_watermark, settings.retention_bytes, settings.retention_ms)
        except CorruptFile as error:
            self._say("error", str(error))
