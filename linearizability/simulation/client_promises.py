"""Promises of a simulated broker to its clients that are checked during the run, in addition to the rules over histories.

Clients report their responses here; one that breaks a promise ends the run (`Violation`). These checks also read nodes and
metadata, so that they find a broken promise earlier than a rule over histories does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from linearizability.client.errors import error_name
from linearizability.simulation.cluster_checker import ClusterChecker
from linearizability.simulation.machine import Machine
from linearizability.simulation.schedule import GROUPS_TOPIC, TRANSACTION_TIMEOUT_MS, TRANSACTIONS_TOPIC, Schedule
from linearizability.simulation.world import MICROSECONDS_A_MS, World

TRANSACTIONS = (TRANSACTIONS_TOPIC, 0)
"""The partition with the decisions of the transaction coordinator. Where its records may be lost, it owes nothing."""


class CommittedBefore(NamedTuple):
    """The committed end of a partition at the time of a client's request."""

    leader_epoch: int
    end: int


NOTHING = CommittedBefore(-1, 0)


class ClientPromises:
    """The checks of reported responses; one instance for all clients of a run."""

    def __init__(
        self, world: World, schedule: Schedule, machines: Sequence[Machine], checker: ClusterChecker | None
    ) -> None:
        self._world = world
        self._schedule = schedule
        self._machines = machines
        self._checker = checker
        self._producer_ids: dict[tuple[int, int], str] = {}

    def may_have_lost(self, key: tuple[str, int]) -> bool:
        """Whether a partition may have lost records that a client saw."""
        if self._checker is not None:
            return self._checker.excuses(key)
        return not self._schedule.always_flushed and any(machine.power_losses for machine in self._machines)

    @property
    def is_forgetful(self) -> bool:
        """Whether the transaction coordinator may have lost decisions."""
        return self._schedule.transacts and self.may_have_lost(TRANSACTIONS)

    def on_acknowledged(self, key: tuple[str, int], end: int, who: str, acks: str) -> None:
        """Check that an acknowledged record is in a log, and with acks=all that it is committed. Errors: Violation."""
        highest = max(machine.watch.highest_end.get(key, 0) for machine in self._machines)
        if end > highest:
            text = f"{who} got an acknowledgement of {key[0]}-{key[1]} record {end - 1}, and no log ever reached beyond {highest}"
            self._world.broken("acknowledged-before-append", text)
        oracle = self._checker.oracle(key) if self._checker is not None else None
        if oracle is not None and acks == "all" and end > oracle.committed_end and not oracle.is_excused:
            text = f"{who} got an acknowledgement of {key[0]}-{key[1]} record {end - 1}, committed up to {oracle.committed_end}"
            self._world.broken("acknowledged-before-commit", text)

    def on_consumed(self, key: tuple[str, int], end: int, who: str) -> None:
        """Check that a consumer gets only committed records, from any replica. Errors: Violation."""
        oracle = self._checker.oracle(key) if self._checker is not None else None
        if oracle is not None and end > oracle.committed_end and not oracle.is_excused:
            text = f"{who} reads {key[0]}-{key[1]} up to {end}, committed up to {oracle.committed_end}"
            self._world.broken("consumed-before-commit", text)

    def committed_before(self, key: tuple[str, int]) -> CommittedBefore:
        """The present committed end, for a later `on_end`."""
        oracle = self._checker.oracle(key) if self._checker is not None else None
        return CommittedBefore(oracle.decided.leader_epoch, oracle.committed_end) if oracle is not None else NOTHING

    def on_end(self, key: tuple[str, int], end: int, leader_epoch: int, before: CommittedBefore, who: str) -> None:
        """Check that the newest leader reports no end below the committed end at the time of the request: while its high
        watermark is behind the start of its epoch, it reports none (KIP-207). Errors: Violation."""
        if leader_epoch >= before.leader_epoch and end < before.end and not self.may_have_lost(key):
            text = f"{who} was answered that {key[0]}-{key[1]} ends at {end} in leader epoch {leader_epoch}"
            self._world.broken(
                "end-behind-commit", f"{text}, and {before.end} was committed before in {before.leader_epoch}"
            )

    def on_out_of_range(self, key: tuple[str, int], who: str) -> None:
        """Check that an offset is out of range only because of retention or lost records. Errors: Violation."""
        retains = any(
            topic.name == key[0] and topic.retains for topic in (*self._schedule.topics, *self._schedule.compacted)
        )
        if not retains and not self.may_have_lost(key):
            self._world.broken(
                "offset-out-of-range", f"{who}: its place in {key[0]}-{key[1]} is gone, and nothing was lost"
            )

    def on_sequence_lost(
        self, partition: str, who: str, code: int, reloaded: bool, power_lost: bool, deposed: bool
    ) -> None:
        """Check that a broker has a reason not to know the sequence number before an idempotent producer's oldest batch.

        It may have forgotten it when it has `reloaded` a snapshot since the batch was first sent, as it was started again or
        its log was cut (a snapshot keeps each producer's last batch only), when power was lost since the producer got its id
        and not every append was flushed, and when an unclean election may have taken committed records back. And it may never
        have received it when it was `deposed` before it answered and did not know: produce requests name no leader epoch.
        Errors: Violation.
        """
        forgotten = reloaded or (power_lost and not self._schedule.always_flushed) or self._schedule.elects_uncleanly
        if not forgotten and not deposed:
            self._world.broken(
                "sequence-lost", f"{who}: {error_name(code)} for its oldest batch to {partition}, without a reason"
            )

    def on_truncation_reported(self, key: tuple[str, int], who: str) -> None:
        """Check that a log is truncated below records that clients saw only after a power loss. Errors: Violation."""
        if not self.may_have_lost(key):
            self._world.broken(
                "truncation-reported", f"{who}: {key[0]}-{key[1]} is said to have been cut, and nothing was lost"
            )

    def on_replaced_member_received(self, who: str, by: str) -> None:
        """Check that a replaced static member commits nothing (GRP-21). Errors: Violation."""
        if not self.may_have_lost((GROUPS_TOPIC, 0)):
            self._world.broken(
                "replaced-member-commits", f"{who} commits, and {by} had taken its place in the group before"
            )

    def on_repeated_end_fenced(self, who: str, open_for_us: int) -> None:
        """Check that a repeated EndTxn is fenced only after the transaction's timeout (KIP-890). Errors: Violation."""
        sets_clocks = any(fault.kind == "clock-jump" for fault in self._schedule.faults)
        is_timely = open_for_us < TRANSACTION_TIMEOUT_MS * MICROSECONDS_A_MS and not sets_clocks
        if is_timely and not self.is_forgetful:
            self._world.broken(
                "repeated-end-fenced", f"{who} asked again for the end of its transaction, and was fenced"
            )

    def claim_producer_id(self, producer_id: int, epoch: int, who: str) -> None:
        """Check that a producer id and epoch are assigned once (IDM-01). Errors: Violation."""
        other = self._producer_ids.setdefault((producer_id, epoch), who)
        forgot = self._schedule.transacts and self.may_have_lost(TRANSACTIONS)
        if (other != who and not forgot) or producer_id < 0:
            self._world.broken("producer-id-twice", f"producer id {producer_id} was given to {other} and to {who}")
