"""Topics and clients as recipes draw them, for one node and for several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from linearizability.simulation.choices import Choices
from linearizability.simulation.schedule import (
    Assignor,
    Client,
    Consumer,
    Copier,
    Fault,
    Member,
    Producer,
    Schedule,
    Topic,
    Transactor,
)

WORKLOADS = ("records", "transactions", "groups", "copy")
"""What the clients of a run do besides producing and consuming single records, which is the first: see `with_workload`."""


Coordinator = Literal["coordinator", "transaction-coordinator"]


def topic(choices: Choices, index: int, flushed: bool) -> Topic:
    configs: dict[str, str] = {}
    if flushed:
        configs["flush.messages"] = "1"
    elif choices.integer(0, 2) == 2:
        configs["flush.ms"] = str(choices.integer(50, 1_000))
    if choices.integer(0, 2):
        configs["internal.segment.bytes"] = str(choices.one_of((2_000, 8_000, 20_000)))
    if choices.integer(0, 2) == 2:
        configs["index.interval.bytes"] = str(choices.one_of((0, 300)))
    if choices.integer(0, 5) == 5:
        configs["retention.bytes"] = str(choices.one_of((4_000, 20_000)))
        configs["internal.segment.bytes"] = "2000"
    if choices.integer(0, 5) == 5:
        configs["message.timestamp.type"] = "LogAppendTime"
    return Topic(name=f"orders{index}", partitions=choices.integer(1, 3), configs=configs)


PAUSES_MS = (30, 10, 3)
"""Between the batches of a producer; of several nodes every record costs more messages, and its pauses are longer."""


def producer(choices: Choices, duration_ms: int, nodes: int = 1) -> Producer:
    acks = choices.one_of(("all", "all", "all", "1", "0"))
    pause_ms = choices.one_of(PAUSES_MS) * (1 if nodes == 1 else 3)
    return Producer(
        acks=acks,
        idempotent=acks == "all" and choices.integer(0, 3) != 3,
        in_flight=choices.one_of((1, 5, 5, 3)),
        batches=max(1, duration_ms // pause_ms // choices.integer(1, 3)),
        records=choices.one_of((1, 3, 12)),
        pause_ms=pause_ms,
        codec=choices.one_of(("none", "none", "none", "gzip", "snappy", "lz4", "zstd")),
        version=choices.one_of((9, 7, 11, 12)),
    )


def consumer(choices: Choices, nodes: int = 1) -> Consumer:
    return Consumer(
        start=choices.one_of(("earliest", "latest")),
        sessions=choices.one_of((False, True)),
        max_wait_ms=choices.one_of((100, 0, 500)),
        min_bytes=choices.one_of((1, 1, 0, 2_000)),
        max_bytes=choices.one_of((1 << 16, 300, 2_000)),
        version=choices.one_of((12, 4, 7, 11, 12)),
        from_followers=nodes > 1 and choices.integer(0, 2) == 2,
    )


def with_workload(choices: Choices, schedule: Schedule, workload: str) -> Schedule:
    """Return the schedule with clients of another kind added."""
    match workload:
        case "transactions":
            return _with_transactions(choices, schedule)
        case "groups":
            return _with_groups(choices, schedule)
        case "copy":
            return _with_copies(choices, schedule)
        case _:
            return schedule


def _with_transactions(choices: Choices, schedule: Schedule) -> Schedule:
    """Transactional producers, now and then two of one id, and consumers that mostly want committed records only."""
    clients: list[Client] = []
    for client in schedule.clients:
        if isinstance(client, Consumer):
            isolation = choices.one_of(("read_committed", "read_committed", "read_uncommitted"))
            clients.append(client.model_copy(update={"isolation": isolation}))
        elif not isinstance(client, Producer):
            clients.append(client)
    shared = choices.integer(0, 2) == 2
    for _ in range(choices.integer(1, 3)):
        pause_ms = choices.one_of((40, 10, 120))
        clients.append(
            Transactor(
                id="shared" if shared else "",
                transactions=max(2, schedule.duration_ms // (pause_ms + 30)),
                aborts_percent=choices.one_of((30, 0, 60)),
                pause_ms=pause_ms,
                patience_ms=choices.one_of((0, 0, 60) if schedule.nodes == 1 else (60, 0, 60)),
                version=choices.one_of((2, 1)),
            )
        )
    clients += [client for client in schedule.clients if isinstance(client, Producer)][: choices.integer(0, 1)]
    late = [_late_batches(choices, schedule) for _ in range(choices.integer(1, 4))] if schedule.nodes > 1 else []
    lossy = [_lossy(choices, schedule)] if schedule.nodes == 1 and choices.integer(0, 2) == 2 else []
    faults = sorted((*_bearable(schedule), *late, *lossy), key=lambda fault: fault.at_ms)
    return schedule.model_copy(update={"clients": tuple(clients), "faults": tuple(faults)})


def _lossy(choices: Choices, schedule: Schedule) -> Fault:
    """Connections break all the time: some requests arrive, and their responses do not."""
    at_ms = choices.integer(1, schedule.duration_ms // 2)
    return Fault(at_ms=at_ms, kind="flaky", for_ms=schedule.duration_ms // 2, amount=choices.one_of((12, 4)))


def _late_batches(choices: Choices, schedule: Schedule) -> Fault:
    """What is sent to a partition's leader, or only what is produced, comes so late that others have gone on meanwhile."""
    topic = choices.one_of(schedule.topics)
    amount = choices.one_of((150, 80, 300))
    late = {
        "at_ms": choices.integer(100, schedule.duration_ms),
        "node": schedule.node_ids[0],
        "role": "leader",
        "topic": topic.name,
        "partition": choices.integer(0, topic.partitions - 1),
    }
    if choices.integer(0, 2):
        return Fault.model_validate(late | {"kind": "hold", "messages": "produce", "for_ms": amount})
    return Fault.model_validate(
        late | {"kind": "uneven", "for_ms": choices.one_of((600, 300, 1_200)), "amount": amount}
    )


