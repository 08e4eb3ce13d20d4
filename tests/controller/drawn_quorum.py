"""Steps drawn for a member of a quorum: requests and responses of its peers, time, and restarts.

Steps that no sound quorum makes are not drawn, nor known differences. Comments name these; and where Kafka's member fails:

- It exits where a leader asks to cut what is committed, at an answer to BeginQuorumEpoch of a voter that was removed meanwhile,
  and at an UpdateRaftVoter that names the leader itself (findings/voter_update_of_the_leader).
- After a truncation it does not read again the offsets that it had read (KRaftControlRecordStateMachine.nextOffset): where a new
  record there changes the voters, it uses the earlier ones until its next start.
- A snapshot drops the voters before the record at its end, which may not be committed (TreeMapLogHistory.truncateOldEntries): after
  a truncation it has no voters at all until its next start.
"""

from __future__ import annotations

from random import Random
from typing import Any

from reference.controller import quorum_messages as messages
from reference.controller.metadata_records import encode_metadata_record
from reference.controller.quorum_log import Comparison, Verdict
from reference.controller.quorum_messages import Asker
from reference.controller.quorum_roles import Role
from reference.controller.quorum_snapshots import snapshot_batches
from reference.controller.quorum_voters import Entry, voter_records
from reference.protocol.codec import encode
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from reference.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from reference.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.fetch_snapshot import FetchSnapshotRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from reference.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from reference.protocol.messages.vote import VoteRequest
from reference.protocol.primitives import FIRST_OFFSET, NO_NODE, LeaderEpoch, NodeId, Offset
from reference.protocol.records.batch import build
from reference.protocol.records.control import ControlType, control_key
from reference.protocol.records.record import Record
from reference.protocol.schema import Message
from tests.controller.cluster import nodes
from tests.controller.paired_quorum import NODE, PairedQuorum
from tests.controller.quorum_members import CLUSTER, OF_METADATA, levels, topic

NO_LEADER = NO_NODE


