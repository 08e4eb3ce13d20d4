"""How replicas change during a run that keeps its trace: what the explorer draws for each node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from linearizability.explorer.page import DOWN, NODE, Sample
from linearizability.simulation.machine import Machine
from reference.protocol.primitives import NO_EPOCH, LeaderEpoch
from reference.storage.log import Log


def sampler(machines: Sequence[Machine], events: list[Any], samples: list[Sample]) -> Callable[[], None]:
    """To be called at each event: appends what has changed since the last one."""
    last: dict[tuple[str, str], tuple[Any, ...]] = {}

    def note(node: str, partition: str, *state: Any) -> None:
        if last.get((node, partition)) != state:
            last[node, partition] = state
            samples.append(Sample(len(events), node, partition, *state))

    def look() -> None:
        for machine in machines:
            node = machine.node
            note(machine.name, NODE, DOWN if node is None else "up")
            for (topic, index), one in node.partitions.items() if node is not None else ():
                if one.log is not None:  # pyright: ignore[reportUnnecessaryComparison]  # while it is given up
                    state = one.state
                    note(
                        machine.name,
                        f"{topic}-{index}",
                        "none" if one.role is None else "leader" if one.is_leader else "follower",
                        int(state.leader_epoch),
                        int(one.log.log_end_offset),
                        int(one.high_watermark),
                        tuple(int(member) for member in state.isr),
                        _epochs(one.log),
                    )

    return look


def _epochs(log: Log) -> tuple[tuple[int, int], ...]:
    """Each leader epoch of a log, and the offset where it begins."""
    found: list[tuple[int, int]] = []
    epoch = log.leader_epoch
    while epoch > NO_EPOCH:
        epoch_below, start = log.end_offset_for_epoch(LeaderEpoch(epoch - 1))
        found.append((int(epoch), max(int(start), 0)))
        epoch = epoch_below
    return tuple(reversed(found))
