"""How replicas change during a run that keeps its trace: what the explorer draws for each node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from linearizability.simulation.machine import Machine

DOWN = "down"
NODE = ""
"""The partition's name in the row that says whether the node runs."""


class Sample(NamedTuple):
    """A replica after an event, where it is not as before."""

    event: int
    """The number of events until then."""
    node: str
    partition: str
    role: str
    leader_epoch: int = -1
    log_end: int = -1
    high_watermark: int = -1
    isr: tuple[int, ...] = ()


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
                        machine.name, f"{topic}-{index}", str(one.role.name).lower(), int(state.leader_epoch),
                        int(one.log.log_end_offset), int(one.high_watermark), tuple(int(member) for member in state.isr),
                    )  # fmt: skip

    return look
