"""Random groups for the assignors, and the check of completeness for every assignment."""

from collections.abc import Mapping
from uuid import UUID

from hypothesis import strategies as st

from reference.coordinator.assignment import Assignment
from reference.coordinator.assignors.spec import Assignor, GroupSpec, MemberSpec

TOPICS = [UUID(int=number) for number in range(1, 5)]
NAMES = [f"member-{number}" for number in range(6)]


@st.composite
def groups(draw: st.DrawFn, same_topics: bool = False) -> GroupSpec:
    """Members with random subscriptions and current assignments; no partition is assigned twice."""
    counts = {topic: draw(st.integers(0, 7)) for topic in TOPICS}
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    common = frozenset(draw(st.sets(st.sampled_from(TOPICS))))
    subscribed = {name: common if same_topics else frozenset(draw(st.sets(st.sampled_from(TOPICS)))) for name in names}
    owners = draw(
        st.fixed_dictionaries(
            {
                (topic, partition): st.sampled_from([None, *names])
                for topic in TOPICS
                for partition in range(counts[topic])
            }
        )
    )
    members = {
        name: MemberSpec(
            subscribed[name],
            frozenset(partition for partition, owner in owners.items() if owner == name),
            draw(st.sampled_from([None, f"instance-of-{name}"])),
        )
        for name in names
    }
    return GroupSpec(members, counts)


def check_complete(spec: GroupSpec, targets: Mapping[str, Assignment]) -> None:
    """Each member has a target of subscribed topics alone, and each subscribed partition is in exactly one target."""
    assert targets.keys() == spec.members.keys()
    for id, target in targets.items():
        assert {topic for topic, _ in target} <= spec.members[id].subscribed
    subscribed = frozenset().union(*(member.subscribed for member in spec.members.values()))
    wanted = [(topic, partition) for topic in subscribed for partition in range(spec.partition_counts[topic])]
    given = [partition for target in targets.values() for partition in target]
    assert sorted(given) == sorted(wanted)


def after(spec: GroupSpec, assignor: Assignor) -> GroupSpec:
    """The same group after the assignor's targets became its assignment."""
    targets = assignor(spec)
    members = {
        id: MemberSpec(member.subscribed, targets[id], member.instance_id) for id, member in spec.members.items()
    }
    return GroupSpec(members, spec.partition_counts)


def without(spec: GroupSpec, gone: str) -> GroupSpec:
    """The same group without one member."""
    members = {id: member for id, member in spec.members.items() if id != gone}
    return GroupSpec(members, spec.partition_counts)


def moves(before: GroupSpec, targets: Mapping[str, Assignment]) -> int:
    """The number of assigned partitions that the targets take from their members."""
    return sum(len(member.assigned - targets[id]) for id, member in before.members.items())
