"""Invariants over all replicas of one partition, and the excuses of the oracle."""

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from linearizability.simulation import partition_oracle as module
from linearizability.simulation.invariants import BatchRecord
from linearizability.simulation.partition_oracle import Decided, PartitionOracle
from linearizability.simulation.world import Violation
from reference.protocol.primitives import FIRST_OFFSET, LeaderEpoch, Offset


def batch(offset: int, epoch: int, crc: int = 0) -> BatchRecord:
    return BatchRecord(Offset(offset), Offset(offset + 1), LeaderEpoch(epoch), crc)


class FakeLog:
    """A log of one-record batches, given by their epochs; `mark` makes its bytes differ from those of others."""

    log_start_offset = 0
    recovery_point = 0

    def __init__(self, *epochs: int, mark: int = 0, opened: Sequence[int] = ()) -> None:
        """`opened` are the start offsets of open transactions; one more producer has none."""
        self.batches = [batch(offset, epoch, mark) for offset, epoch in enumerate(epochs)]
        self._opened = opened

    @property
    def log_end_offset(self) -> int:
        return len(self.batches)

    def active_producers(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(current_transaction_start_offset=start) for start in (*self._opened, -1)]


def replica(
    log: FakeLog, hw: int = 0, leader: int = 1, epoch: int = 1, pending: tuple[int, ...] = (), **state: Any
) -> Any:
    def of(number: int) -> Any:
        said = SimpleNamespace(
            leader_epoch=epoch, partition_epoch=epoch, replicas=(1, 2, 3), isr=(1, 2, 3), leader=leader
        )
        vars(said).update(state)
        proposal = SimpleNamespace(isr=pending) if pending else None
        return SimpleNamespace(
            log=log, high_watermark=hw, state=said, pending=proposal, is_leader=number == leader, topic="orders"
        )

    return of


@pytest.fixture(autouse=True)
def _batches_of_fakes(monkeypatch):
    monkeypatch.setattr(module, "batches_of", lambda log, offset: log.batches[offset:])


def oracle(min_isr: int = 2, is_excused: bool = False) -> PartitionOracle:
    return PartitionOracle("orders-0", min_isr, is_excused)


def show(book: PartitionOracle, number: int, of: Any) -> None:
    book.observe(number, of(number))


def agreeing(hw: int = 2) -> tuple[PartitionOracle, dict[int, FakeLog]]:
    """Three replicas of one log, committed up to `hw`."""
    book = oracle()
    logs = {number: FakeLog(1, 1, 1) for number in (1, 2, 3)}
    for number in (2, 3):
        show(book, number, replica(logs[number]))
    show(book, 1, replica(logs[1], hw))
    return book, logs


def test_what_all_replicas_hold_is_committed():
    book, _ = agreeing(hw=2)
    assert book.committed_end == 2
    assert book.decided.leader == 1 and book.leaders == {1: 1}


def test_two_leaders_of_one_epoch():
    book, logs = agreeing()
    with pytest.raises(Violation, match="two-leaders"):
        show(book, 2, replica(logs[2], leader=2))


def test_one_epoch_and_offset_is_one_batch():
    book, _ = agreeing()
    with pytest.raises(Violation, match="logs-differ"):
        show(book, 2, replica(FakeLog(1, 1, 1, mark=9)))


def test_the_same_batch_has_the_same_batch_before_it():
    book = oracle()
    show(book, 2, replica(FakeLog(1, 2, 4)))
    with pytest.raises(Violation, match=r"logs-differ.* before"):
        show(book, 3, replica(FakeLog(1, 3, 4)))


def test_what_was_deleted_need_not_be_the_same():
    """Replicas may differ at offset 1 if the log starts at 2, and must not if it starts at 1."""
    for start, differs in ((2, False), (1, True)):
        book, log = oracle(), FakeLog(1, 2, 4)
        show(book, 2, replica(log))
        log.log_start_offset = start
        show(book, 2, replica(log))
        with pytest.raises(Violation, match="logs-differ") if differs else nullcontext():
            show(book, 3, replica(FakeLog(1, 3, 4)))


