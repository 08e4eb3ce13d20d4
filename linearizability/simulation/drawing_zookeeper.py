"""Draws schedules of a cluster that ZooKeeper coordinates, with faults of nodes, of ZooKeeper and of sessions.

Drawn after everything else. Two of five runs have one pattern of sessions alone: a controller that stands still or is cut
off for longer than its session, and comes back.
"""

from __future__ import annotations

from linearizability.simulation.choices import Choices
from linearizability.simulation.schedule import (
    METADATA_TOPIC,
    Client,
    Copier,
    Fault,
    Member,
    Producer,
    Schedule,
    Transactor,
)

KINDS = (
    "zookeeper-cut", "zookeeper-cut", "zookeeper-cut", "zookeeper-expire", "zookeeper-expire", "zookeeper-slow",
    "zookeeper-change", "zookeeper-change", "pause", "pause",
)  # fmt: skip
DIRECTORIES = frozenset({"directory-fails", "move"})
"""Faults of several log directories: a broker has one here."""

MOST_PRODUCE = 11
"""The newest version of Produce in Kafka 3.9."""

BEYOND_A_SESSION_MS = (700, 1_200, 300, 2_000)
GONE_MS = 700
"""Longer than a session, shorter than a request's timeout."""


def under_zookeeper(choices: Choices, schedule: Schedule) -> Schedule:
    """Return the schedule with the same clients, coordinated by ZooKeeper and under its faults too."""
    faults = [_timed(fault) for fault in schedule.faults if fault.kind not in DIRECTORIES]
    if choices.integer(0, 4) < 2:
        faults = _controllers_in_turn(choices, schedule)
    faults += [_fault(choices, schedule) for _ in range(choices.integer(1, 4))]
    more = choices.integer(0, 3)
    if more == 0:
        faults += _late_orders(choices, schedule)
    elif more == 1:
        faults += _depositions(choices, schedule)
    elif more == 2:
        faults += _late_metadata(choices, schedule)
    if choices.integer(0, 3) == 0:
        faults += _written_requests(choices, schedule)
    return schedule.model_copy(
        update={
            "coordination": "zookeeper",
            "log_directories": 1,
            "clients": tuple(map(_of_former_release, schedule.clients)),
            "faults": tuple(sorted(faults, key=lambda fault: fault.at_ms)),
        }
    )


def _of_former_release(client: Client) -> Client:
    """Return the client as Kafka 3.9 with ZooKeeper serves it: without KIP-848 and the second part of KIP-890."""
    match client:
        case Producer():
            return client.model_copy(update={"version": min(client.version, MOST_PRODUCE)})
        case Transactor() | Copier():
            return client.model_copy(update={"version": 1})
        case Member():
            return client.model_copy(update={"protocol": "classic"})
        case _:
            return client


def _timed(fault: Fault) -> Fault:
    """There are no steps of a metadata quorum to wait for: the fault comes at its time. What a bystander is to learn late comes
    with LeaderAndIsr."""
    if fault.messages == "metadata" and fault.role == "bystander":
        return fault.model_copy(update={"messages": "leader-and-isr"})
    if fault.topic != METADATA_TOPIC:
        return fault
    role = "controller" if fault.role in ("actor", "other", "between") else fault.role
    return fault.model_copy(update={"after": "", "topic": "", "role": role})


def _controllers_in_turn(choices: Choices, schedule: Schedule) -> list[Fault]:
    """Each controller stands still, or is cut off, while a leader falls: two may believe to be the controller."""
    found: list[Fault] = []
    at_ms = choices.integer(50, 400)
    while at_ms < schedule.duration_ms:
        kind = choices.one_of(("pause", "zookeeper-cut", "isolate", "pause"))
        for_ms = choices.one_of(BEYOND_A_SESSION_MS)
        found.append(Fault(at_ms=at_ms, kind=kind, role="controller", node=1, for_ms=for_ms))
        if choices.integer(0, 1):
            topic = choices.one_of(schedule.topics)
            later_ms = at_ms + choices.integer(0, for_ms)
            found.append(
                Fault(
                    at_ms=later_ms,
                    kind=choices.one_of(("crash", "pause", "isolate", "zookeeper-cut")),
                    role="leader",
                    node=1,
                    topic=topic.name,
                    for_ms=choices.one_of((300, 900, 1_500)),
                )
            )
        if choices.integer(0, 1):
            found.append(_reassignment(choices, schedule, at_ms + choices.integer(0, for_ms)))
        at_ms += for_ms + choices.integer(100, 800)
    return found


def _late_metadata(choices: Choices, schedule: Schedule) -> list[Fault]:
    """A broker goes and comes back. The news of its going waits on the wire and arrives after its return.

    The controller gives the request up meanwhile, and sends it again on its next connection, where it does not wait.
    """
    found: list[Fault] = []
    at_ms = choices.integer(50, 400)  # a session lasts 250 ms, a request 1,000 ms
    while at_ms < schedule.duration_ms:
        held_ms = choices.one_of((1_800, 2_200, 2_600))
        gone = choices.integer(1, schedule.nodes)
        found += [
            Fault(
                at_ms=at_ms,
                kind="hold",
                role="controller",
                node=1,
                messages="update-metadata",
                for_ms=held_ms,
                amount=GONE_MS,
            ),
            Fault(at_ms=at_ms + 1, kind=choices.one_of(("crash", "stop", "zookeeper-cut")), node=gone, for_ms=GONE_MS),
        ]
        at_ms += held_ms + choices.integer(100, 500)
    return found


