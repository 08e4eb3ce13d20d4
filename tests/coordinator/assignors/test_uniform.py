"""The uniform assignor: balanced, sticky, and complete. (CGH-04, CGH-09, CGH-18)"""

from hypothesis import given
from hypothesis import strategies as st

from reference.coordinator.assignors.spec import GroupSpec, MemberSpec
from reference.coordinator.assignors.uniform import assign
from tests.coordinator.assignors.specs import NAMES, TOPICS, after, check_complete, groups, moves, without


@given(groups())
def test_every_partition_goes_to_one_subscriber(spec: GroupSpec) -> None:
    check_complete(spec, assign(spec))


@given(groups(same_topics=True))
def test_of_members_with_the_same_topics_none_has_two_more_than_another(spec: GroupSpec) -> None:
    sizes = [len(target) for target in assign(spec).values()]
    assert max(sizes) - min(sizes) <= 1


@given(groups(same_topics=True))
def test_a_member_gives_up_only_partitions_beyond_its_share(spec: GroupSpec) -> None:
    targets = assign(spec)
    least = min(len(target) for target in targets.values())
    for id, member in spec.members.items():
        wanted = {each for each in member.assigned if each[0] in member.subscribed}
        assert len(wanted - targets[id]) <= max(0, len(wanted) - least)
        assert wanted <= targets[id] or targets[id] <= wanted, "a member that gives up partitions gets no others"


@given(groups())
def test_a_balanced_assignment_does_not_change(spec: GroupSpec) -> None:
    balanced = after(spec, assign)
    assert moves(balanced, assign(balanced)) == 0


@given(groups(same_topics=True), st.data())
def test_when_a_member_leaves_only_its_partitions_move(spec: GroupSpec, data: st.DataObject) -> None:
    left = without(after(spec, assign), data.draw(st.sampled_from([*spec.members])))
    if left.members:
        assert moves(left, assign(left)) == 0


@given(groups(same_topics=True))
def test_a_new_member_takes_no_more_than_its_share(spec: GroupSpec) -> None:
    before = after(spec, assign)
    subscribed = next(iter(spec.members.values())).subscribed
    joined = GroupSpec({**before.members, "new": MemberSpec(subscribed)}, spec.partition_counts)
    targets = assign(joined)
    assert moves(joined, targets) == len(targets["new"])


@given(groups())
def test_different_subscriptions_are_balanced_as_far_as_one_move_can(spec: GroupSpec) -> None:
    """No partition's owner has two partitions more than another subscriber of the topic."""
    targets = assign(spec)
    for target in targets.values():
        for topic, _ in target:
            for other, member in spec.members.items():
                if topic in member.subscribed:
                    assert len(target) - len(targets[other]) <= 1


def test_one_topic_and_two_members() -> None:
    topic = TOPICS[0]
    alone = GroupSpec({NAMES[0]: MemberSpec(frozenset({topic}))}, {topic: 3})
    first = assign(alone)[NAMES[0]]
    assert first == {(topic, 0), (topic, 1), (topic, 2)}
    both = GroupSpec(
        {
            NAMES[0]: MemberSpec(frozenset({topic}), first),
            NAMES[1]: MemberSpec(frozenset({topic})),
        },
        {topic: 3},
    )
    assert assign(both) == {NAMES[0]: {(topic, 0), (topic, 1)}, NAMES[1]: {(topic, 2)}}


def test_no_client_and_no_record() -> None:
    assert assign(GroupSpec({}, {})) == {}
    assert assign(GroupSpec({"lonely": MemberSpec(frozenset())}, {})) == {"lonely": frozenset()}
