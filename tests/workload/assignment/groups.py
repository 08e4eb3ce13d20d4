"""Random groups: members that want the same topics or different ones, own nothing or what some assignment gave them."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from linearizability.workload.assignment.subscription import Assignment, Group, Member

TOPICS = ("clicks", "orders", "payments")
IDS = ("ann", "bob", "cid", "dan", "eve", "fay")
MOST_PARTITIONS = 9

counts = st.fixed_dictionaries({topic: st.integers(0, MOST_PARTITIONS) for topic in TOPICS})
some_topics = st.frozensets(st.sampled_from((*TOPICS, "missing")))
some_ids = st.lists(st.sampled_from(IDS), min_size=1, unique=True)


@st.composite
def groups(draw: st.DrawFn, same_topics: bool = False) -> Group:
    """A group in its first generation."""
    shared = draw(some_topics)
    instances = draw(st.permutations(range(len(IDS))))
    members = {
        id: Member(
            shared if same_topics else draw(some_topics),
            instance_id=f"instance-{instances[place]}" if draw(st.booleans()) else None,
        )
        for place, id in enumerate(draw(some_ids))
    }
    return Group(members, draw(counts))


@st.composite
def claims(draw: st.DrawFn) -> Group:
    """A group in which any member claims anything, of any generation: late members, and members that lie."""
    group = draw(groups())
    partition = st.tuples(st.sampled_from((*TOPICS, "missing")), st.integers(0, MOST_PARTITIONS))
    return Group(
        {
            id: replace(member, owned=draw(st.frozensets(partition)), generation=draw(st.integers(-1, 3)))
            for id, member in group.members.items()
        },
        group.partition_counts,
    )


def owning(group: Group, assignment: Assignment, generation: int = 1) -> Group:
    """The group as it joins again after an assignment."""
    return Group(
        {
            id: replace(member, owned=frozenset(assignment[id]), generation=generation) if id in assignment else member
            for id, member in group.members.items()
        },
        group.partition_counts,
    )


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions were taken from members that are still there."""
    return sum(len(set(partitions) - set(after[id])) for id, partitions in before.items() if id in after)


def with_members(group: Group, **members: Member) -> Group:
    return Group({**group.members, **members}, group.partition_counts)


def without_member(group: Group, id: str) -> Group:
    return Group({other: member for other, member in group.members.items() if other != id}, group.partition_counts)