def test_what_was_committed_is_not_replaced():
    book, _ = agreeing(hw=2)
    with pytest.raises(Violation, match="committed-differs"):
        show(book, 3, replica(FakeLog(1, 2), hw=2, leader=2, epoch=2))


def test_a_new_leader_has_all_that_is_committed():
    book, _ = agreeing(hw=2)
    with pytest.raises(Violation, match=r"leader-incomplete.* up to 1"):
        show(book, 2, replica(FakeLog(1), leader=2, epoch=2))


def test_who_may_be_elected_has_all_that_is_committed():
    book = oracle()
    show(book, 2, replica(FakeLog(1, 1, 1)))
    show(book, 3, replica(FakeLog(1)))
    with pytest.raises(Violation, match=r"eligible-incomplete.*node 3"):
        show(book, 1, replica(FakeLog(1, 1, 1), hw=2))


def test_eligible_replicas_are_held_to_it_too():
    book, _ = agreeing(hw=2)
    with pytest.raises(Violation, match=r"eligible-incomplete.*node 4"):
        book.decide(Decided(9, 1, 1, (1, 2, 3, 4), (1, 2), (4,)))


@pytest.mark.parametrize(
    ("decided", "rule"),
    [
        (Decided(9, 3, 1, (1, 2, 3), (1, 2)), "leader-not-in-isr"),
        (Decided(9, 1, 1, (1, 2, 3), (1, 2), (2,)), "isr-and-elr-overlap"),
        (Decided(9, 1, 0, (1, 2, 3), (1, 2)), "leader-epoch-back"),
    ],
)
def test_a_forbidden_decision_of_the_controller_is_a_violation(decided: Decided, rule: str):
    book, _ = agreeing()
    with pytest.raises(Violation, match=rule):
        book.decide(decided)


@pytest.mark.parametrize(
    ("high_watermark", "state", "rule"),
    [
        (4, {"isr": (1, 2)}, "high-watermark-too-high"),
        (3, {"isr": (1,)}, "high-watermark-under-min-isr"),
        (3, {"isr": (1, 2)}, None),
    ],
)
def test_when_a_leader_may_move_its_high_watermark(high_watermark: int, state: Any, rule: str | None):
    book, logs = agreeing()
    leader = replica(logs[1], **state)(1)
    if rule is None:
        book.advance(1, leader, high_watermark)
        return
    with pytest.raises(Violation, match=rule):
        book.advance(1, leader, high_watermark)


def test_a_deposed_leader_counts_what_a_replica_had_that_was_taken_out_since():
    book, logs = agreeing()
    deposed = replica(logs[1])(1)
    show(book, 3, replica(FakeLog()))
    with pytest.raises(Violation, match=r"high-watermark-too-high.*node 3"):
        book.advance(1, deposed, 2)
    book.decide(Decided(9, 2, 2, (1, 2), (1, 2)))
    book.advance(1, deposed, 2)


@pytest.mark.parametrize("had", [2, 1])
def test_a_deposed_leader_counts_what_a_later_leader_had_a_member_cut(had: int):
    """But only as much as the member had."""
    book = oracle(is_excused=True)
    logs = {1: FakeLog(1, 1), 2: FakeLog(1, 1), 3: FakeLog(*[1] * had)}
    for number in (2, 3, 1):
        show(book, number, replica(logs[number]))
    deposed = replica(logs[1])(1)
    book.decide(Decided(9, 2, 2, (1, 2, 3), (2, 3)))
    book.truncated(3, FIRST_OFFSET)
    with nullcontext() if had == 2 else pytest.raises(Violation, match=r"high-watermark-too-high.*node 3"):
        book.advance(1, deposed, 2)


