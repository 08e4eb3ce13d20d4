"""What every conductor does: it gives one cue after the other, waits for each to be over, and leaves a score that is not
followed.

A cue is over when the cluster's state shows the step, so that one that came with the step before is passed by. What a step
needs of whom, and what has to wait for it, is the chapter's (`replication.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from linearizability.simulation.client import SimulatedClient
from linearizability.simulation.gates import Gates
from linearizability.simulation.schedule import Producer
from linearizability.simulation.score import Step
from linearizability.simulation.traffic import Message
from linearizability.simulation.world import MICROSECONDS_A_MS

if TYPE_CHECKING:
    from linearizability.simulation.life import Cluster

BEAT_MS = 2
"""So often the conductor looks whether a step was made."""
READY_WITHIN_MS = 15_000
LAST_MS = 60
"""So long a conductor looks on after the last step: what the steps brought about shows."""
CODA_MS = 3_000
CODA = Producer(batches=5, records=1, pause_ms=20)
"""Who produces once the score is over."""


S = TypeVar("S", bound=Step)
"""A chapter's steps."""


class Conductor(ABC, Generic[S]):
    """Plays one score; a doorkeeper of the network's gates meanwhile."""

    def __init__(self, cluster: Cluster, cues: Sequence[S], places: Sequence[int]) -> None:
        """`places` are the nodes that the score is played on."""
        self._cluster = cluster
        self._world = cluster.world
        self._cues = cues
        self._places = places
        self._place = 0
        self._cue: S | None = None
        """The step that may be made now; none while the stage is set for it."""
        self._until_us = 0
        self._is_ending = False
        self._coda: SimulatedClient | None = None
        self._coda_until_us = 0

    @property
    def is_over(self) -> bool:
        if self._coda is None:
            return False
        return self._coda.finished or self._world.now_us > self._coda_until_us

    @property
    def _gates(self) -> Gates:
        assert self._cluster.network.gates is not None
        return self._cluster.network.gates

    # ---- what a chapter says

    @abstractmethod
    def start(self) -> None:
        """Lead the cluster to the specification's first state, then call the first cue."""

    @abstractmethod
    def holds(self, message: Message) -> bool:
        """Whether a message has no cue yet."""

    def loses(self, message: Message) -> bool:
        """Whether the cue wants a message to be lost."""
        return False

    @abstractmethod
    def on_action(self, number: int, action: str, row: Mapping[str, Any]) -> None:
        """A step of the specification happens."""

    def _set_stage(self, cue: S) -> None:
        """Do what must be done before a step may be made, then cue it in."""
        self._cue_in(cue)

    @abstractmethod
    def _bound_ms(self, cue: S) -> int:
        """How long a step may take."""

    def _may_be_passed_by(self, cue: S) -> bool:
        """Whether a step is done without, if it does not come in time: nobody can be made to take it."""
        return False

    @abstractmethod
    def _act(self, cue: S) -> None:
        """Do what a step needs somebody to do."""

    @abstractmethod
    def _is_made(self, cue: S) -> bool:
        """Whether the cluster shows a step."""

    def _on_made(self, cue: S) -> None:
        """A step was made, or passed by."""

    def _play_end(self) -> None:
        """Every step was made: what the steps brought about is to show."""

    def _on_leaving(self) -> None:
        """The score is over, or left."""

    # ---- waiting for a state

    def _wait_until(self, is_so: Callable[[], bool], then: Callable[[], None]) -> None:
        """Go on once something is so; where it does not become so the score is left."""
        until_us = self._world.now_us + READY_WITHIN_MS * MICROSECONDS_A_MS

        def look() -> None:
            if is_so():
                then()
            elif self._world.now_us > until_us:
                self._leave()
            else:
                self._world.after(BEAT_MS * MICROSECONDS_A_MS, look)

        look()

    # ---- cues

    def _call(self) -> None:
        """Begin with the next cue."""
        if self._place == len(self._cues):
            self._finish()
        else:
            self._set_stage(self._cues[self._place])

    def _cue_in(self, cue: S) -> None:
        self._cue = cue
        self._world.trace.note(f"cue {self._place} {cue.action} {cue.broker}")
        if self._world.trace.keep:
            self._world.trace.tell("world", "world", f"cue {self._place}: {cue.action} {cue.broker}")
        self._until_us = self._world.now_us + self._bound_ms(cue) * MICROSECONDS_A_MS
        self._act(cue)
        self._beat()

    def _beat(self) -> None:
        cue = self._cue
        if cue is None:
            return
        is_late = self._world.now_us > self._until_us
        if self._is_made(cue) or (is_late and self._may_be_passed_by(cue)):
            self._on_made(cue)
            self._place += 1
            self._world.counts["cues"] += 1
            self._cue = None
            self._call()
        elif is_late:
            self._leave()
        else:
            self._cluster.network.look_again()
            self._world.after(BEAT_MS * MICROSECONDS_A_MS, self._beat)

    def _is_cue(self, message: Message, *actions: str) -> bool:
        """Whether one of these steps may be made now, and is that of the broker who asks."""
        return self._cue is not None and self._cue.action in actions and self._cue.broker == message.asker

    # ---- the end

    def _finish(self) -> None:
        """Every step was made."""
        self._is_ending = True
        self._play_end()
        self._cluster.network.look_again()
        self._world.after(LAST_MS * MICROSECONDS_A_MS, self._leave)

    def _leave(self) -> None:
        """From here on the cluster is left alone, and has to work."""
        self._cue = None
        self._gates.doorkeeper = None
        self._cluster.network.look_again()
        for number in self._places:
            self._cluster.machine(number).start()
        self._on_leaving()
        self._coda = self._cluster.add_client(CODA)
        self._coda_until_us = self._world.now_us + CODA_MS * MICROSECONDS_A_MS
