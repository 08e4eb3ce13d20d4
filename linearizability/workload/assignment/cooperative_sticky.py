"""The cooperative sticky assignor: the sticky assignment without partitions that another member still holds (KIP-429).

A partition changes hands in two rebalances: its owner is not given it in the first, gives it up and joins again; in the
second no member holds it. The others go on reading meanwhile.
Source: org.apache.kafka.clients.consumer.CooperativeStickyAssignor.
"""

from __future__ import annotations

from linearizability.workload.assignment import sticky
from linearizability.workload.assignment.subscription import Assignment, Group

NAME = "cooperative-sticky"
"""How a JoinGroup names it."""


def assign(group: Group) -> Assignment:
    """The assignment of every member."""
    holder = {partition: id for id, partitions in sticky.keep(group).items() for partition in partitions}
    return {
        id: [partition for partition in partitions if holder.get(partition, id) == id]
        for id, partitions in sticky.assign(group).items()
    }
