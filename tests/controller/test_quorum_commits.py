"""When a record of the metadata log is committed, and when it is not (Raft's figure 8)."""

from __future__ import annotations

import pytest

from reference.controller import quorum_leading
from reference.protocol.primitives import FIRST_OFFSET
from tests.controller.quorum_members import Members, fetch, part, stand, topic


@pytest.mark.step("quorum", "AnswerFetch", "ApplyFetch", "AdvanceHighWatermark")
def test_a_majority_commits_and_less_does_not(three: Members) -> None:
    three.reaches = lambda sender, receiver: False
    three[0].append([topic(1)], three.now)
    assert three.names(0) == []
    assert [record for _, record in three[0].appended(FIRST_OFFSET)] == [topic(1)]
    three.reaches = lambda sender, receiver: 2 not in (sender, receiver)
    three.pass_time(600)
    assert three.names(0) == three.names(1) == ["t1"]


def figure_8() -> tuple[Members, int]:
    """Raft's figure 8: a record of epoch 1 reaches a majority only while its leader leads epoch 3.

    Member 0 leads epoch 1 and is alone with its first record; member 1 leads epoch 2 and is alone with that; member 0
    leads epoch 3 and gets the record of epoch 1, and nothing more, to member 2. Return the members, and that leader's high watermark.
    """
    members = Members(fetch_max_bytes=1)
    members.start(0, 1, 2)
    for leader_id in (0, 1):
        stand(members, leader_id, voter=2)
        assert members[leader_id].log_end_offset == 1
        members.lose_power(leader_id)
        members.start(leader_id)
    members.lose_power(1)
    stand(members, 0, voter=2)
    leader = members[0]
    assert leader.log_end_offset == 2
    one = fetch(2, leader.epoch, last=(0, 0))
    one.max_bytes = 1
    assert len(part(members.fetch(0, one)).records) > 0
    members.fetch(0, fetch(2, leader.epoch, last=(1, 1)))
    return members, leader.high_watermark


@pytest.mark.step("quorum", "AdvanceHighWatermark")
def test_a_majority_does_not_commit_a_record_of_an_old_epoch() -> None:
    members, high_watermark = figure_8()
    assert high_watermark == 0
    leader = members[0]
    members.fetch(0, fetch(2, leader.epoch, last=(leader.epoch, 2)))
    assert leader.high_watermark == 2


def test_without_the_rule_the_figure_would_commit_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum_leading, "next_commit", lambda current, reached, start: max(current, reached))
    assert figure_8()[1] == 1