def _late_orders(choices: Choices, schedule: Schedule) -> list[Fault]:
    """A replica is taken away, the order to stop it waits on the wire, and it is a replica again before the order arrives."""
    found: list[Fault] = []
    at_ms = choices.integer(50, 400)
    while at_ms < schedule.duration_ms:
        topic = choices.one_of(schedule.topics)
        partition = choices.integer(0, topic.partitions - 1)
        all_nodes = _some_nodes(choices, schedule, schedule.nodes)
        held_ms = choices.one_of((1_500, 1_200, 2_000))
        back_ms = at_ms + choices.one_of((200, 100, 500))
        found.append(
            Fault(at_ms=at_ms, kind="hold", role="controller", node=1, messages="stop-replica", for_ms=held_ms)
        )
        for when_ms, replicas in ((at_ms, all_nodes[:-1]), (back_ms, all_nodes)):
            found.append(Fault(at_ms=when_ms, kind="reassign", topic=topic.name, partition=partition, others=replicas))
        at_ms += held_ms + choices.integer(100, 500)
    return found


def _depositions(choices: Choices, schedule: Schedule) -> list[Fault]:
    """A controller loses its znode, or its session too, while it is asked for decisions; it is slow to learn of the loss.

    In half of them its connection was lost just before: it is reading what its znode is when that goes.
    """
    found: list[Fault] = []
    at_ms = choices.integer(200, 500)
    while at_ms < schedule.duration_ms:
        late_ms = choices.one_of((150, 80, 250))
        slow_ms = choices.integer(2 * late_ms, 800)
        deposed_ms = at_ms + choices.integer(late_ms // 2, slow_ms)
        found += [
            Fault(at_ms=at_ms, kind="slow-node", role="controller", node=1, for_ms=slow_ms, amount=late_ms),
            _reassignment(choices, schedule, max(at_ms, deposed_ms - choices.integer(0, late_ms))),
            Fault(
                at_ms=deposed_ms,
                kind=choices.one_of(("zookeeper-depose", "zookeeper-expire")),
                role="controller",
                node=1,
            ),
        ]
        if choices.integer(0, 1):
            cut_ms = max(at_ms, deposed_ms - choices.integer(late_ms, 4 * late_ms))
            for_ms = choices.one_of((20, 50, 100))
            found.append(Fault(at_ms=cut_ms, kind="zookeeper-cut", role="controller", node=1, for_ms=for_ms))
        at_ms += slow_ms + choices.integer(200, 800)
    return found


def _written_requests(choices: Choices, schedule: Schedule) -> list[Fault]:
    """Tools write requests into ZooKeeper, while the controller falls, or loses its session or its znode."""
    found: list[Fault] = []
    at_ms = choices.integer(50, 400)
    while at_ms < schedule.duration_ms:
        written = _reassignment(choices, schedule, at_ms)
        kind = choices.one_of(("zookeeper-reassign", "zookeeper-reassign", "zookeeper-elect"))
        befalls = choices.one_of(("crash", "zookeeper-expire", "zookeeper-depose", "zookeeper-cut", "pause"))
        for_ms = choices.one_of((300, 900, 1_500))
        found += [
            written.model_copy(update={"kind": kind}),
            Fault(
                at_ms=max(1, at_ms + choices.integer(-20, 100)), kind=befalls, role="controller", node=1, for_ms=for_ms
            ),
        ]
        at_ms += choices.integer(200, 900)
    return found


def _some_nodes(choices: Choices, schedule: Schedule, count: int) -> tuple[int, ...]:
    nodes = [*schedule.node_ids]
    return tuple(nodes.pop(choices.integer(0, len(nodes) - 1)) for _ in range(min(count, len(nodes))))


def _reassignment(choices: Choices, schedule: Schedule, at_ms: int) -> Fault:
    """Replicas go, and come back with the next one."""
    chosen = _some_nodes(choices, schedule, choices.one_of((2, schedule.nodes, 2)))
    topic = choices.one_of(schedule.topics)
    partition = choices.integer(0, topic.partitions - 1)
    return Fault(at_ms=at_ms, kind="reassign", topic=topic.name, partition=partition, others=chosen)


def _fault(choices: Choices, schedule: Schedule) -> Fault:
    kind = choices.one_of(KINDS)
    at_ms = choices.integer(1, schedule.duration_ms)
    role = choices.one_of(("controller", "controller", "leader", ""))
    topic = choices.one_of(schedule.topics).name if role == "leader" else ""
    node = choices.one_of(schedule.node_ids)
    match kind:
        case "zookeeper-change":
            return Fault(at_ms=at_ms, kind=kind, for_ms=choices.one_of((50, 200, 800)))
        case "zookeeper-slow":
            return Fault(at_ms=at_ms, kind=kind, for_ms=choices.integer(50, 800), amount=choices.integer(1, 150))
        case _:
            for_ms = choices.one_of(BEYOND_A_SESSION_MS)
            said = {"at_ms": at_ms, "kind": kind, "role": role, "node": node, "topic": topic, "for_ms": for_ms}
            return Fault.model_validate(said)
