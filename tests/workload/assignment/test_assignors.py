"""What every assignor owes, and what each of them promises besides."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from linearizability.workload.assignment import ASSIGNORS, round_robin, sticky
from linearizability.workload.assignment.subscription import Assignment, Group, Member
from tests.workload.assignment.groups import claims, counts, groups, moved, owning, with_members, without_member

every_assignor = pytest.mark.parametrize("name", ASSIGNORS)
balanced_assignor = pytest.mark.parametrize("assign", [round_robin.assign, sticky.assign])


def imbalance(assignment: Assignment) -> int:
    sizes = [len(partitions) for partitions in assignment.values()]
    return max(sizes) - min(sizes)


class TestEveryAssignor:
    @every_assignor
    @given(group=st.one_of(groups(), claims()))
    def test_every_partition_of_a_wanted_topic_goes_to_exactly_one_subscriber(self, name: str, group: Group) -> None:
        assignment = ASSIGNORS[name](group)
        assert assignment.keys() == group.members.keys()
        given = Counter(partition for partitions in assignment.values() for partition in partitions)
        assert given == Counter(group.partitions())
        for id, partitions in assignment.items():
            assert {topic for topic, _ in partitions} <= group.members[id].topics

    @every_assignor
    @given(group=claims(), data=st.data())
    def test_the_order_in_which_members_joined_is_no_matter(self, name: str, group: Group, data: st.DataObject) -> None:
        shuffled = Group(
            {id: group.members[id] for id in data.draw(st.permutations([*group.members]))}, group.partition_counts
        )
        assert ASSIGNORS[name](shuffled) == ASSIGNORS[name](group)

    def test_of_two_equally_full_members_the_first_in_order_gives_in_whatever_order_they_joined(self) -> None:
        wanted = frozenset({"orders"})
        full = {
            "a": Member(wanted, owned=frozenset({("orders", 0), ("orders", 1)}), generation=1),
            "b": Member(wanted, owned=frozenset({("orders", 2), ("orders", 3)}), generation=1),
        }
        new = {"c": Member(wanted)}
        one, other = (
            Group(members, {"orders": 4}) for members in ({**full, **new}, {**new, **dict(reversed(full.items()))})
        )
        assert sticky.assign(one) == sticky.assign(other)
        assert sticky.assign(one)["c"] == [("orders", 1)]

    @every_assignor
    def test_a_group_without_members(self, name: str) -> None:
        assert ASSIGNORS[name](Group({}, {"orders": 3})) == {}

    @every_assignor
    def test_more_members_than_partitions_leave_some_without_work(self, name: str) -> None:
        group = Group({id: Member(frozenset({"orders"})) for id in "abc"}, {"orders": 2})
        assert sorted(map(len, ASSIGNORS[name](group).values())) == [0, 1, 1]

    @balanced_assignor
    @given(group=groups(same_topics=True))
    def test_equal_subscriptions_are_balanced_within_one(self, assign, group: Group) -> None:
        assert imbalance(assign(group)) <= 1


def least_moves(group: Group) -> int:
    """How many owned partitions must move so that equal subscribers are level: the member that has most may keep one more."""
    all_have, have_one_more = divmod(len(group.partitions()), len(group.members))
    owned = sorted((len(member.owned) for member in group.members.values()), reverse=True)
    return sum(max(0, have - all_have - (place < have_one_more)) for place, have in enumerate(owned))


class TestSticky:
    @given(group=claims())
    def test_what_is_level_stays_as_it_is(self, group: Group) -> None:
        first = sticky.assign(group)
        again = sticky.assign(owning(group, first))
        assert {id: set(partitions) for id, partitions in again.items()} == {
            id: set(each) for id, each in first.items()
        }

    @given(group=claims())
    def test_no_single_move_makes_two_members_more_alike(self, group: Group) -> None:
        assignment = sticky.assign(group)
        for owner, partitions in assignment.items():
            for topic, _ in partitions:
                emptiest = min(len(assignment[id]) for id in group.subscribers(topic))
                assert len(assignment[owner]) - emptiest <= 1

    @given(group=groups(same_topics=True))
    def test_who_joins_gets_a_share_and_nothing_else_moves(self, group: Group) -> None:
        before = sticky.assign(group)
        topics = next(iter(group.members.values())).topics
        joined = with_members(owning(group, before), new=Member(topics))
        after = sticky.assign(joined)
        assert imbalance(after) <= 1
        for id, partitions in before.items():
            assert set(after[id]) <= set(partitions)
        assert moved(before, after) == least_moves(joined) == len(after["new"])

    @given(group=groups(same_topics=True), data=st.data())
    def test_when_one_leaves_only_its_own_partitions_move(self, group: Group, data: st.DataObject) -> None:
        assume(len(group.members) > 1)
        before = sticky.assign(group)
        gone = data.draw(st.sampled_from(sorted(group.members)))
        after = sticky.assign(without_member(owning(group, before), gone))
        assert imbalance(after) <= 1
        assert moved(before, after) == 0

    @given(group=groups(same_topics=True), more=counts)
    def test_new_partitions_move_no_old_ones_that_need_not(self, group: Group, more: dict[str, int]) -> None:
        before = sticky.assign(group)
        grown = {topic: count + more[topic] for topic, count in group.partition_counts.items()}
        after = sticky.assign(Group(owning(group, before).members, grown))
        assert imbalance(after) <= 1
        assert moved(before, after) == 0

    @given(group=groups(same_topics=True), data=st.data())
    def test_from_any_owners_no_more_moves_than_the_least(self, group: Group, data: st.DataObject) -> None:
        any_owner = {id: [] for id in group.members}
        for partition in group.partitions():
            owner = data.draw(st.sampled_from([None, *sorted(group.members)]))
            if owner is not None:
                any_owner[owner].append(partition)
        again = owning(group, any_owner)
        after = sticky.assign(again)
        assert imbalance(after) <= 1
        assert moved(any_owner, after) == least_moves(again)

    def test_the_later_generation_owns_and_equal_claims_own_nothing(self) -> None:
        wanted = frozenset({"orders"})
        first, second, third = ("orders", 0), ("orders", 1), ("orders", 2)
        group = Group(
            {
                "late": Member(wanted, owned=frozenset({first, second}), generation=1),
                "a": Member(wanted, owned=frozenset({first, third}), generation=2),
                "b": Member(wanted, owned=frozenset({third}), generation=2),
            },
            {"orders": 3},
        )
        assert sticky.keep(group) == {"late": [second], "a": [first], "b": []}

    def test_what_few_want_is_given_out_first_so_that_what_all_want_is_left_for_the_choosy(self) -> None:
        subscriptions = {"a": "wyz", "b": "yz", "c": "wyz", "d": "y"}
        group = Group({id: Member(frozenset(wanted)) for id, wanted in subscriptions.items()}, {"w": 1, "y": 1, "z": 2})
        assert sticky.assign(group) == {"a": [("w", 0)], "b": [("z", 0)], "c": [("z", 1)], "d": [("y", 0)]}

    def test_who_no_longer_wants_a_topic_gives_it_up(self) -> None:
        owned = frozenset({("orders", 0), ("payments", 0)})
        group = Group(
            {"a": Member(frozenset({"orders"}), owned=owned), "b": Member(frozenset({"orders", "payments"}))},
            {"orders": 1, "payments": 1},
        )
        assert sticky.assign(group) == {"a": [("orders", 0)], "b": [("payments", 0)]}
