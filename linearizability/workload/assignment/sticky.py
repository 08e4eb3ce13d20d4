"""The sticky assignor: as balanced as round robin, but a partition moves only where balance asks for it (KIP-54).

1. *Keep*: each partition stays with its last owner, if that still wants it. Of two members that claim it the one with the
   later generation is right; two of the same generation are both wrong, and neither keeps it (KIP-341).
2. *Fill*: partitions without an owner go to the subscriber with the fewest, those that the fewest members want first.
3. *Level*: while a partition's owner has at least two more than another subscriber, it goes to the one with the fewest.

Each step of 3 lowers the sum of the squared loads, so it ends. With equal subscriptions no two loads then differ by more
than one, and no other such assignment moves fewer partitions. With unequal subscriptions no single move makes it better,
and nothing more is promised. Kafka moves as many with equal subscriptions, but may choose others.
Source: org.apache.kafka.clients.consumer.StickyAssignor, without racks.
"""

from __future__ import annotations

from collections.abc import Callable

from linearizability.workload.assignment.subscription import Assignment, Group, TopicPartition

NAME = "sticky"
"""How a JoinGroup names it."""


def assign(group: Group) -> Assignment:
    """The assignment of every member."""
    assignment = keep(group)
    fill(group, assignment)
    level(group, assignment)
    return {id: sorted(partitions) for id, partitions in assignment.items()}


def keep(group: Group) -> Assignment:
    """The partitions that every member owned, still wants, and claims rightly."""
    claims: dict[TopicPartition, list[str]] = {partition: [] for partition in group.partitions()}
    for id in group.in_order():
        member = group.members[id]
        for topic, number in member.owned:
            if topic in member.topics and (topic, number) in claims:
                claims[topic, number].append(id)
    kept = group.no_member_has_anything()
    for partition, claimants in claims.items():
        latest = max((group.members[id].generation for id in claimants), default=None)
        owners = [id for id in claimants if group.members[id].generation == latest]
        if len(owners) == 1:
            kept[owners[0]].append(partition)
    return kept


def fill(group: Group, assignment: Assignment) -> None:
    """Give partitions without an owner to the members with the fewest."""
    owned = {partition for partitions in assignment.values() for partition in partitions}
    subscribers = {topic: group.subscribers(topic) for topic in group.topics()}
    free = [partition for partition in group.partitions() if partition not in owned]
    for partition in sorted(free, key=lambda each: len(subscribers[each[0]])):
        emptiest = min(subscribers[partition[0]], key=_load(assignment))
        assignment[emptiest].append(partition)


def level(group: Group, assignment: Assignment) -> None:
    """Move single partitions, from the fullest members first, until no move makes two members more alike."""
    subscribers = {topic: group.subscribers(topic) for topic in group.topics()}
    while (move := _next_move(subscribers, assignment)) is not None:
        partition, owner, emptiest = move
        assignment[owner].remove(partition)
        assignment[emptiest].append(partition)


def _next_move(subscribers: dict[str, list[str]], assignment: Assignment) -> tuple[TopicPartition, str, str] | None:
    """A partition, its owner, and its new owner; None where no move makes loads more alike."""
    load = _load(assignment)
    for owner in sorted(assignment, key=load, reverse=True):
        by_emptiest = {topic: min(subscribers[topic], key=load) for topic in {topic for topic, _ in assignment[owner]}}
        if not by_emptiest:
            continue
        emptiest = min(sorted(by_emptiest.values()), key=load)
        if load(owner) - load(emptiest) >= 2:
            partition = max(each for each in assignment[owner] if by_emptiest[each[0]] == emptiest)
            return partition, owner, emptiest
    return None


def _load(assignment: Assignment) -> Callable[[str], int]:
    """A function of a member's current number of partitions."""
    return lambda id: len(assignment[id])
