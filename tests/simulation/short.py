"""Schedules short enough for CI: drawn runs of less than half a second of virtual time."""

from linearizability.simulation.drawing import draw
from linearizability.simulation.schedule import Producer, Schedule

SHORT_MS = 400


def short(seed: int, mutant: str | None = None, nodes: int = 1) -> Schedule:
    """The schedule of a seed with shorter times."""
    schedule = draw(seed, mutant, nodes)
    share = SHORT_MS / schedule.duration_ms
    faults = tuple(fault.model_copy(update={"at_ms": int(fault.at_ms * share)}) for fault in schedule.faults)
    clients = tuple(
        client.model_copy(update={"batches": max(1, client.batches // 4)}) if isinstance(client, Producer) else client
        for client in schedule.clients
    )
    return schedule.model_copy(update={"duration_ms": SHORT_MS, "faults": faults, "clients": clients})