def test_a_proposed_member_counts_for_the_high_watermark():
    book = oracle()
    show(book, 2, replica(FakeLog(1, 1)))
    show(book, 3, replica(FakeLog(1)))
    leader = replica(FakeLog(1, 1), isr=(1, 2), pending=(1, 2, 3))(1)
    with pytest.raises(Violation, match=r"high-watermark-too-high.*node 3"):
        book.advance(1, leader, 2)


def test_a_log_that_is_cut_and_grows_again_is_read_again():
    book, logs = agreeing(hw=1)
    del logs[3].batches[1:]
    book.truncated(3, Offset(1))
    logs[3].batches += [batch(1, 2), batch(2, 2)]
    show(book, 3, replica(logs[3]))
    assert [each.leader_epoch for each in book.views[3].batches] == [1, 2, 2]


def lose_power(book: PartitionOracle, number: int) -> None:
    book.end_process(number)
    book.lost_power(number, 7)


@pytest.mark.parametrize(("had", "rejoined_in", "is_right"), [(2, 2, True), (1, 2, False), (2, 1, False)])
def test_a_deposed_leader_counts_what_a_later_leader_had_lost_with_its_power(
    had: int, rejoined_in: int, is_right: bool
):
    """But only as much as it had, and not records lost since the deposed leader had it in sync."""
    book = oracle(is_excused=True)
    logs = {1: FakeLog(1, 1), 2: FakeLog(1, 1), 3: FakeLog(*[1] * had)}
    for number in (2, 3, 1):
        show(book, number, replica(logs[number]))
    deposed = replica(logs[1])(1)
    lose_power(book, 3)
    book.rejoined(3, 8, rejoined_in)
    book.decide(Decided(9, 3, 2, (1, 2, 3), (2, 3)))
    show(book, 3, replica(FakeLog(), leader=3, epoch=2))
    with nullcontext() if is_right else pytest.raises(Violation, match=r"high-watermark-too-high.*node 3"):
        book.advance(1, deposed, 2)


def test_a_lost_tail_is_no_promise_until_its_broker_has_rejoined():
    book, _ = agreeing(hw=3)
    lose_power(book, 3)
    assert (book.lost_tails, book.is_excused) == ({3: 7}, False)
    show(book, 3, replica(FakeLog(1)))
    book.decide(Decided(9, 1, 1, (1, 2, 3), (1, 2, 3)))
    book.rejoined(3, 7, 1)
    assert 3 in book.lost_tails, "this is the incarnation in which it lost power"
    book.rejoined(3, 8, 1)
    with pytest.raises(Violation, match=r"eligible-incomplete.*node 3"):
        book.decide(Decided(10, 1, 1, (1, 2, 3), (1, 2, 3)))


def test_even_then_it_must_not_lead_without_what_is_committed():
    book, _ = agreeing(hw=3)
    lose_power(book, 3)
    with pytest.raises(Violation, match="leader-incomplete"):
        show(book, 3, replica(FakeLog(1), leader=3, epoch=2))


def test_as_many_lost_tails_as_min_isr_excuse_a_loss():
    book, _ = agreeing(hw=3)
    for number in (2, 3):
        lose_power(book, number)
    assert book.is_excused and book.excuse_nodes == (2, 3)
    show(book, 3, replica(FakeLog(1), leader=3, epoch=2))


def led_with_a_loss(*epochs: int, opened: Sequence[int] = (), hw: int = 0) -> tuple[PartitionOracle, Any]:
    """An excused oracle and its new leader, node 3, whose log has these epochs instead of three committed records of epoch 1."""
    book, _ = agreeing(hw=3)
    for number in (2, 3):
        lose_power(book, number)
    leader = replica(FakeLog(*epochs, opened=opened), hw, leader=3, epoch=2)
    show(book, 3, leader)
    return book, leader(3)


