"""Checks one partition over all nodes: what its replicas may show together.

Every batch that any replica ever held is written down once, by the epoch and the offset that name it, with the batch that
came before it: two logs that hold it then agree up to there. What lies below any replica's high watermark is the *committed
log*; it only grows. Each view of a replica is followed as its log grows and is cut, so that a step costs what it changed.

A replica that loses power with bytes that were not flushed has *lost its tail*: it counts as gone until it has rejoined
the ISR after a restart. A replica that ended uncleanly, also by a kill, is *in doubt* until then: the controller cannot know
whether it lost something, and takes it out of ISR and ELR. As many in doubt at once as min.insync.replicas, some lost tail
among them, or an unclean election, and Kafka promises nothing more about what was committed, for the last leader is then
elected whatever it lacks: the oracle is *excused*. Source: `spec/replication/Properties.tla`; KIP-966.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from linearizability.simulation.invariants import BatchRecord, batches_of
from linearizability.simulation.world import Violation
from reference.protocol.primitives import Offset
from reference.replication.partition import Partition
from reference.storage.log import Log

NO_LEADER = -1


class Decided(NamedTuple):
    """The partition's state by the controller's newest record that any node knows."""

    partition_epoch: int = -1
    leader: int = NO_LEADER
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    eligible: tuple[int, ...] = ()
    """Eligible leader replicas (ELR)."""


@dataclass(slots=True)
class View:
    """A replica's log as last seen."""

    log: Log | None
    start: Offset
    batches: list[BatchRecord] = field(default_factory=list[BatchRecord])
    checked: int = 0
    """How many batches were found equal to the committed log's."""
    flushed: int = 0
    """Up to where the log was durable when its process ended."""

    @property
    def end(self) -> Offset:
        return self.batches[-1].next_offset if self.batches else self.start

    @property
    def checked_end(self) -> int:
        return self.batches[self.checked - 1].next_offset if self.checked else self.start

    def batch_up_to(self, end: int) -> BatchRecord | None:
        """Return the batch that ends there, if any."""
        place = bisect_right(self.batches, end, key=lambda batch: batch.next_offset) - 1
        return self.batches[place] if place >= 0 and self.batches[place].next_offset == end else None

    def cut(self, end: Offset) -> None:
        """Cut the view as the log was truncated."""
        kept = bisect_right(self.batches, end, key=lambda batch: batch.next_offset)
        del self.batches[kept:]
        self.checked = min(self.checked, kept)
        self.start = min(self.start, end)


