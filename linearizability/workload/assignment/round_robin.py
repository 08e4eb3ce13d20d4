"""The round robin assignor: all partitions of all topics in one row, dealt out to the members in turn.

A member without the topic is passed over. With equal subscriptions no member has two partitions more than another; with
unequal ones it may have many more. A member that comes or goes moves almost everything.
Source: org.apache.kafka.clients.consumer.RoundRobinAssignor.
"""

from __future__ import annotations

from linearizability.workload.assignment.subscription import Assignment, Group

NAME = "roundrobin"
"""How a JoinGroup names it."""


def assign(group: Group) -> Assignment:
    """The assignment of every member."""
    assignment = group.no_member_has_anything()
    circle = group.in_order()
    turn = 0
    for topic, number in group.partitions():
        while topic not in group.members[circle[turn]].topics:
            turn = (turn + 1) % len(circle)
        assignment[circle[turn]].append((topic, number))
        turn = (turn + 1) % len(circle)
    return assignment
