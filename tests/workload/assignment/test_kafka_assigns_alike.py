"""The same groups, assigned by Kafka's own consumers."""

from __future__ import annotations

import random
from typing import Any

import pytest

from linearizability.workload.assignment import ASSIGNORS, sticky
from linearizability.workload.assignment.subscription import Assignment, Group, Member
from tests.workload.assignment.groups import IDS, TOPICS, moved, owning
from tests.workload.kafka_decides import kafka_decides

pytestmark = pytest.mark.java

GROUPS = 300


def random_group(chance: random.Random, same_topics: bool) -> Group:
    def topics() -> frozenset[str]:
        return frozenset(chance.sample(TOPICS, chance.randint(1, len(TOPICS))))

    shared = topics()
    instances = chance.sample(range(len(IDS)), len(IDS))
    ids = chance.sample(IDS, chance.randint(1, len(IDS)))
    members = {
        id: Member(shared if same_topics else topics(), chance.choice([None, f"instance-{instances[place]}"]))
        for place, id in enumerate(ids)
    }
    return Group(members, {topic: chance.randint(0, 9) for topic in TOPICS})


def random_owners(chance: random.Random, group: Group) -> Assignment:
    """Each partition with one of the members, or with none; not level at all."""
    owners: Assignment = {id: [] for id in group.members}
    favourite = chance.choice(sorted(group.members))
    for partition in group.partitions():
        owner = chance.choice([None, favourite, favourite, *sorted(group.members)])
        if owner is not None:
            owners[owner].append(partition)
    return owners


def question(name: str, group: Group) -> dict[str, Any]:
    """For Decide.java. Kafka's consumers too give their assignors only topics that exist and that a member wants."""
    members = {
        id: {
            "topics": sorted(member.topics),
            "instance_id": member.instance_id,
            "owned": sorted(member.owned),
            "generation": member.generation,
        }
        for id, member in group.members.items()
    }
    counts = {topic: group.partition_counts[topic] for topic in group.topics()}
    return {"assignor": name, "counts": counts, "members": members}


def assigned_by_kafka(name: str, groups: list[Group]) -> list[Assignment]:
    answers = kafka_decides(question(name, group) for group in groups)
    return [{id: sorted((topic, number) for topic, number in owned) for id, owned in each.items()} for each in answers]


@pytest.mark.parametrize("name", ["range", "roundrobin"])
def test_range_and_round_robin_are_kafkas(name: str) -> None:
    groups = [random_group(random.Random(seed), seed % 2 == 0) for seed in range(GROUPS)]
    for group, theirs in zip(groups, assigned_by_kafka(name, groups), strict=True):
        ours = {id: sorted(partitions) for id, partitions in ASSIGNORS[name](group).items()}
        assert ours == theirs, group


def test_sticky_is_as_level_as_kafkas_and_moves_as_many() -> None:
    groups: list[Group] = []
    before: list[Assignment] = []
    for seed in range(GROUPS):
        chance = random.Random(seed)
        group = random_group(chance, same_topics=True)
        before.append(random_owners(chance, group))
        groups.append(owning(group, before[-1]))
    moves = 0
    for group, had, theirs in zip(groups, before, assigned_by_kafka("sticky", groups), strict=True):
        ours = sticky.assign(group)
        assert sorted(map(len, ours.values())) == sorted(map(len, theirs.values())), group
        assert moved(had, ours) == moved(had, theirs), group
        moves += moved(had, ours)
    assert moves > GROUPS


def random_claims(chance: random.Random) -> Group:
    """Members that claim what others claim too, of the same generation or of another."""
    wanted = frozenset({"orders"})
    partitions = [("orders", number) for number in range(6)]
    members = {
        id: Member(
            wanted, owned=frozenset(chance.sample(partitions, chance.randint(0, 3))), generation=chance.randint(1, 3)
        )
        for id in "abc"
    }
    return Group(members, {"orders": len(partitions)})


def is_claimed_by_all(group: Group) -> bool:
    return bool(frozenset.intersection(*(member.owned for member in group.members.values())))


def test_sticky_believes_the_claims_that_kafka_believes() -> None:
    """At most two members claim a partition. Which of three Kafka believes depends on the order in which it receives them."""
    drawn = [random_claims(random.Random(seed)) for seed in range(GROUPS)]
    groups = [group for group in drawn if not is_claimed_by_all(group)]
    assert len(groups) > GROUPS / 2
    for group, theirs in zip(groups, assigned_by_kafka("sticky", groups), strict=True):
        rightful = sticky.keep(group)
        assert moved(rightful, sticky.assign(group)) == moved(rightful, theirs), group
