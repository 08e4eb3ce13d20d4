"""Which consumer gets which records: by group ids, by assignors, by the number of partitions."""

from __future__ import annotations

from contextlib import ExitStack

from confluent_kafka import Consumer

from tests.confusions.applications import Applications, gather, share, take


def test_one_group_is_a_queue_and_many_are_publish_subscribe(applications: Applications) -> None:
    topic = applications.new_topic(2)
    with ExitStack() as stack:
        workers = members(stack, applications, f"queue-{topic}", [topic], 2)
        share(workers, [1, 1])
        for partition in range(2):
            applications.write(topic, [f"{partition}-a", f"{partition}-b"], partition)
        first, second = gather(workers, lambda found: sum(map(len, found)) == 4)
    assert len(first) == len(second) == 2
    assert len({*first, *second}) == 4

    for subscriber in range(2):
        with applications.consumer(f"subscriber-{subscriber}-{topic}", [topic]) as consumer:
            assert sorted(take(consumer, 4)) == ["0-a", "0-b", "1-a", "1-b"]


def test_range_round_robin_and_sticky_assign_differently(applications: Applications) -> None:
    topics = [applications.new_topic(3) for _ in range(2)]
    with ExitStack() as stack:
        lopsided = share(members(stack, applications, f"range-{topics[0]}", topics, 2, "range"), [2, 4])
    for mine in lopsided:
        assert len({partition for _, partition in mine}) * 2 == len(mine), "the same partitions of both topics"

    with ExitStack() as stack:
        group = f"roundrobin-{topics[0]}"
        share(members(stack, applications, group, topics, 2, "roundrobin"), [3, 3])

    with ExitStack() as stack:
        group = f"sticky-{topics[0]}"
        pair = members(stack, applications, group, topics, 2, "cooperative-sticky")
        before = share(pair, [3, 3])
        trio = [*pair, *members(stack, applications, group, topics, 1, "cooperative-sticky")]
        after = share(trio, [2, 2, 2])
    assert after[0] < before[0]
    assert after[1] < before[1]


def test_more_consumers_than_partitions_idle(applications: Applications) -> None:
    narrow, wide = applications.new_topic(2), applications.new_topic(3)
    for topic, shares in ((narrow, [0, 1, 1]), (wide, [1, 1, 1])):
        group = f"three-share-{topic}"
        with ExitStack() as stack:
            three = members(stack, applications, group, [topic], 3)
            gather(three, lambda _, group=group, shares=shares: applications.member_shares(group) == shares)
            for partition in range(sum(shares)):
                applications.write(topic, [f"of {partition}"], partition)
            found = gather(three, lambda found, shares=shares: sum(map(len, found)) == sum(shares))
        assert sorted(map(len, found)) == shares


def members(
    stack: ExitStack,
    applications: Applications,
    group: str,
    topics: list[str],
    count: int,
    strategy: str = "range",
) -> list[Consumer]:
    settings = {"partition.assignment.strategy": strategy}
    return [stack.enter_context(applications.consumer(group, topics, settings)) for _ in range(count)]
