"""The range assignor: each topic by itself is cut into runs, one a subscriber, the first ones a partition longer.

Partitions of the same number of equally long topics meet at one member, so the two can be joined there (co-partitioning).
The price: the first members get the longer run of *every* topic, so many small topics pile up on them.
Source: org.apache.kafka.clients.consumer.RangeAssignor, without racks.
"""

from __future__ import annotations

from linearizability.workload.assignment.subscription import Assignment, Group

NAME = "range"
"""How a JoinGroup names it."""


def assign(group: Group) -> Assignment:
    """The assignment of every member."""
    assignment = group.no_member_has_anything()
    for topic in group.topics():
        subscribers = group.subscribers(topic)
        shortest, longer = divmod(group.partition_counts[topic], len(subscribers))
        start = 0
        for place, id in enumerate(subscribers):
            end = start + shortest + (place < longer)
            assignment[id] += [(topic, number) for number in range(start, end)]
            start = end
    return assignment
