"""Timers against a model: a dictionary of deadlines."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from reference.coordinator.timers import Timers
from reference.protocol.primitives import TimestampMs

KEYS = st.sampled_from("abcd")


class TimersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.timers: Timers[str] = Timers()
        self.deadlines: dict[str, int] = {}
        self.now = TimestampMs(0)

    @rule(key=KEYS, after=st.integers(0, 20))
    def schedule(self, key: str, after: int) -> None:
        self.timers.schedule(key, self.now + after)
        self.deadlines[key] = self.now + after

    @rule(key=KEYS)
    def cancel(self, key: str) -> None:
        self.timers.cancel(key)
        self.deadlines.pop(key, None)

    @rule(ms=st.integers(1, 15))
    def advance(self, ms: int) -> None:
        self.now += ms
        due = sorted((at, key) for key, at in self.deadlines.items() if at <= self.now)
        taken: list[tuple[int, str]] = []
        while (key := self.timers.take_due(self.now)) is not None:
            taken.append((self.deadlines.pop(key), key))
        assert sorted(taken) == due
        assert [at for at, _ in taken] == [at for at, _ in due]

    @invariant()
    def agree(self) -> None:
        assert len(self.timers) == len(self.deadlines)
        assert self.timers.next_deadline() == min(self.deadlines.values(), default=None)
        assert all(self.timers.deadline_of(key) == at for key, at in self.deadlines.items())


TestTimers = TimersMachine.TestCase
