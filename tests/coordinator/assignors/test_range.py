"""The range assignor: runs of partitions, the same ones of equally long topics. (CGH-04, CGH-18)"""

from hypothesis import given

from reference.coordinator.assignors.range import assign
from reference.coordinator.assignors.spec import GroupSpec, MemberSpec
from tests.coordinator.assignors.specs import TOPICS, check_complete, groups


@given(groups())
def test_every_partition_goes_to_one_subscriber(spec: GroupSpec) -> None:
    check_complete(spec, assign(spec))


@given(groups())
def test_each_member_has_one_run_of_each_topic_and_no_run_is_two_longer_than_another(spec: GroupSpec) -> None:
    targets = assign(spec)
    for topic in TOPICS:
        subscribers = [id for id, member in spec.members.items() if topic in member.subscribed]
        runs = [sorted(partition for at, partition in targets[id] if at == topic) for id in subscribers]
        for run in runs:
            assert run == [*range(run[0], run[-1] + 1)] if run else True
        if runs:
            assert max(map(len, runs)) - min(map(len, runs)) <= 1


@given(groups(same_topics=True))
def test_equally_long_topics_are_co_partitioned(spec: GroupSpec) -> None:
    level = GroupSpec(spec.members, dict.fromkeys(TOPICS, 5))
    for id, target in assign(level).items():
        by_topic = [{number for at, number in target if at == topic} for topic in spec.members[id].subscribed]
        assert all(each == by_topic[0] for each in by_topic), id


def test_static_members_come_first_by_instance() -> None:
    topic = TOPICS[0]
    subscribed = frozenset({topic})
    spec = GroupSpec(
        {
            "a": MemberSpec(subscribed),
            "c": MemberSpec(subscribed, instance_id="2"),
            "b": MemberSpec(subscribed, instance_id="1"),
        },
        {topic: 4},
    )
    assert assign(spec) == {"b": {(topic, 0), (topic, 1)}, "c": {(topic, 2)}, "a": {(topic, 3)}}