def _with_groups(choices: Choices, schedule: Schedule) -> Schedule:
    """Members of a group or two instead of most consumers, and what befalls the groups' coordinator."""
    clients = [_placed(choices, client) for client in schedule.clients if isinstance(client, Producer)]
    members = [
        _member(choices, group) for group in ("readers", "auditors")[: choices.one_of((1, 1, 2))] for _ in range(3)
    ]
    kept = members[: len(members) - choices.integer(0, 1)] + [_member(choices, "readers")] * choices.integer(0, 1)
    faults = [*_bearable(schedule), *(_at_coordinator(choices, schedule) for _ in range(choices.integer(0, 2)))]
    kept = _in_groups(choices, kept, schedule.duration_ms)
    changed = {"clients": (*clients, *kept), "faults": tuple(sorted(faults, key=lambda fault: fault.at_ms))}
    return schedule.model_copy(update=changed)


Offer = tuple[Assignor, ...]
"""A member's assignors, the best first."""

COOPERATIVE: tuple[Offer, ...] = (("cooperative-sticky",),)
EAGER: tuple[tuple[Offer, ...], ...] = (
    (("range", "roundrobin"), ("roundrobin", "range")),
    (("sticky", "range"), ("sticky",)),
    (("roundrobin", "sticky"), ("sticky", "roundrobin")),
)  # fmt: skip
"""What the members of one group offer: there is one assignor that all of them know."""


def _placed(choices: Choices, client: Producer) -> Producer:
    """A producer whose records a partitioner places, half of the time."""
    if choices.integer(0, 1):
        return client
    partitioner = choices.one_of(("by-key", "round-robin", "sticky"))
    return client.model_copy(update={"partitioner": partitioner, "linger_ms": choices.one_of((0, 5, 40))})


def _in_groups(choices: Choices, members: list[Member], duration_ms: int) -> list[Member]:
    """Protocol and manner of rebalancing are the group's; assignors, place and end are each member's own."""
    groups = sorted({member.group for member in members})
    protocols = {group: choices.one_of(("classic", "consumer")) for group in groups}
    offers = {group: choices.one_of((*EAGER, COOPERATIVE)) for group in groups}
    statics = {group: choices.one_of((1, 0, 2)) for group in groups}
    found: list[Member] = []
    for number, member in enumerate(members):
        changed: dict[str, object] = {"protocol": protocols[member.group]}
        if protocols[member.group] == "classic":
            changed["assignors"] = choices.one_of(offers[member.group])
            if choices.integer(1, 2) <= statics[member.group]:
                changed |= {"instance": f"{member.group}-{number}", **PATIENT}
        found.append(member.model_copy(update=changed))
    found = [
        _mortal(choices, member, duration_ms) if _is_last_of_several(found, at) else member
        for at, member in enumerate(found)
    ]
    return [_conscientious(choices, member) if member.protocol == "consumer" else member for member in found]


