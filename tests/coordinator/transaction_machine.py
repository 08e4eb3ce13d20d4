"""Random runs of transactions: sessions, writes, ends, timeouts, crashes and lost markers in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reference.coordinator.transaction_coordinator import Decided
from reference.coordinator.transaction_sessions import Identity
from reference.coordinator.transaction_state import COMPLETED, PREPARED, State
from reference.protocol.errors import KafkaError
from reference.storage.errors import LogError
from tests.coordinator.transaction_world import TIMEOUT_MS, Late, Session, World

IDS = ("a", "b")
SETTLED_WITHIN = 20
"""Rounds in which everything that is open comes to an end, when nothing is lost any more."""


class TransactionMachine(RuleBasedStateMachine):
    """The steps, and what must hold after each and at the end."""

    @initialize(server_version=st.sampled_from([0, 2]), commits_at_once=st.booleans())
    def begin(self, server_version: int, commits_at_once: bool) -> None:
        self.world = World(server_version, partitions=2, commits_at_once=commits_at_once)
        self.sessions: list[Session] = []
        self.late: list[Late] = []
        self.begin_session("a", server_version)
        self.world.commit_all()

    def _session(self, data: Any) -> Session:
        """Mostly one of the last: most of the others are fenced for good."""
        return data.draw(st.sampled_from(self.sessions[-3:]))

    # ---- clients

    @rule(id=st.sampled_from(IDS), version=st.sampled_from([0, 2]))
    def begin_session(self, id: str, version: int) -> None:
        world = self.world
        try:
            decided = world.coordinator.new_session(id, TIMEOUT_MS, None, world.now)
        except KafkaError:
            world.write(None)
            return
        world.write(decided, lambda: self._begun(id, min(version, world.server_version), decided))

    def _begun(self, id: str, version: int, decided: Decided) -> None:
        if decided.transaction.state is not State.EMPTY:
            return
        for other in self.sessions:
            other.is_superseded |= other.id == id
        identity = Identity(decided.transaction.producer_id, decided.transaction.epoch)
        self.sessions.append(Session(id, len(self.sessions), identity, version))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), index=st.integers(0, 1))
    def add_partition(self, data: Any, index: int) -> None:
        session, world = self._session(data), self.world
        if session.version < 2:
            partition = [*world.partitions][index]
            try:
                world.write(world.coordinator.add_partitions(session.id, session.identity, [partition], 0, world.now))
            except KafkaError:
                return

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), index=st.integers(0, 1), is_late=st.booleans())
    def write(self, data: Any, index: int, is_late: bool) -> None:
        session = self._session(data)
        try:
            self.world.verify(session, [*self.world.partitions][index], self.late.append if is_late else self._arrive)
        except (KafkaError, LogError):
            return

    def _arrive(self, late: Late) -> None:
        try:
            self.world.append(late)
        except LogError:
            return

    @precondition(lambda self: self.late)
    @rule(data=st.data(), stays=st.booleans())
    def arrive(self, data: Any, stays: bool) -> None:
        """A verified write arrives at its partition; it may come once more."""
        at = data.draw(st.integers(0, len(self.late) - 1))
        self._arrive(self.late[at] if stays else self.late.pop(at))

    @precondition(lambda self: self.sessions)
    @rule(data=st.data(), committed=st.booleans())
    def end(self, data: Any, committed: bool) -> None:
        session, world = self._session(data), self.world
        label = session.label
        try:
            decided, identity = world.coordinator.end_transaction(
                session.id, session.identity, committed, session.version, world.now
            )
        except KafkaError:
            return
        then = identity if session.version >= 2 else session.identity

        def ended() -> None:
            world.ends.setdefault(label, set()).add(committed)
            if session.label == label:
                session.go_on(then)

        world.write(decided, ended)

    # ---- the coordinator

    @rule(data=st.data())
    def commit(self, data: Any) -> None:
        self.world.commit(data.draw(st.integers(self.world.committed, len(self.world.log))))

    @rule(data=st.data())
    def crash(self, data: Any) -> None:
        self.world.crash(data.draw(st.integers(self.world.committed, len(self.world.log))))

    @precondition(lambda self: self.world.markers)
    @rule(data=st.data(), stays=st.booleans(), is_answered=st.booleans())
    def deliver_marker(self, data: Any, stays: bool, is_answered: bool) -> None:
        markers = self.world.markers
        at = data.draw(st.integers(0, len(markers) - 1))
        self.world.deliver(markers[at] if stays or not is_answered else markers.pop(at), is_answered)

    @rule()
    def deliver_all_markers(self) -> None:
        markers, self.world.markers = self.world.markers, []
        for marker in markers:
            self.world.deliver(marker, is_answered=True)

    @rule(passed_ms=st.integers(1, 2 * TIMEOUT_MS))
    def time_passes(self, passed_ms: int) -> None:
        world = self.world
        world.now += passed_ms
        for id in world.coordinator.timed_out(world.now):
            world.write(world.coordinator.time_out(id, world.now))

    # ---- what must hold

    @invariant()
    def no_transaction_has_two_outcomes(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        found: dict[str, set[bool]] = {}
        for partition in world.partitions:
            for label, outcomes in world.outcomes(partition).items():
                found.setdefault(label, set()).update(each for each in outcomes if each is not None)
        for label, outcomes in found.items():
            reported = world.ends.get(label, set())
            assert len(outcomes | reported) <= 1, f"{label} was reported {reported} and ended {outcomes}"

    def teardown(self) -> None:
        """When nothing is lost any more, everything that is open is ended, everywhere."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.crash(len(world.log))
        world.now += TIMEOUT_MS + 1
        for _ in range(SETTLED_WITHIN):
            for id in world.coordinator.timed_out(world.now):
                world.write(world.coordinator.time_out(id, world.now))
            world.commit_all()
            markers, world.markers = world.markers, []
            for marker in markers:
                world.deliver(marker, is_answered=True)
            world.commit_all()
            if all(each.state in COMPLETED | {State.EMPTY} for each in world.coordinator.transactions.values()):
                break
        states = {each.id: each.state.title for each in world.coordinator.transactions.values()}
        assert not any(each.state in PREPARED | {State.ONGOING} for each in world.coordinator.transactions.values()), (
            states
        )
        for partition in world.partitions:
            hanging = [label for label, outcomes in world.outcomes(partition).items() if None in outcomes]
            assert not hanging, f"{hanging} hang in {partition}"
        self.no_transaction_has_two_outcomes()
