"""Carries a schedule out, records its faults in the history, and heals everything afterwards."""

import heapq
import itertools
import math
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from linearizability.faults.fault import FAULTS, World
from linearizability.faults.injection import Injection
from linearizability.faults.schedule import Schedule, Wave
from linearizability.history.recorder import Recorder
from linearizability.targets.errors import TargetError

TICK_S = 0.05
LOOK_EVERY_S = 0.5
FIRST_QUIET_S = 2.0
WHOLE_WITHIN_S = 25.0
"""How long a wave's end waits until every replica is in sync, before the next wave begins anyway."""
TRUSTED_AFTER_S = 1.5
"""How long every replica must have been in sync before a node that fell is no longer in doubt."""
SILENT_FOR_S = 30.0
COMPLETE_WITHIN_S = 120.0
"""How long the cluster may take, once nothing hurts it, until every replica is in sync."""
DEATHS_A_NODE = 3
"""How often an operator starts what ended by itself, on average, before the cluster is left as it is."""


class Nemesis:
    """One run's injector of faults. Not thread-safe, except that `stopping` may be set from any."""

    def __init__(self, world: World, recorder: Recorder, partitions: int) -> None:
        self.world = world
        self.recorder = recorder
        world.mark = recorder.mark
        self.partitions = partitions
        self.stopping = threading.Event()
        self.injected: Counter[str] = Counter()
        self.leader_changes = 0
        self.deaths: list[str] = []
        """Nodes that ended by themselves."""
        self.hopeless = ""
        """Why the cluster is not helped any more; empty while it is. What was recorded until then is judged."""
        self.in_sync = False
        """Whether all replicas are, since everything was healed."""
        self._active: dict[int, tuple[Injection, dict[str, Any]]] = {}
        self._leaders: dict[int, tuple[int, int]] = {}
        self._numbers = itertools.count()
        self._began = self._ends = self._look_at = 0.0
        self._whole_since = math.inf
        self._every_tick: Callable[[float], None] = lambda elapsed: None

    def carry_out(self, schedule: Schedule, every_tick: Callable[[float], None] = lambda elapsed: None) -> None:
        """Inject and heal, wave by wave, until the waves or the seconds are over, or `stopping` is set.

        Without any wave the clients work in peace for all the seconds.
        """
        self._began = time.monotonic()
        self._ends = self._began + schedule.seconds
        self._every_tick = every_tick
        self._peace(FIRST_QUIET_S)
        for number, each in enumerate(schedule.waves, start=1):
            if self._over():
                break
            self.recorder.mark("note", text=f"wave {number}")
            self._carry_out_wave(each)
            self._until_whole()
            self._peace(each.quiet_s)
        while not schedule.waves and not self._over():
            self._tick()

    def _carry_out_wave(self, each: Wave) -> None:
        began = time.monotonic()
        due: list[tuple[float, int, Injection | None]] = [
            (injection.at_s, next(self._numbers), injection) for injection in each.injections
        ]
        heapq.heapify(due)
        while due and not self._over():
            elapsed = time.monotonic() - began
            if due[0][0] > elapsed:
                self._tick()
                continue
            _, number, injection = heapq.heappop(due)
            if injection is None:
                self._heal(number)
            elif self._inject(number, injection):
                heapq.heappush(due, (max(injection.ends_s, elapsed), number, None))
        for number in list(self._active):
            self._heal(number)

    def _until_whole(self) -> None:
        until = time.monotonic() + WHOLE_WITHIN_S
        while time.monotonic() < until and not self._over():
            self._tick()
            if self._whole() and self.world.has_its_voters:
                return

    def _whole(self) -> bool:
        view = self.world.view
        return view.complete(self.partitions) and len(view.answered) == len(self.world.nodes)

    def _peace(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self._over():
            self._tick()

    def _over(self) -> bool:
        return bool(self.hopeless) or self.stopping.is_set() or time.monotonic() >= self._ends

    def _tick(self) -> None:
        now = time.monotonic()
        if now >= self._look_at:
            self._notice()
            self._look_at = now + LOOK_EVERY_S
        self._every_tick(now - self._began)
        self.stopping.wait(TICK_S)

    def heal_all(self) -> list[str]:
        """Undo everything, start what is down, wait until all replicas are in sync. Returns what did not heal, and which
        counted faults had no effect: with either the round's verdict is unknown."""
        try:
            unhealed = self._heal_all()
        finally:
            self.world.end(self.world.operator)
        return [*unhealed, *self.world.failures]

    def _heal_all(self) -> list[str]:
        for number in list(self._active):
            self._heal(number)
        self.world.want_all_voters()
        self.world.heal_network()
        for node in sorted(self.world.sick):
            self.world.mend_disk(node)
        for node in sorted(self.world.wrong_clocks):
            self.world.set_clock(node, 0.0)
        for node in sorted(self.world.frozen):
            self.world.resume(node)
        self._revive(self.world.notice_deaths())
        for node in sorted(self.world.down):
            self.world.start(node)
        began = time.monotonic()
        operator_at = began + SILENT_FOR_S
        while time.monotonic() < began + COMPLETE_WITHIN_S:
            self._revive(self.world.notice_deaths())
            if self.hopeless:
                return [self.hopeless]
            self.world.look()
            if self._whole() and self.world.has_its_voters:
                self.in_sync = True
                self.recorder.mark("note", text="every replica is in sync")
                return []
            if time.monotonic() > operator_at:
                self._help_silent()
                operator_at = time.monotonic() + SILENT_FOR_S
            time.sleep(LOOK_EVERY_S)
        return [f"not healed within {COMPLETE_WITHIN_S:.0f} s: {_shown(self.world, self.partitions)}"]

    # ---- injections

    def _inject(self, number: int, injection: Injection) -> bool:
        try:
            done = FAULTS[injection.fault].begin(self.world, injection)
        except TargetError:
            dead = self.world.notice_deaths()
            if not dead:
                raise
            self.recorder.mark("note", text=f"{injection.fault} is left out: node {dead[0]} ended before it")
            self._revive(dead)
            return False
        if done is None:
            self.recorder.mark("note", text=f"no node was left for {injection.fault}")
            return False
        self.injected[injection.fault] += 1
        self._whole_since = math.inf
        self._active[number] = (injection, done)
        self.recorder.mark("fault", name=injection.fault, injection=number, who=injection.who, **done)
        return True

    def _heal(self, number: int) -> None:
        injection, done = self._active.pop(number)
        FAULTS[injection.fault].end(self.world, done)
        self.recorder.mark("heal", name=injection.fault, injection=number, **done)

    # ---- watching

    def _notice(self) -> None:
        self._revive(self.world.notice_deaths())
        view = self.world.look()
        self._trust_after_a_while()
        for partition, seen in view.partitions.items():
            leader = (seen.leader, seen.epoch)
            if seen.leader >= 0 and self._leaders.get(partition, leader) != leader:
                self.leader_changes += 1
                text = f"partition {partition}: leader {seen.leader}, epoch {seen.epoch}"
                self.recorder.mark("note", text=text, partition=partition, leader=seen.leader, epoch=seen.epoch)
            if seen.leader >= 0:
                self._leaders[partition] = leader

    def _trust_after_a_while(self) -> None:
        """Trust nodes that came back once all is in sync for so long that the controller must know of their fall."""
        now = time.monotonic()
        if not self._whole():
            self._whole_since = math.inf
        elif self._whole_since == math.inf:
            self._whole_since = now
        elif now - self._whole_since > TRUSTED_AFTER_S:
            self.world.trust()

    def _help_silent(self) -> None:
        """Kill and start a node that runs and does not answer long after the last injection, as an operator would."""
        for node in {node.id for node in self.world.nodes} & {*self.world.up}:
            if node not in self.world.view.answered and {"kill", "restart"} <= set(self.world.target.hooks):
                sentence = (
                    f"node {node} ran and did not answer for {SILENT_FOR_S:.0f} s after the last fault; it was killed"
                )
                self.deaths.append(sentence)
                self.recorder.mark("note", text=sentence)
                self.world.kill(node)
                self.world.start(node)

    def _revive(self, dead: list[int]) -> None:
        """Note and start again the nodes that ended by themselves, as an operator would."""
        for node in dead if not self.hopeless else ():
            if node in self.world.sick:
                self.recorder.mark("note", text=f"node {node} ended, for its disk refuses what it writes")
                continue
            if node in self.world.mended:
                self.recorder.mark("note", text=f"node {node} ended, for its disk had refused what it wrote")
                self.world.start(node)
                continue
            sentence = f"node {node} {self.world.target.ended_for_memory(node) or 'ended by itself'}"
            self.deaths.append(sentence)
            self.recorder.mark("note", text=sentence)
            if len(self.deaths) > DEATHS_A_NODE * len(self.world.nodes):
                self.hopeless = f"nodes end by themselves again and again, last node {node}"
                self.recorder.mark("note", text=self.hopeless)
                return
            self.world.start(node)


def _shown(world: World, partitions: int) -> str:
    view = world.view
    silent = sorted({node.id for node in world.nodes} - view.answered)
    wrong = [f"{len(view.partitions)} partitions instead of {partitions}"] if len(view.partitions) != partitions else []
    parts = [f"partition {p}: leader {v.leader}, in sync {list(v.in_sync)}" for p, v in view.partitions.items()]
    missing = [f"missing voters {sorted(world.missing_voters)}"] if world.missing_voters else []
    return "; ".join([*([f"silent nodes {silent}"] if silent else []), *missing, *wrong, *parts])
