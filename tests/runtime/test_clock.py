"""One `now` for timestamps and deadlines: never backward, never a leap over a deadline, back to the wall clock in time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference.runtime.clock import MAX_LAG_NS, Clock

MS = 1_000_000
SECOND = 1000 * MS
HOUR = 3600 * SECOND
START = 1_700_000_000 * SECOND


class Machine:
    """A machine's two clocks, and the broker's clock on it."""

    def __init__(self) -> None:
        self.passed = 0
        self.wall_offset = START
        self.look_takes = 0
        self.clock = Clock(self.wall, lambda: self.passed)

    def wall(self) -> int:
        self.passed += self.look_takes
        return self.wall_offset + self.passed

    def let_pass(self, ns: int, look_every: int = SECOND // 4) -> int:
        """Let time pass while the broker looks at its clock; gives `now` at the end."""
        end = self.passed + ns
        while self.passed < end:
            self.passed = min(end, self.passed + look_every)
            self.clock.now()
        return self.clock.now()

    def wall_ms(self) -> int:
        return (self.wall_offset + self.passed) // MS


def test_it_is_a_wall_clock_that_is_never_set() -> None:
    machine = Machine()
    assert machine.clock.now() == START // MS
    for _ in range(100):
        assert machine.let_pass(777 * MS) == machine.wall_ms()


def test_a_step_back_parks_nothing() -> None:
    """The defect: a fetch that waits 500 ms waited as long as the wall clock was set back."""
    machine = Machine()
    before = machine.let_pass(10 * SECOND)
    machine.wall_offset -= HOUR
    after = machine.let_pass(SECOND, look_every=10 * MS)
    assert 900 <= after - before <= 1000


def test_a_step_forward_expires_nothing() -> None:
    machine = Machine()
    before = machine.let_pass(10 * SECOND)
    machine.wall_offset += 60 * SECOND
    after = machine.let_pass(SECOND, look_every=10 * MS)
    assert 1000 <= after - before <= 1100


def test_steps_are_made_good() -> None:
    for step in (60 * SECOND, -60 * SECOND):
        machine = Machine()
        machine.wall_offset += step
        assert abs(machine.let_pass(500 * SECOND) - machine.wall_ms()) > 1
        assert abs(machine.let_pass(120 * SECOND) - machine.wall_ms()) <= 1


def test_far_behind_it_leaps() -> None:
    """A machine that slept for a day, or whose clock was first set after the broker's start."""
    machine = Machine()
    machine.wall_offset += 24 * HOUR
    assert machine.let_pass(2 * SECOND) == machine.wall_ms()


def test_far_ahead_it_waits() -> None:
    machine = Machine()
    before = machine.let_pass(10 * SECOND)
    machine.wall_offset -= 24 * HOUR
    assert machine.let_pass(1000 * SECOND) - before == 900_100


def test_a_look_that_was_interrupted_says_nothing() -> None:
    """The process was put aside between its looks at the two clocks: they seem to differ, and do not."""
    machine = Machine()
    machine.look_takes = 40 * MS
    machine.passed += SECOND
    machine.clock.now()
    machine.look_takes = 0
    assert machine.let_pass(SECOND // 2, look_every=MS) == machine.wall_ms()


@given(
    st.lists(
        st.tuples(st.integers(-2 * HOUR, 2 * HOUR), st.integers(0, 5 * SECOND), st.integers(0, 3 * MS)), max_size=50
    )
)
def test_it_never_runs_backward_and_leaps_only_when_far_behind(steps: list[tuple[int, int, int]]) -> None:
    machine = Machine()
    last, last_at = machine.clock.now(), machine.passed
    for step, passed, look_takes in steps:
        machine.wall_offset += step
        machine.passed += passed
        machine.look_takes = look_takes
        now, at = machine.clock.now(), machine.passed
        if now - last > (at - last_at + 2 * 3 * MS) // MS * 1.1 + 2:  # a look's own time lies before or behind `now`
            assert now - last > MAX_LAG_NS // MS
            assert now <= machine.wall_ms()
        assert now - last >= passed // MS * 0.9 - 1
        last, last_at = now, at
