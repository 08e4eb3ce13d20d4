"""A consumer of a classic group that rebalances incrementally (KIP-429): it keeps its partitions while it rejoins, reports
them, and gives up only those that the new generation does not assign to it; then it rejoins once more, so that others get
these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from linearizability.simulation.client import Key
from linearizability.simulation.consuming import Place
from linearizability.simulation.grouping import Position, SimulatedMember
from reference.protocol.errors import ErrorCode

KEEPS = frozenset({ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.MEMBER_ID_REQUIRED})
"""Errors on which a member rejoins without losing its partitions."""


class CooperativeMember(SimulatedMember):
    """One member whose group's assignor is cooperative."""

    def _join_again(self, code: int) -> None:
        if code not in KEEPS:
            super()._join_again(code)
            return
        self._me.generation = -1
        self._is_synced = self._is_unaware = False

    def _give_up_partitions(self) -> None:
        """Give up all partitions, and claim none: a claim of lost ones would keep them from others, as no member would revoke
        them."""
        super()._give_up_partitions()
        self._owned = -1, []

    def _take_over(self, given: Sequence[Key]) -> None:
        revoked, added = self.places.keys() - given, set(given) - self.places.keys()
        self.places = {key: self.places.get(key) or Place() for key in given}
        self._processed = {key: place for key, place in self._processed.items() if key in self.places}
        self._committed = {key: place for key, place in self._committed.items() if key in self.places}
        self.is_settled = self.is_settled and not added
        self._note_assignment(generation=self._me.generation, member=self._known_as)
        if revoked:
            self.world.counts["incremental revocations"] += 1
            self._join_again(ErrorCode.REBALANCE_IN_PROGRESS)

    def _resume(self, offsets: Mapping[Key, Position]) -> None:
        self._resume_new(offsets)