@pytest.mark.parametrize(
    ("epochs", "opened", "may_be_lost"),
    [
        ((1,), (0,), True),
        ((1, 2), (0,), True),
        ((1, 2, 2, 2), (0,), True),
        ((1, 2), (1,), False),
        ((1, 2), (0, 1), False),
        ((1, 1, 1, 2), (0,), False),
        ((1,), (), False),
    ],
)
def test_a_transaction_that_began_before_a_loss_may_hang(
    epochs: tuple[int, ...], opened: tuple[int, ...], may_be_lost: bool
):
    book, leader = led_with_a_loss(*epochs, opened=opened)
    assert book.lost_ends(3, leader) is may_be_lost


def test_one_that_began_behind_a_loss_may_hang_after_the_next():
    book, leader = led_with_a_loss(1, 2, 2, opened=(1,), hw=3)
    assert not book.lost_ends(3, leader)
    again = replica(FakeLog(1, 2, 3, opened=(1,)), leader=3, epoch=3)
    lose_power(book, 3)
    show(book, 3, again)
    assert book.lost_ends(3, again(3))


def test_what_was_lost_before_a_transaction_was_not_its_end():
    book, _ = led_with_a_loss(1, 2, hw=2)
    leader = replica(FakeLog(1, 1, 1, opened=(2,)), leader=1, epoch=3)
    show(book, 1, leader)
    assert not book.lost_ends(1, leader(1))


def test_without_an_excuse_no_transaction_may_hang():
    book, _ = agreeing(hw=3)
    lose_power(book, 3)
    follower = replica(FakeLog(1, opened=(0,)))
    show(book, 3, follower)
    assert not book.lost_ends(3, follower(3))


def test_power_may_be_lost_while_no_process_has_the_log_open():
    book, _ = agreeing(hw=3)
    book.end_process(3)
    assert not book.lost_tails
    book.lost_power(3, 7)
    assert book.lost_tails == {3: 7}


def test_a_flushed_log_loses_nothing():
    book, logs = agreeing(hw=3)
    logs[3].recovery_point = 3
    lose_power(book, 3)
    assert not book.lost_tails


def test_who_was_killed_is_in_doubt_and_counts_beside_a_lost_tail():
    book, _ = agreeing(hw=3)
    book.end_process(2, 6, is_clean=False)
    assert (book.in_doubt, book.is_excused, book.excuse_nodes) == ({2: 6}, False, ()), "nothing was lost"
    lose_power(book, 3)
    assert book.is_excused and book.excuse_nodes == (2, 3), "the controller cannot know that node 2 has everything"


def test_a_clean_end_is_no_doubt_and_rejoining_ends_it():
    book, _ = agreeing(hw=3)
    book.end_process(2, 6, is_clean=True)
    lose_power(book, 3)
    assert not book.is_excused
    book.rejoined(3, 8, 1)
    assert not book.in_doubt


def test_who_leads_late_need_not_have_what_later_leaders_committed():
    book, logs = agreeing(hw=3)
    show(book, 2, replica(logs[2], leader=2, epoch=3))
    show(book, 3, replica(FakeLog(1), leader=3, epoch=2))
    with pytest.raises(Violation, match="leader-incomplete"):
        show(book, 3, replica(FakeLog(1), leader=3, epoch=4))


def test_an_excuse_lasts_from_the_doubt_until_no_replica_lacks_a_tail():
    book, _ = agreeing(hw=3)
    reported: list[tuple[int, ...]] = []
    book.on_excuse = lambda oracle: reported.append(oracle.excuse_nodes)
    lose_power(book, 3)
    assert not reported
    book.end_process(2, 6, is_clean=False)
    book.end_process(1, 6, is_clean=False)
    book.rejoined(2, 7, 1)
    assert reported == [(2, 3), (1, 2, 3)]
    book.rejoined(3, 99, 1)
    book.end_process(2, 99, is_clean=False)
    assert reported == [(2, 3), (1, 2, 3), ()] and book.is_excused