class DrawnSteps:
    """Draws steps with one leader per epoch, and with logs that a quorum can have."""

    def __init__(self, pair: PairedQuorum, chance: Random) -> None:
        self._pair = pair
        self._chance = chance
        self._leaders: dict[int, NodeId] = {}
        self._granted: set[int] = set()
        self._number = 0
        self._ended = -1
        self._read_to = 0
        self._snapshot: tuple[Any, bytes] | None = None

    def run(self, steps: int) -> None:
        for _ in range(steps):
            quorum = self._pair.quorum
            if quorum.is_leader:
                self._leaders[quorum.epoch] = NODE
            if quorum.may_stand and not quorum.is_voter and not quorum.is_leader:
                return  # a member that was removed stands in ours until it knows that this is committed
            if quorum.is_leader and self._pair.changing and quorum.leading.epoch_start < self._read_to:
                return  # Kafka's member misses the voters that it has just written, as below
            self._read_to = max(self._read_to, quorum.log.end)
            draws = [self._answer] * 12 + [self._pass_time] * 6 + [self._vote] * 3 + [self._report] * 2
            draws += [self._restart, self._describe]
            if quorum.is_leader:
                draws += [self._fetch] * 12 + [self._append] * 4 + [self._fetch_snapshot]
                draws += [self._change_voters] * (6 if self._pair.changing else 1)
            else:
                draws += [self._fetch, self._change_voters]
            draws += [self._write_snapshot]
            self._chance.choice(draws)()

    # ---- the world around the member

    @property
    def _others(self) -> list[NodeId]:
        """Nodes that may lead or vote; with configured voters these alone."""
        return nodes(1, 2, 3, 4) if self._pair.changing else nodes(1, 2)

    def _asker(self, node: int, epoch: int) -> Asker:
        return Asker(CLUSTER, NodeId(node), self._pair.members.directories[node], LeaderEpoch(epoch))

    def _leader_of(self, epoch: int) -> NodeId:
        """The leader of an epoch: the one that was named first; this member only if it leads that epoch."""
        if epoch not in self._leaders:
            self._leaders[epoch] = self._chance.choice(self._others)
        return self._leaders[epoch]

    def _could_lead(self, epoch: int) -> bool:
        """Whether another node may be named the leader of an epoch: false if this member may win it."""
        quorum = self._pair.quorum
        if epoch <= 0 or self._leaders.get(epoch) == NODE:
            return False
        if epoch in self._leaders:
            return True
        return epoch not in self._granted and not (
            epoch == quorum.epoch and quorum.role in (Role.LEADER, Role.RESIGNED)
        )

    def _ends(self) -> list[int]:
        """The end offsets of the log's batches, and the log start offset."""
        log = self._pair.quorum.log
        return [log.start, *(each.header.next_offset for each in log._records._batches(log.start, log.end))]

    def _epoch(self) -> int:
        return max(0, self._pair.quorum.epoch + self._chance.choice([-1, 0, 0, 0, 0, 1, 1, 2]))

    def _endpoints(self, form: Any, node: int) -> list[Any]:
        return [form(name="CONTROLLER", host=f"node-{node}", port=9093)]

    def _pass_time(self) -> None:
        """Let time pass. Requests are lost before they time out, because after a timeout only ours pauses."""
        pair, ms = self._pair, self._chance.choice([20, 50, 100, 300, 500, 1000, 1500, 1900])
        for peer, (request, deadline) in list(pair.quorum.requests._open.items()):
            if deadline <= pair.members.now + ms + 100 and pair.is_open(peer, request):
                is_update = isinstance(request, UpdateRaftVoterRequest)  # after its loss Kafka does not pause
                pair.respond(peer, request, self._response(peer, request) if is_update else None)
        pair.pass_time(ms)

    def _restart(self) -> None:
        """Restart the member, unless Kafka's would become a candidate again in an epoch that another member has won."""
        quorum, stored = self._pair.quorum, self._pair.quorum.stored
        is_known = (
            stored.leader < 0 or stored.leader in quorum.voters
        )  # else Kafka's learns the leader's address later than ours
        # One that was removed from the voters is again a candidate in ours, until it knows that this is committed.
        if quorum.is_voter and is_known and (stored.voted != NODE or stored.leader in (NO_LEADER, NODE)):
            self._read_to = 0
            self._pair.restart()

    # ---- requests of others

    def _vote(self) -> None:
        quorum, chance = self._pair.quorum, self._chance
        epoch, candidate = self._epoch(), chance.choice(self._others)
        last_epoch = max(0, quorum.log.last_epoch + chance.choice([-1, 0, 0, 0, 1]))
        end = max(0, quorum.log.end + chance.choice([-2, -1, 0, 0, 0, 1, 3]))
        last = LeaderEpoch(last_epoch), Offset(end)
        # Of a leader that has resigned ours is known no more, and grants pre-votes.
        pre_vote = chance.random() < 0.5 and epoch != self._ended
        request = messages.vote_request(self._asker(candidate, epoch), NODE, last, pre_vote=pre_vote)
        if chance.random() < 0.7:
            messages.meant_for(request, self._pair.members.directories[NODE])
        elif chance.random() < 0.2:
            messages.meant_for(request, self._pair.members.directories[1])
        if chance.random() < 0.05:
            request.voter_id = 1
        if chance.random() < 0.05:
            request.cluster_id = chance.choice([None, "another"])
        if self._pair.changing and chance.random() < 0.1:
            request.topics[0].partitions[0].replica_directory_id = self._pair.members.directories[4]
        self._pair.ask(request)

    def _report(self) -> None:
        """Let a leader send BeginQuorumEpoch or EndQuorumEpoch."""
        epoch = self._epoch()
        if not self._could_lead(epoch):
            return
        leader = self._leader_of(epoch)
        quorum = self._pair.quorum
        if self._chance.random() < 0.6:
            if (epoch, leader, quorum.role) == (quorum.epoch, quorum.stored.leader, Role.PROSPECTIVE):
                return  # ours follows again, and Kafka's member does not
            request: Any = messages.begin_request(self._asker(leader, epoch), NODE)
            request.leader_endpoints = self._endpoints(BeginQuorumEpochRequest.LeaderEndpoint, leader)
            if self._chance.random() < 0.1:
                messages.meant_for(request, self._pair.members.directories[1])
        else:
            self._ended = epoch
            successors = self._chance.sample(nodes(0, 1, 2), self._chance.randint(0, 3))
            named = [(each, self._pair.members.directories[each]) for each in successors]
            request = messages.end_request(self._asker(leader, epoch), named)
            request.leader_endpoints = self._endpoints(EndQuorumEpochRequest.LeaderEndpoint, leader)
        self._pair.ask(request)

    def _fetch(self) -> None:
        quorum, chance = self._pair.quorum, self._chance
        epoch = quorum.epoch if chance.random() < 0.9 else self._epoch()
        replica = chance.choice([1, 1, 2, 2, 3, 4])
        end = chance.choice([*self._ends()[-3:], *[quorum.log.end] * 4, quorum.log.end + 1, 0])
        own = quorum.log.epoch_end(quorum.log.last_epoch)[0]
        at = quorum.log.log.epoch_at(end - 1) if quorum.log.start < end <= quorum.log.end else own
        last_epoch = max(0, at + chance.choice([0] * 8 + [-1, 1]))
        request = messages.fetch_request(
            self._asker(replica, epoch),
            (LeaderEpoch(last_epoch), Offset(end)),
            Offset(chance.choice([-1, 0, quorum.high_watermark])),
            # When a fetch has waited Kafka counts it again, as if it came now.
            max_wait_ms=0 if replica in quorum.voters else chance.choice([0, 500]),
            max_bytes=1 << 20,
        )
        if chance.random() < 0.05:
            request.topics[0].partitions[0].replica_directory_id = self._pair.members.directories[4]
        self._pair.ask(request)

    def _fetch_snapshot(self) -> None:
        quorum, chance = self._pair.quorum, self._chance
        epoch, end = quorum.latest_snapshot or (1, 1)
        id = LeaderEpoch(epoch), Offset(end + (chance.random() < 0.1))
        position = chance.choice([0, 0, 10, 10_000, -1])
        self._pair.ask(
            messages.fetch_snapshot_request(self._asker(chance.choice([1, 2, 3]), self._epoch()), id, position, 1 << 20)
        )

    def _describe(self) -> None:
        self._pair.ask(OF_METADATA)

    def _change_voters(self) -> None:
        members, chance = self._pair.members, self._chance
        voter = chance.choice([0, 1, 2, 3, 3, 4, 4])
        directory = members.directories[voter if chance.random() < 0.9 else 4]
        kind = chance.choice(["add", "add", "remove", "update"])
        if kind == "add":
            request: Any = AddRaftVoterRequest(
                cluster_id=CLUSTER,
                timeout_ms=1000,
                voter_id=voter,
                voter_directory_id=directory,
                listeners=self._endpoints(AddRaftVoterRequest.Listener, voter),
                ack_when_committed=chance.random() < 0.7,
            )
        elif kind == "remove":
            request = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=voter, voter_directory_id=directory)
        else:
            if voter == NODE:
                return  # Kafka's member exits (findings/voter_update_of_the_leader)
            host = chance.choice([voter, voter, 7])
            known = self._pair.quorum.voters.get(voter)
            if known is not None and known.endpoints and known.endpoints[0].host == f"node-{host}":
                return  # what is known ours does not write again
            request = UpdateRaftVoterRequest(
                cluster_id=CLUSTER,
                current_leader_epoch=self._epoch() if chance.random() < 0.2 else self._pair.quorum.epoch,
                voter_id=voter,
                voter_directory_id=directory,
                listeners=self._endpoints(UpdateRaftVoterRequest.Listener, host),
                k_raft_version_feature=levels(*chance.choice([(0, 1), (0, 1), (0, 1), (0, 0), (1, 1), (1, 0)])),
            )
        if chance.random() < 0.04:
            request.cluster_id = "another"
        self._pair.ask(request)

    # ---- the member's own requests

    def _answer(self) -> None:
        pair, chance = self._pair, self._chance
        if not pair.open_requests:
            return
        peer, request = chance.choice(pair.open_requests)
        if isinstance(request, FetchRequest):
            pair.pass_time(20)  # so that no pause is left of what came before
            if not pair.is_open(peer, request):
                return
        # Kafka's leader exits at an answer to BeginQuorumEpoch of a voter that has been removed meanwhile.
        is_removed = isinstance(request, BeginQuorumEpochRequest) and peer not in pair.quorum.voters
        if is_removed or (chance.random() < 0.1 and not isinstance(request, UpdateRaftVoterRequest)):
            pair.respond(peer, request, None)
            return
        response = self._response(peer, request)
        if response is not None:
            pair.respond(peer, request, response)

    def _response(self, node: NodeId, request: Any) -> Message | None:
        chance, quorum = self._chance, self._pair.quorum
        match request:
            case VoteRequest():
                return self._vote_response(node, request)
            case FetchRequest():
                return self._fetch_response(node, request)
            case BeginQuorumEpochRequest() | EndQuorumEpochRequest():
                form = (
                    BeginQuorumEpochResponse if isinstance(request, BeginQuorumEpochRequest) else EndQuorumEpochResponse
                )
                error, epoch, leader = self._refusal(request) or (ErrorCode.NONE, quorum.epoch, NODE)
                return self._naming(messages.voter_response(form, error, epoch, leader), leader)
            case FetchSnapshotRequest():
                return self._piece(node, request)
            case ApiVersionsRequest():
                key = ApiVersionsResponse.SupportedFeatureKey(
                    name="kraft.version", min_version=0, max_version=chance.choice([0, 1, 1, 1, 1])
                )
                error = chance.choice([0] * 9 + [35])
                return ApiVersionsResponse(error_code=error, supported_features=[key])
            case UpdateRaftVoterRequest():
                current = UpdateRaftVoterResponse.CurrentLeader(
                    leader_id=quorum.leader, leader_epoch=quorum.epoch, host=f"node-{quorum.leader}", port=9093
                )
                error = chance.choice([0, 0, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.VOTER_NOT_FOUND])
                return UpdateRaftVoterResponse(error_code=error, current_leader=current)
            case AddRaftVoterRequest():
                return AddRaftVoterResponse(error_code=chance.choice([0, 7, 42]))
            case RemoveRaftVoterRequest():
                return RemoveRaftVoterResponse(error_code=chance.choice([0, 7, 42]))
            case _:
                raise AssertionError(request)

    def _naming(self, response: Any, leader: int) -> Any:
        if leader >= 0:
            response.node_endpoints = [type(response).NodeEndpoint(node_id=leader, host=f"node-{leader}", port=9093)]
        return response

    def _refusal(self, request: Message) -> tuple[ErrorCode, LeaderEpoch, NodeId] | None:
        """Error, epoch and leader of a node that knows more than this member, or less; mostly None."""
        chance, quorum = self._chance, self._pair.quorum
        drawn = chance.random()
        if drawn < 0.75:
            return None
        # After this error Kafka asks again at once, and ours after a pause.
        soon = quorum.state.deadline <= self._pair.members.now + 100
        if drawn < 0.8 and not soon and not isinstance(request, FetchRequest | FetchSnapshotRequest):
            return ErrorCode.UNKNOWN_LEADER_EPOCH, LeaderEpoch(max(0, quorum.epoch - 1)), NO_LEADER
        epoch = quorum.epoch + chance.choice([1, 1, 2])
        leader = self._leader_of(epoch) if chance.random() < 0.6 and self._could_lead(epoch) else NO_LEADER
        return ErrorCode.FENCED_LEADER_EPOCH, epoch, leader

    def _vote_response(self, node: NodeId, request: VoteRequest) -> Message:
        chance, quorum = self._chance, self._pair.quorum
        asked = request.topics[0].partitions[0]
        refusal = self._refusal(request)
        if refusal is not None:
            error, epoch, leader = refusal
            return self._naming(messages.vote_response(error, epoch, leader, granted=False), leader)
        epoch = quorum.epoch
        granted = chance.random() < 0.7 and (asked.pre_vote or self._leaders.get(epoch, NODE) == NODE)
        if granted and not asked.pre_vote:
            self._granted.add(epoch)
        leader = self._leaders.get(epoch, NO_LEADER)
        leader = leader if leader != NODE and self._could_lead(epoch) and chance.random() < 0.3 else NO_LEADER
        if leader >= 0:
            granted = False
        return self._naming(messages.vote_response(ErrorCode.NONE, epoch, leader, granted=granted), leader)

    def _fetch_response(self, node: NodeId, request: FetchRequest) -> Message | None:
        chance, quorum = self._chance, self._pair.quorum
        asked = request.topics[0].partitions[0]
        refusal = self._refusal(request)
        if refusal is not None:
            error, epoch, leader = refusal
            return self._naming(messages.fetch_response(error, epoch, leader), leader)
        epoch = quorum.epoch
        could = self._could_lead(epoch)
        # Of a bootstrap server ours takes no records: it does not know which node it is.
        if (
            node < 0
            or self._leaders.get(epoch, node) != node
            or not could
            or (quorum.stored.leader < 0 and chance.random() < 0.5)
        ):
            leader = self._leaders.get(epoch, NO_LEADER) if could else NO_LEADER
            return self._naming(messages.fetch_response(ErrorCode.NOT_LEADER_OR_FOLLOWER, epoch, leader), leader)
        self._leaders[epoch] = node
        compared, records, end = messages.IN_LINE, b"", quorum.log.end
        drawn = chance.random()
        if drawn < 0.55:
            records, end = self._records(asked.fetch_offset, max(1, quorum.log.last_epoch), epoch)
        elif drawn < 0.7 and quorum.log.end > quorum.high_watermark:
            own_epoch = chance.randint(0, quorum.log.last_epoch)
            cut = chance.choice(self._ends())
            # Kafka's member exits where it is to cut what is committed, and a leader never asks to cut nothing.
            if cut >= quorum.high_watermark <= quorum.log.truncation_offset(own_epoch, cut) < quorum.log.end:
                compared = Comparison(Verdict.DIVERGING, LeaderEpoch(own_epoch), Offset(cut))
        elif drawn < 0.75:
            self._snapshot = self._new_snapshot(epoch)
            compared = Comparison(Verdict.SNAPSHOT, *self._snapshot[0])
        committed = end if self._commits else chance.choice([quorum.high_watermark, quorum.log.end, end])
        response = messages.fetch_response(
            ErrorCode.NONE,
            epoch,
            node,
            high_watermark=Offset(committed),
            log_start=FIRST_OFFSET,
            records=records,
            compared=compared,
        )
        return self._naming(response, node)

    def _records(self, offset: int, last_epoch: int, epoch: int) -> tuple[bytes, int]:
        """Batches from an offset on, and their end offset."""
        data = b""
        self._commits = False
        for _ in range(self._chance.randint(1, 2)):
            last_epoch = self._chance.randint(last_epoch, epoch) if last_epoch < epoch else epoch
            # After a truncation Kafka's member does not read again how far it had read: it misses voters below.
            control = self._pair.changing and self._chance.random() < 0.2 and offset >= self._read_to
            if control:
                voter = self._chance.choice([0, 1, 2, 3, 4])
                # A removed member is no candidate in Kafka, and is one in ours until this is committed (`Member.may_stand`).
                self._commits = voter == NODE
                return data + self.voters_batch(voter, offset, last_epoch), offset + 1
            count = self._chance.randint(1, 3)
            data += self.batch(offset, last_epoch, count=count)
            offset += count
        return data, offset

    _commits = False

    def batch(self, offset: int, epoch: int, *, count: int) -> bytes:
        values: list[bytes] = []
        for _ in range(count):
            self._number += 1
            values.append(encode_metadata_record(topic(self._number)))
        now = self._pair.members.now
        return bytes(
            build(
                [Record(Offset(offset + at), now, None, value) for at, value in enumerate(values)],
                leader_epoch=LeaderEpoch(epoch),
            )
        )

    def voters_batch(self, voter: int, offset: int, epoch: int) -> bytes:
        """The voters plus the node, or without it if it is a voter and not the only one."""
        members, quorum = self._pair.members, self._pair.quorum
        if voter in quorum.voters:
            voters = quorum.voters.removed(voter, quorum.voters.directory_of(voter))
        else:
            voters = quorum.voters.added(members.voter(voter))
        body = encode((voters or quorum.voters).record(), 0)
        record = Record(Offset(offset), members.now, control_key(ControlType.KRAFT_VOTERS), body)
        return bytes(build([record], control=True, leader_epoch=LeaderEpoch(epoch)))

    def _new_snapshot(self, epoch: int) -> tuple[tuple[int, int], bytes]:
        quorum, now = self._pair.quorum, self._pair.members.now
        id = epoch, quorum.log.end + self._chance.randint(1, 4)
        voters = voter_records(Entry(FIRST_OFFSET, quorum.voters, quorum.kraft_version))
        batches = snapshot_batches(LeaderEpoch(epoch), [topic(1)], (now, now), 30, voters)
        return id, b"".join(map(bytes, batches))

    def _piece(self, node: NodeId, request: FetchSnapshotRequest) -> Message | None:
        quorum, asked = self._pair.quorum, request.topics[0].partitions[0]
        refusal = self._refusal(request)
        if refusal is not None:
            error, epoch, leader = refusal
            return self._naming(messages.fetch_snapshot_response(error, epoch, leader), leader)
        id = asked.snapshot_id.epoch, asked.snapshot_id.end_offset
        if self._snapshot is None or self._snapshot[0] != id or self._chance.random() < 0.1:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
            return self._naming(messages.fetch_snapshot_response(error, quorum.epoch, node), node)
        whole = self._snapshot[1]
        data = whole[asked.position : asked.position + self._chance.choice([50, 1000, 1000])]
        response = messages.fetch_snapshot_response(
            ErrorCode.NONE, quorum.epoch, node, id=id, size=len(whole), position=asked.position, data=data
        )
        return self._naming(response, node)

    # ---- the leader's own work

    def _append(self) -> None:
        if self._pair.quorum.is_ready:
            self._number += 1
            self._pair.append([self._number])

    def _write_snapshot(self) -> None:
        """Not before new voters are committed: if they come right behind a snapshot, Kafka's member drops the earlier ones."""
        quorum = self._pair.quorum
        if quorum.log.history.offset < quorum.high_watermark:
            self._pair.write_snapshot()
