"""Where a member of ours holds, and Kafka 4.3.1's KafkaRaftClient has wrong voters or exits. None has a known JIRA issue.

Brokers showed the first and the last: `tidegauge findings show unread_voters`, `removed_voter`."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from linearizability.simulation.voter_agreement import VoterAgreement
from linearizability.simulation.world import Violation
from reference.controller import quorum_messages as messages
from reference.controller.quorum_log import IN_LINE, Comparison, QuorumLog, Verdict
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from reference.protocol.messages.fetch import FetchRequest
from reference.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from reference.protocol.messages.vote import VoteRequest
from reference.protocol.primitives import FIRST_OFFSET, NO_NODE, LeaderEpoch, NodeId, Offset, TimestampMs
from reference.protocol.schema import Message
from tests.controller.drawn_quorum import DrawnSteps
from tests.controller.paired_quorum import PairedQuorum
from tests.controller.quorum_members import CLUSTER
from tests.controller.test_quorum_beside_kafka import SOURCE
from tests.kafka_classes import FOLDERS, answers_of


class Scripted(DrawnSteps):
    """The same messages, in a given order."""

    def __init__(self, folder: str) -> None:
        self.pair = PairedQuorum(changing=True, folder=folder)
        super().__init__(self.pair, Random(1))

    def follow(self, leader: int, epoch: int) -> None:
        request = messages.begin_request(self._asker(leader, epoch), NodeId(0))
        request.leader_endpoints = self._endpoints(BeginQuorumEpochRequest.LeaderEndpoint, leader)
        self.pair.ask(request)

    def open(self, form: type[Message], peer: int) -> Message:
        return next(request for to, request in self.pair.open_requests if to == peer and isinstance(request, form))

    def fetched(self, high_watermark: int, records: bytes = b"", compared: Comparison = IN_LINE) -> None:
        epoch, leader = self.pair.quorum.epoch, self.pair.quorum.leader
        response = messages.fetch_response(
            ErrorCode.NONE,
            epoch,
            leader,
            high_watermark=Offset(high_watermark),
            log_start=FIRST_OFFSET,
            records=records,
            compared=compared,
        )
        self.pair.respond(leader, self.open(FetchRequest, leader), self._naming(response, leader))

    def fetch(self) -> None:
        quorum = self.pair.quorum
        last = quorum.log.last_epoch, quorum.log.end
        self.pair.ask(
            messages.fetch_request(self._asker(2, quorum.epoch), last, FIRST_OFFSET, max_wait_ms=0, max_bytes=1000)
        )


def truncated_below_new_voters(script: Scripted) -> None:
    """The log is cut from 3 to 0, and the next leader writes voters at offset 0: Kafka's member has read up to 3."""
    script.follow(1, 1)
    script.fetched(0, script.batch(0, 1, count=3))
    script.follow(2, 2)
    script.fetched(0, compared=Comparison(Verdict.DIVERGING, LeaderEpoch(0), Offset(0)))
    script.fetched(0, script.voters_batch(1, 0, 2))
    script.fetched(1)


def snapshot_before_new_voters(script: Scripted) -> None:
    """A snapshot up to 2, voters at offset 2 that are not committed, and a truncation to 2."""
    script.follow(1, 1)
    script.fetched(2, script.batch(0, 1, count=2))
    script.fetched(2, script.voters_batch(2, 2, 1))
    script.pair.write_snapshot()
    script.follow(2, 2)
    script.fetched(2, compared=Comparison(Verdict.DIVERGING, LeaderEpoch(1), Offset(2)))


def removed_voter_answers(script: Scripted) -> None:
    """A voter is removed while BeginQuorumEpoch is on its way to it, and answers."""
    pair = script.pair
    pair.pass_time(1000)
    for _ in ("pre-vote", "vote"):
        granted = messages.vote_response(ErrorCode.NONE, pair.quorum.epoch, NO_NODE, granted=True)
        pair.respond(2, script.open(VoteRequest, 2), granted)
    script.fetch()
    removal = RemoveRaftVoterRequest(cluster_id=CLUSTER, voter_id=1, voter_directory_id=pair.members.directories[1])
    pair.ask(removal)
    script.fetch()
    answer = messages.voter_response(BeginQuorumEpochResponse, ErrorCode.NONE, pair.quorum.epoch, NodeId(0))
    pair.respond(1, script.open(BeginQuorumEpochRequest, 1), answer)


CASES: list[tuple[Callable[[Scripted], None], list[int], Any]] = [
    (truncated_below_new_voters, [0, 2], [0, 1, 2]),
    (snapshot_before_new_voters, [0, 1, 2], []),
    (removed_voter_answers, [0, 2], "java.lang.IllegalArgumentException: Unexpected acknowledgement from non-voter 1"),
]


def ids(voters: list[str]) -> list[int]:
    return [int(each.split()[0]) for each in voters]


@pytest.mark.java
def test_ours_holds_where_kafkas_member_fails() -> None:
    with tempfile.TemporaryDirectory(dir=FOLDERS) as folder:
        scripts = [Scripted(str(Path(folder) / run.__name__)) for run, _, _ in CASES]
        for script, (run, _, _) in zip(scripts, CASES, strict=True):
            run(script)
        answers = iter(answers_of(SOURCE, (step for script in scripts for step in script.pair.steps)))
    for script, (run, own, theirs) in zip(scripts, CASES, strict=True):
        last = [next(answers) for _ in script.pair.steps][-1]
        assert ids(script.pair.ours[-1]["voters"]) == own, run.__name__
        assert last.get("dead", ids(last.get("voters", []))) == theirs, json.dumps(last)


def unread_below_the_former_end(monkeypatch: pytest.MonkeyPatch) -> None:
    right = QuorumLog.truncate

    def wrong(self: QuorumLog, offset: Offset, now: TimestampMs) -> None:
        former_end, take = self.end, self.history.take
        right(self, offset, now)
        self.history.take = lambda offset, record: take(offset, record) if offset >= former_end else None

    monkeypatch.setattr(QuorumLog, "truncate", wrong)


def dropped_by_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    right = QuorumLog.write_snapshot

    def wrong(self: QuorumLog, end_offset: Offset, *arguments: Any) -> Any:
        written = right(self, end_offset, *arguments)
        self.history.forget_before(end_offset)
        return written

    monkeypatch.setattr(QuorumLog, "write_snapshot", wrong)


@pytest.mark.parametrize(
    ("run", "plant"),
    [(truncated_below_new_voters, unread_below_the_former_end), (snapshot_before_new_voters, dropped_by_a_snapshot)],
)
def test_the_simulation_finds_what_kafka_does(
    run: Any, plant: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member with Kafka's mistake does not use the voters of its log; ours does."""
    sound = Scripted(str(tmp_path / "sound"))
    run(sound)
    VoterAgreement().follow(0, sound.pair.quorum)
    plant(monkeypatch)
    script = Scripted(str(tmp_path / "planted"))
    run(script)
    with pytest.raises(Violation, match="voters-not-of-the-log"):
        VoterAgreement().follow(0, script.pair.quorum)