class PartitionOracle:
    """What is known about one partition."""

    def __init__(self, name: str, min_isr: int, is_excused: bool) -> None:
        """`min_isr` is the least that min.insync.replicas ever is; excused from the start where elections are unclean."""
        self.name = name
        self.min_isr = min_isr
        self.decided = Decided()
        self.leaders: dict[int, int] = {}
        self.views: dict[int, View] = {}
        self.lost_tails: dict[int, int] = {}
        """Replica that lost its tail -> its broker epoch then."""
        self.in_doubt: dict[int, int] = {}
        """Who ended uncleanly, and the broker epoch that it had then; those who lost their tails are among them."""
        self.excuse_nodes: tuple[int, ...] = ()
        """The replicas in doubt, once these were enough for a loss, until none lacks a tail: the present excuse."""
        self.on_excuse: Callable[[PartitionOracle], None] = lambda oracle: None
        """Called when `excuse_nodes` has changed."""
        self.leader_changes = 0
        self.is_excused = is_excused
        self.has_elr = True
        """Whether eligible leader replicas are kept; without them the last in sync is elected, whatever it lost (KIP-966)."""
        self.committed_end = 0
        self._committed: dict[int, BatchRecord] = {}
        self._committed_again: set[BatchRecord] = set()
        """What was committed in the place of something else that was lost, with excuse."""
        self._batches: dict[tuple[int, int], tuple[BatchRecord, BatchRecord | None]] = {}
        self._cuts: dict[int, list[tuple[int, Offset]]] = {}
        """Of each replica the cuts of its log: the leader epoch, as it was decided, and the end before. A tail that went with the
        power is cut when its replica is back in the ISR; until then the replica is among `lost_tails`."""
        self._ends_before_loss: dict[int, Offset] = {}
        """Replica that lost its tail -> the end of its log before."""
        self._led: dict[int, int] = {}
        """The epoch in which each node was last seen leading."""
        self._deleted_below: Offset = Offset(0)
        """The highest log start of any replica: what lies below is promised no more. A loss of power may take a raised start, and
        a record of a deposed leader that nothing had truncated lies there again, in Kafka too."""

    # ---- what replicas show

    def observe(self, number: int, partition: Partition) -> None:
        """Take a change of a replica. Errors: Violation."""
        self._deleted_below = max(self._deleted_below, partition.log.log_start_offset)
        view = self._follow(number, partition.log)
        if partition.is_leader:
            self._observe_leader(number, partition)
        self._commit(number, view, partition.high_watermark)

    def observe_log(self, number: int, log: Log, high_watermark: int, led_epoch: int | None) -> None:
        """A replica of the metadata log has changed; its leader leads in this epoch. Errors: Violation."""
        former = self.views.get(number)
        view = self._follow(number, log)
        if led_epoch is not None and former is not None and former is not view and former.log is log:
            # One step of a leader may commit, write a snapshot of it, and let the log begin there.
            self._compare(number, former, min(high_watermark, log.log_start_offset), may_add=True)
        if led_epoch is not None:
            self._lead(number, led_epoch)
        if self._commit(number, view, high_watermark) and self.leaders:
            # What the newest leader does not have cannot be committed any more: a majority follows that leader.
            newest = max(self.leaders)
            self._require_complete(
                self.leaders[newest],
                f"node {self.leaders[newest]}, which leads in epoch {newest},",
                "leader-incomplete",
            )

    def _follow(self, number: int, log: Log) -> View:
        """Bring the view of a log up to date, and hold its new batches against all others' logs."""
        view = self.views.get(number)
        if view is None or view.log is not log:
            view = self.views[number] = View(log, log.log_start_offset)
        elif log.log_end_offset < view.end:
            self._cut(number, view, log.log_end_offset)
        end = view.end
        if log.log_start_offset > end or (view.batches and log.log_start_offset == end):
            view = self.views[number] = View(log, log.log_start_offset)
            end = view.end
        if log.log_end_offset > end:
            for batch in batches_of(log, end):
                self._match(number, batch, view.batches[-1] if view.batches else None)
                view.batches.append(batch)
        return view

    def _match(self, number: int, batch: BatchRecord, previous: BatchRecord | None) -> None:
        """Log matching: a batch of one epoch at one offset is one batch, and the same one precedes it everywhere."""
        if batch.next_offset <= self._deleted_below:
            return
        if previous is not None and previous.next_offset <= self._deleted_below:
            previous = None
        known, known_previous = self._batches.setdefault((batch.leader_epoch, batch.base_offset), (batch, previous))
        if known != batch:
            self._broken("logs-differ", f"node {number} holds {batch}, and another replica held {known}")
        if known_previous is None:
            self._batches[batch.leader_epoch, batch.base_offset] = (batch, previous)
        elif previous is not None and previous != known_previous and known_previous.next_offset > self._deleted_below:
            self._broken("logs-differ", f"before {batch} node {number} holds {previous}, and another {known_previous}")

    def truncated(self, number: int, end: Offset) -> None:
        """A replica says that it cuts its log: what it appends in the same step is then read again. Errors: Violation."""
        view = self.views.get(number)
        if view is not None and end < view.end:
            self._cut(number, view, end)

    def require_no_newer_epoch(self, number: int, partition: Partition) -> None:
        """A follower has appended, right now, what its leader sent: nothing of a newer leader epoch than the one in which it
        fetched, for its leader was none in that one and has cut its log since (KAFKA-18723). Errors: Violation."""
        log, epoch = partition.log, partition.state.leader_epoch
        if log.leader_epoch <= epoch:
            return
        view = self.views.get(number)
        known = view.end if view is not None and view.log is log else log.log_start_offset
        newer = next(
            (each for each in batches_of(log, max(known, log.log_start_offset)) if each.leader_epoch > epoch), None
        )
        if newer is not None:
            self._broken("newer-epoch-appended", f"node {number} follows in epoch {epoch}, and has appended {newer}")

    def _cut(self, number: int, view: View, end: Offset) -> None:
        self._cuts.setdefault(number, []).append((self.decided.leader_epoch, view.end))
        view.cut(end)
        self._require_eligible_complete()

    # ---- leaders

    def _observe_leader(self, number: int, partition: Partition) -> None:
        self._lead(number, partition.state.leader_epoch)
        self._learn(number, partition)

    def _learn(self, number: int, partition: Partition) -> None:
        """A leader may know of a decision before the record is read here: by its answer, or earlier in the same step, by the end
        of which it may follow. Of the ELR nothing is known then. Errors: Violation."""
        state = partition.state
        if state.partition_epoch > self.decided.partition_epoch:
            self.decide(Decided(state.partition_epoch, number, state.leader_epoch, state.replicas, state.isr))

    def _lead(self, number: int, epoch: int) -> None:
        """One leader an epoch, and the newest has all that is committed."""
        if self._led.get(number) != epoch:
            other = self.leaders.setdefault(epoch, number)
            if other != number:
                self._broken("two-leaders", f"nodes {other} and {number} both lead in epoch {epoch}")
            self._led[number] = epoch
            earlier = [each for each in self.leaders if each < epoch]
            if earlier and self.leaders[max(earlier)] != number:
                self.leader_changes += 1
            if epoch >= max(*self.leaders, self.decided.leader_epoch):
                # A broker that learns late of its election need not have what later leaders have committed.
                self._require_complete(number, f"node {number}, which leads in epoch {epoch},", "leader-incomplete")

    def decide(self, decided: Decided) -> None:
        """Take a newer record of the controller. Errors: Violation."""
        before, self.decided = self.decided, decided
        if decided.leader_epoch < before.leader_epoch:
            self._broken("leader-epoch-back", f"{before} was followed by {decided}")
        if decided.leader != NO_LEADER and decided.leader not in decided.isr:
            self._broken("leader-not-in-isr", f"{decided}")
        if {*decided.isr} & {*decided.eligible}:
            self._broken("isr-and-elr-overlap", f"{decided}")
        self._require_eligible_complete()

    def require_known_members(self, number: int, partition: Partition) -> None:
        """A leader of the present epoch counts all members of the controller's ISR. Errors: Violation."""
        state, pending = partition.state, partition.pending
        known = {*state.isr, *(pending.isr if pending is not None else ())}
        if state.leader_epoch == self.decided.leader_epoch and not {*self.decided.isr} <= known:
            text = f"the ISR is {list(self.decided.isr)}, and node {number}, which leads, counts {sorted(known)} only"
            self._broken("isr-unknown-to-leader", text)

    def advance(self, number: int, partition: Partition, high_watermark: int) -> None:
        """A leader moves its high watermark, right now. Errors: Violation."""
        self._learn(number, partition)
        state = partition.state
        required = min(self.min_isr, len(state.replicas))
        if len(state.isr) < required:
            text = f"node {number} moves its high watermark to {high_watermark} with the ISR {list(state.isr)}"
            self._broken("high-watermark-under-min-isr", f"{text}, where {required} are needed")
        pending = partition.pending.isr if partition.pending is not None else ()
        for member in (
            {*state.isr, *pending}
            - {number, *self.lost_tails}
            - self._given_up_since(state.leader_epoch, high_watermark)
        ):
            view = self.views.get(member)
            end = view.end if view is not None else 0
            if end < high_watermark:
                text = f"node {number} moves its high watermark to {high_watermark}, and node {member} ends at {end}"
                self._broken("high-watermark-too-high", text)

    def _given_up_since(self, leader_epoch: int, end: int) -> set[int]:
        """Who may have had the records below `end` in that epoch, and has given them up since: its last fetch may yet reach a
        leader that does not know that it is none.

        A replica that was taken out of the ISR has thrown its log away, and those in sync have what it had; one in sync had them,
        and was cut to the log of a later leader, which had lost its own, or lost them with its power and is in sync by a later
        leader's word, or as one that was elected uncleanly.
        """
        if leader_epoch >= self.decided.leader_epoch:
            return set()
        cut = {
            each
            for each, cuts in self._cuts.items()
            if any(epoch > leader_epoch and before >= end for epoch, before in cuts)
        }
        return cut | {*self.views} - {*self.decided.isr, *self.decided.eligible}

    def count_follower(self, number: int, partition: Partition, follower: int, end: int) -> None:
        """A leader learns how far a follower is, right now: in the newest leader epoch the two logs agree up to there.

        Else it counts what the follower has lost meanwhile, or never had. What the leader deleted is unknown: a follower that
        is older than the leader's epochs is cut to the leader's log start, and begins again there. Errors: Violation.
        """
        view, own = self.views.get(follower), self.views.get(number)
        if view is None or own is None or partition.state.leader_epoch < self.decided.leader_epoch:
            return
        if end <= partition.log.log_start_offset:
            return
        ours = own.batch_up_to(end)
        if ours is None or view.start >= end or follower in self.lost_tails:
            return
        theirs = view.batch_up_to(end)
        if theirs is None or theirs.leader_epoch != ours.leader_epoch:
            text = f"node {number}, which leads, takes node {follower} to have all up to {ours}, and that has {theirs} there"
            self._broken("follower-end-imagined", f"{text}, and ends at {view.end}")

    def acknowledge(self, number: int, partition: Partition) -> None:
        """A leader answers acks=all, right now: its maximal ISR must be large enough (ACK-06). Errors: Violation."""
        state = partition.state
        pending = partition.pending.isr if partition.pending is not None else ()
        members = {*state.isr, *pending}
        required = min(self.min_isr, len(state.replicas))
        if len(members) < required:
            text = f"node {number} acknowledges with the ISR {sorted(members)}, where {required} are needed"
            self._broken("acknowledged-under-min-isr", text)

    # ---- what is committed

    def _commit(self, number: int, view: View, high_watermark: int) -> bool:
        """Hold what a replica calls committed against what others did, and add what is new; whether there was any."""
        grown = self._compare(number, view, high_watermark, may_add=True)
        if grown:
            self._require_eligible_complete()
        return grown

    def _compare(self, number: int, view: View, end: int, may_add: bool = False) -> bool:
        """Compare a view's batches up to an offset; whether the committed log has grown. Errors: Violation."""
        batches, committed = view.batches, self._committed
        grown = False
        while view.checked < len(batches) and batches[view.checked].next_offset <= end:
            batch = batches[view.checked]
            known = committed.get(batch.base_offset)
            if known is None and batch.base_offset >= self.committed_end:
                if not may_add:
                    break
                committed[batch.base_offset] = batch
                self.committed_end = batch.next_offset
                grown = True
            elif known != batch and (known is not None or committed):
                if not self.is_excused:
                    self._broken("committed-differs", f"node {number} holds {batch} where {known} was committed")
                self._committed_again.add(batch)
            view.checked += 1
        return grown

    def _require_eligible_complete(self) -> None:
        for member in (*self.decided.isr, *self.decided.eligible):
            if member not in self.lost_tails:
                self._require_complete(member, f"node {member}, which may be elected,", "eligible-incomplete")

    def _require_complete(self, number: int, who: str, rule: str) -> None:
        """A replica has every committed record. Errors: Violation, unless the oracle is excused."""
        if self.is_excused or not self.committed_end:
            return
        view = self.views.get(number)
        if view is None:
            self._broken(rule, f"{who} has no log, and records up to {self.committed_end} are committed")
        self._compare(number, view, self.committed_end)
        if view.checked_end < self.committed_end:
            text = f"{who} has the committed log up to {view.checked_end} only, of {self.committed_end}"
            self._broken(rule, text)

    def lost_ends(self, number: int, partition: Partition) -> bool:
        """Whether the end of each transaction that is open in a replica may be gone, with excuse.

        Something committed behind the transaction's first batch is not there any more. Where the marker was, the coordinator
        knows it to be written and does not write it again; what begins behind the loss it has yet to end.
        """
        view = self.views.get(number)
        held = view.batches if view is not None else []
        gone = {*self._committed.values(), *self._committed_again}.difference(held)
        starts = {each.current_transaction_start_offset for each in partition.log.active_producers()}
        opening = [batch for batch in held if batch.base_offset in starts]
        return (
            self.is_excused
            and bool(opening)
            and all(
                any(lost.base_offset > first.base_offset and lost.leader_epoch >= first.leader_epoch for lost in gone)
                for first in opening
            )
        )

    # ---- faults

    def end_process(self, number: int, broker_epoch: int = -1, is_clean: bool = True) -> None:
        """A replica's process is gone; what it had not flushed depends on the power now."""
        view = self.views.get(number)
        if not is_clean and view is not None:
            self.in_doubt[number] = broker_epoch
            self._count_lost_tails()
        if view is not None and view.log is not None:
            view.flushed = view.log.recovery_point
            view.log = None

    def lost_power(self, number: int, broker_epoch: int) -> None:
        """A machine has lost power, whether or not its process had opened the log in this incarnation."""
        view = self.views.get(number)
        if view is not None and view.flushed < view.end:
            self.lost_tails[number] = self.in_doubt[number] = broker_epoch
            self._ends_before_loss[number] = max(view.end, self._ends_before_loss.get(number, Offset(0)))
            self._count_lost_tails()

    def _count_lost_tails(self) -> None:
        count = len(self.in_doubt) if self.lost_tails else 0
        replicas = len(self.decided.replicas) or count
        if count and (count >= min(self.min_isr, replicas) or not self.has_elr):
            self.is_excused = True
            self._excuse({*self.excuse_nodes, *self.in_doubt})

    def _excuse(self, nodes: set[int]) -> None:
        if nodes != {*self.excuse_nodes}:
            self.excuse_nodes = tuple(sorted(nodes))
            self.on_excuse(self)

    def rejoined(self, number: int, broker_epoch: int, leader_epoch: int) -> None:
        """A member of this leader epoch's ISR is registered with this broker epoch: in a later incarnation, its tail is whole."""
        if number in self.lost_tails and broker_epoch > self.lost_tails[number]:
            self._cuts.setdefault(number, []).append((leader_epoch, self._ends_before_loss.pop(number)))
        for gone in (self.lost_tails, self.in_doubt):
            if number in gone and broker_epoch > gone[number]:
                del gone[number]
        if not self.lost_tails:
            self._excuse(set())

    def _broken(self, rule: str, text: str) -> NoReturn:
        raise Violation(rule, f"{self.name}: {text}")
