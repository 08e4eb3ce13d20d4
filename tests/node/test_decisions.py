"""The queue of the active controller: responses wait for the commit, and a deposed controller sends none."""

from __future__ import annotations

from dataclasses import dataclass

from reference.node.decisions import MAX_WAITING, Decisions
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from reference.protocol.primitives import AT_ONCE, FIRST_EPOCH, FIRST_OFFSET, LeaderEpoch, Offset, TimestampMs
from reference.protocol.schema import Message

ANSWER = BrokerHeartbeatResponse()


@dataclass
class Quorum:
    """A quorum whose progress the test makes."""

    epoch: LeaderEpoch = FIRST_EPOCH
    high_watermark: Offset = FIRST_OFFSET
    log_end_offset: Offset = FIRST_OFFSET
    is_ready: bool = True


class Story:
    def __init__(self) -> None:
        self.quorum = Quorum()
        self.applied = FIRST_OFFSET
        self.events: list[str] = []
        self.decisions = Decisions(self.quorum, lambda: self.applied)

    def submit(self, name: str, records: int = 1) -> None:
        def decide(now: int) -> Message:
            self.events.append(f"decide {name}")
            self.quorum.log_end_offset += records
            return ANSWER

        self.decisions.submit(
            decide,
            lambda answer, now: self.events.append(f"answer {name}"),
            lambda now: self.events.append(f"abandon {name}"),
            TimestampMs(0),
        )

    def commit(self) -> None:
        self.quorum.high_watermark = self.applied = self.quorum.log_end_offset
        self.decisions.advance(AT_ONCE)


def test_a_decision_without_records_is_answered_at_once() -> None:
    story = Story()
    story.submit("look", records=0)
    assert story.events == ["decide look", "answer look"]


def test_answers_wait_for_the_commit_and_the_next_decision_for_the_answer() -> None:
    story = Story()
    story.submit("first")
    story.submit("second")
    assert story.events == ["decide first"]
    story.commit()
    assert story.events == ["decide first", "answer first", "decide second"]
    story.commit()
    assert story.events[-1] == "answer second"


def test_committed_but_not_applied_is_not_enough() -> None:
    story = Story()
    story.submit("first")
    story.quorum.high_watermark = Offset(1)
    story.decisions.advance(AT_ONCE)
    assert story.events == ["decide first"]


def test_a_deposed_controller_sends_no_response() -> None:
    story = Story()
    story.submit("first")
    story.submit("second")
    story.quorum.is_ready = False
    story.decisions.advance(AT_ONCE)
    assert story.events == ["decide first", "abandon first", "abandon second"]


def test_a_new_leader_epoch_does_not_answer_for_the_one_before() -> None:
    """The same node leads again: its records may have been replaced meanwhile."""
    story = Story()
    story.submit("first")
    story.quorum.epoch = LeaderEpoch(3)
    story.commit()
    assert story.events == ["decide first", "abandon first"]


def test_a_decision_waits_for_uncommitted_records() -> None:
    """Records that a tick of the controller wrote, not a decision."""
    story = Story()
    story.quorum.log_end_offset = Offset(2)
    story.submit("first")
    assert story.events == []
    story.commit()
    assert story.events == ["decide first"]


def test_no_controller_abandons_at_once_and_the_line_has_an_end() -> None:
    story = Story()
    story.quorum.is_ready = False
    story.submit("nobody")
    assert story.events == ["abandon nobody"]
    story.quorum.is_ready, story.quorum.log_end_offset = True, Offset(1)
    for _ in range(MAX_WAITING):
        story.submit("waits")
    assert story.events == ["abandon nobody"]
    story.submit("too many")
    assert story.events[-1] == "abandon too many"
