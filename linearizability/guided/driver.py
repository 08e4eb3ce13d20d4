"""The base of all drivers: it starts one step after the other, waits until each is taken, and stops at the first that is not.

A step counts as taken once the cluster's state shows it, also where it was taken together with an earlier step. The
subclasses define the cause of each step, and the messages that must wait for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from linearizability.guided.scripts import Step
from linearizability.simulation.cluster import RunningClient, SimulatedCluster
from linearizability.simulation.gates import Gates
from linearizability.simulation.schedule import Producer
from linearizability.simulation.traffic import Message
from linearizability.simulation.world import MICROSECONDS_A_MS

CHECK_EVERY_MS = 2
"""How often the driver checks whether the step was taken."""
READY_WITHIN_MS = 15_000
AFTER_LAST_STEP_MS = 60
"""How long the driver waits after the last step for its consequences."""
LAST_PRODUCER_MS = 3_000
LAST_PRODUCER = Producer(batches=5, records=1, pause_ms=20)
"""The client that produces once the script is over."""


S = TypeVar("S", bound=Step)
"""The steps of one kind of script."""


class Driver(ABC, Generic[S]):
    """Takes a cluster through one script; meanwhile it is the message filter of the network's gates."""

    def __init__(self, cluster: SimulatedCluster, steps: Sequence[S], nodes: Sequence[int]) -> None:
        """`nodes` are the nodes that take part in the script."""
        self._cluster = cluster
        self._world = cluster.world
        self._steps = steps
        self._nodes = nodes
        self._position = 0
        self._step: S | None = None
        """The step that may be taken now; None while it is prepared."""
        self._until_us = 0
        self._is_ending = False
        self._last_producer: RunningClient | None = None
        self._producer_until_us = 0

    @property
    def is_over(self) -> bool:
        if self._last_producer is None:
            return False
        return self._last_producer.finished or self._world.now_us > self._producer_until_us

    @property
    def _gates(self) -> Gates:
        assert self._cluster.network.gates is not None
        return self._cluster.network.gates

    # ---- what a kind of script defines

    @abstractmethod
    def start(self) -> None:
        """Bring the cluster to the specification's first state, then begin the first step."""

    @abstractmethod
    def holds(self, message: Message) -> bool:
        """Whether a message must wait for a later step."""

    def loses(self, message: Message) -> bool:
        """Whether the step needs a message to be lost."""
        return False

    @abstractmethod
    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """A node has traced an action of the specification."""

    def _prepare(self, step: S) -> None:
        """Meet the preconditions of a step, then begin it."""
        self._begin_step(step)

    @abstractmethod
    def _bound_ms(self, step: S) -> int:
        """How long a step may take."""

    def _may_be_skipped(self, step: S) -> bool:
        """Whether the script goes on without a step that does not come in time, since the driver cannot cause it."""
        return False

    @abstractmethod
    def _act(self, step: S) -> None:
        """Cause a step: act as an operator, a client or a fault where it needs one."""

    @abstractmethod
    def _is_made(self, step: S) -> bool:
        """Whether the cluster's state shows a step."""

    def _on_made(self, step: S) -> None:
        """A step was taken, or skipped."""

    def _on_last_step(self) -> None:
        """Every step was taken: show the consequences."""

    def _on_end(self) -> None:
        """The script is over, or the cluster did not follow it."""

    # ---- waiting for a state

    def _wait_until(self, is_so: Callable[[], bool], then: Callable[[], None]) -> None:
        """Continue with `then` once `is_so`; stop driving where that takes longer than READY_WITHIN_MS."""
        until_us = self._world.now_us + READY_WITHIN_MS * MICROSECONDS_A_MS

        def look() -> None:
            if is_so():
                then()
            elif self._world.now_us > until_us:
                self._stop_driving()
            else:
                self._world.after(CHECK_EVERY_MS * MICROSECONDS_A_MS, look)

        look()

    # ---- steps

    def _next_step(self) -> None:
        """Prepare the next step, or finish."""
        if self._position == len(self._steps):
            self._finish()
        else:
            self._prepare(self._steps[self._position])

    def _begin_step(self, step: S) -> None:
        self._step = step
        self._world.trace.note(f"step {self._position} {step.action} {step.broker}")
        if self._world.trace.keep:
            self._world.trace.log_event("world", "world", f"step {self._position}: {step.action} {step.broker}")
        self._until_us = self._world.now_us + self._bound_ms(step) * MICROSECONDS_A_MS
        self._act(step)
        self._check()

    def _check(self) -> None:
        step = self._step
        if step is None:
            return
        is_late = self._world.now_us > self._until_us
        if self._is_made(step) or (is_late and self._may_be_skipped(step)):
            self._on_made(step)
            self._position += 1
            self._world.counts["script_steps"] += 1
            self._step = None
            self._next_step()
        elif is_late:
            self._stop_driving()
        else:
            self._cluster.network.look_again()
            self._world.after(CHECK_EVERY_MS * MICROSECONDS_A_MS, self._check)

    def _is_step(self, message: Message, *actions: str) -> bool:
        """Whether the current step is one of these, and the step of the broker that sent the request."""
        return self._step is not None and self._step.action in actions and self._step.broker == message.asker

    # ---- the end

    def _finish(self) -> None:
        """Every step was taken."""
        self._is_ending = True
        self._on_last_step()
        self._cluster.network.look_again()
        self._world.after(AFTER_LAST_STEP_MS * MICROSECONDS_A_MS, self._stop_driving)

    def _stop_driving(self) -> None:
        """Hold up nothing any more and start every node: from here on the cluster must make progress by itself."""
        self._step = None
        self._gates.filter = None
        self._cluster.network.look_again()
        for number in self._nodes:
            self._cluster.machine(number).start()
        self._on_end()
        self._last_producer = self._cluster.start_planned(LAST_PRODUCER)
        self._producer_until_us = self._world.now_us + LAST_PRODUCER_MS * MICROSECONDS_A_MS
