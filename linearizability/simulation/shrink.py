"""Shrinks a failing schedule: fewer nodes, faults, clients, topics and settings, a shorter run, the same broken promise.

Greedy and bounded: each step proposes simpler schedules, the first that still fails in the same way is taken. A schedule's
streams of chance are named by client, connection and fault, so that what remains behaves as it did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from linearizability.simulation.schedule import ONE_NODE_FAULTS, Fault, Producer, Schedule, Topic

MAX_TRIALS = 300

Fails = Callable[[Schedule], bool]


def shrink(
    schedule: Schedule, fails: Fails, max_trials: int = MAX_TRIALS, patience: Callable[[], bool] = lambda: True
) -> tuple[Schedule, int]:
    """The smallest schedule found that still fails, and how many were tried; `patience` says whether to go on."""
    trials = 0
    simplified = True
    while simplified and trials < max_trials and patience():
        simplified = False
        for candidate in _simpler(schedule):
            trials += 1
            if fails(candidate):
                schedule, simplified = candidate, True
                break
            if trials >= max_trials or not patience():
                break
    return schedule, trials


def _simpler(schedule: Schedule) -> Iterator[Schedule]:
    """Yield simpler schedules, the boldest first."""
    for nodes in range(1, schedule.nodes):
        fewer = with_fewer_nodes(schedule, nodes)
        if fewer is not None:
            yield fewer
    for name in ("faults", "clients", "topics"):
        for fewer in _fewer(getattr(schedule, name), 0 if name == "faults" else 1):
            if name != "topics" or _kinds(fewer) == _kinds(schedule.topics):
                yield _with(schedule, **{name: fewer})
    last_ms = max((fault.at_ms for fault in schedule.faults), default=0)
    for duration_ms in (schedule.duration_ms // 2, schedule.duration_ms * 3 // 4):
        if duration_ms > max(last_ms, 20):
            yield _with(schedule, duration_ms=duration_ms)
    for index, client in enumerate(schedule.clients):
        for change in _simpler_client(client):
            yield _with(schedule, clients=_replaced(schedule.clients, index, _with(client, **change)))
    for index, topic in enumerate(schedule.topics):
        if topic.partitions > 1:
            yield _with(
                schedule, topics=_replaced(schedule.topics, index, _with(topic, partitions=topic.partitions - 1))
            )
        for name in topic.configs:
            rest = {key: value for key, value in topic.configs.items() if key != name}
            yield _with(schedule, topics=_replaced(schedule.topics, index, _with(topic, configs=rest)))
    for index, fault in enumerate(schedule.faults):
        for change in _simpler_fault(fault):
            yield _with(schedule, faults=_replaced(schedule.faults, index, _with(fault, **change)))


def _kinds(topics: Sequence[Topic]) -> set[bool]:
    """Who copies needs a topic to read and one to write."""
    return {topic.is_output for topic in topics}


def with_fewer_nodes(schedule: Schedule, nodes: int) -> Schedule | None:
    """Return the schedule with fewer nodes and without the faults that need the others; None if that is impossible."""
    faults = [_on_fewer(fault, nodes) for fault in schedule.faults]
    changed = schedule.model_dump() | {
        "nodes": nodes,
        "faults": [each.model_dump() for each in faults if each is not None],
    }
    try:
        return Schedule.model_validate(changed)
    except ValidationError:
        return None


def _on_fewer(fault: Fault, nodes: int) -> Fault | None:
    """What is left of a fault; one node alone knows no roles and no steps to wait for."""
    others = tuple(node for node in fault.others if node <= nodes)
    if fault.node > nodes or (fault.others and not others):
        return None
    if nodes > 1:
        return _with(fault, others=others)
    if fault.kind not in ONE_NODE_FAULTS or fault.after:
        return None
    return _with(fault, node=0, role="", topic="", partition=0, others=())


def _simpler_client(client: Any) -> Iterator[dict[str, Any]]:
    if isinstance(client, Producer):
        if client.batches > 1:
            yield {"batches": client.batches // 2}
            yield {"batches": client.batches - 1}
        if client.records > 1:
            yield {"records": 1}
        if client.in_flight > 1:
            yield {"in_flight": 1}
        if client.codec != "none":
            yield {"codec": "none"}
    elif client.kind == "administrator" and client.topics > 1:
        yield {"topics": client.topics - 1}
    elif client.kind == "consumer" and client.sessions:
        yield {"sessions": False}
    elif client.kind == "member" and client.faults_percent:
        yield {"faults_percent": 0}


def _simpler_fault(fault: Fault) -> Iterator[dict[str, Any]]:
    if fault.for_ms > 1:
        yield {"for_ms": fault.for_ms // 2}
    if fault.at_ms > 1:
        yield {"at_ms": fault.at_ms // 2}
    if fault.wait_ms > 1:
        yield {"wait_ms": fault.wait_ms // 2}
    if abs(fault.amount) > 1:
        yield {"amount": int(fault.amount / 2)}


def _fewer(values: tuple[Any, ...], least: int) -> Iterator[tuple[Any, ...]]:
    """Yield the halves first, then all but one value."""
    count = len(values)
    if count > 3:
        for kept in (values[: count // 2], values[count // 2 :]):
            if len(kept) >= least:
                yield kept
    if count > least:
        for index in range(count):
            yield values[:index] + values[index + 1 :]


def _replaced(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _with(value: Any, **changes: Any) -> Any:
    return value.model_copy(update=changes)