def _conscientious(choices: Choices, member: Member) -> Member:
    """Half of the time a member commits what it has read of a partition before it gives it up."""
    return member.model_copy(update={"commits_first": True}) if choices.integer(0, 1) else member


PATIENT = {"session_timeout_ms": 1_000, "rebalance_timeout_ms": 250}
"""A static member is waited for, and kept in the generations that are formed meanwhile."""


def _is_last_of_several(members: list[Member], at: int) -> bool:
    mine = [index for index, member in enumerate(members) if member.group == members[at].group]
    return len(mine) > 1 and at == mine[-1]


def _mortal(choices: Choices, member: Member, duration_ms: int) -> Member:
    """Now and then a member dies for good: the others are to take over what it had."""
    if choices.integer(0, 2):
        return member
    return member.model_copy(update={"dies_after_ms": choices.integer(duration_ms // 2, duration_ms + 300)})


def _member(choices: Choices, group: str) -> Member:
    session_timeout_ms = choices.one_of((400, 200, 800))
    return Member(
        group=group,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=choices.one_of((500, 250, 900)),
        pause_ms=choices.one_of((15, 4, 60)),
        faults_percent=choices.one_of((4, 0, 12)),
        max_bytes=choices.one_of((2_000, 300, 1 << 16)),
    )


def _with_copies(choices: Choices, schedule: Schedule) -> Schedule:
    """Copiers of all topics into one more, a reader of committed records, and what befalls the two coordinators."""
    configs = {name: value for name, value in schedule.topics[0].configs.items() if name != "retention.bytes"}
    output = Topic(name="copies", partitions=choices.integer(1, 3), configs=configs, is_output=True)
    clients: list[Client] = [client for client in schedule.clients if isinstance(client, Producer)]
    readers = [client for client in schedule.clients if isinstance(client, Consumer)][: choices.integer(0, 1)]
    clients += [reader.model_copy(update={"isolation": "read_committed"}) for reader in readers]
    shared = choices.integer(0, 3) == 3
    offers = choices.one_of(EAGER)
    copiers = [
        _copier(choices, offers, "shared" if shared and number < 2 else "") for number in range(choices.integer(2, 4))
    ]
    clients += [*copiers[:-1], _mortal(choices, copiers[-1], schedule.duration_ms)]
    roles: tuple[Coordinator, ...] = ("coordinator", "transaction-coordinator")
    more = [_at_coordinator(choices, schedule, choices.one_of(roles)) for _ in range(choices.integer(0, 2))]
    faults = sorted((*_bearable(schedule), *more), key=lambda fault: fault.at_ms)
    changed = {"topics": (*schedule.topics, output), "clients": tuple(clients), "faults": tuple(faults)}
    return schedule.model_copy(update=changed)


def _copier(choices: Choices, offers: Sequence[Offer], id: str) -> Copier:
    member = _member(choices, "copiers").model_dump(exclude={"kind", "assignors"})
    return Copier(
        **member,
        assignors=choices.one_of(offers),
        id=id,
        aborts_percent=choices.one_of((10, 0, 40)),
        version=choices.one_of((2, 1)),
    )


def _at_coordinator(choices: Choices, schedule: Schedule, role: Coordinator = "coordinator") -> Fault:
    """A fault of the node that is the groups' or the transactions' coordinator at that time."""
    alone = schedule.nodes == 1
    kinds = (
        ("crash", "stop", "pause") if alone else ("crash", "cut", "pause", "isolate", "cut-in", "power-loss", "stop")
    )
    return Fault(
        at_ms=choices.integer(schedule.duration_ms // 4, schedule.duration_ms),
        kind=choices.one_of(kinds),
        node=schedule.node_ids[0],
        role="" if alone else role,
        for_ms=choices.one_of((300, 50, 1_200)),
    )


def _bearable(schedule: Schedule) -> tuple[Fault, ...]:
    """A node alone that loses power may forget what its coordinators wrote down, and with markers which transactions were
    aborted, with groups which generations there were: it is killed instead."""
    if schedule.nodes > 1:
        return schedule.faults
    return tuple(
        fault.model_copy(update={"kind": "crash"}) if fault.kind == "power-loss" else fault for fault in schedule.faults
    )
