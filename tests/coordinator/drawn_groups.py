"""Random steps of members, producers, administrators and time, for `paired_groups`.

`python -m tests.coordinator.drawn_groups 0 1000` makes the runs of these seeds, and prints the last steps of those that differ.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable
from dataclasses import replace
from unittest.mock import patch
from uuid import UUID

from linearizability.client.group_member import (
    ClassicMember,
    assigned_partitions,
    encode_subscription,
    owned_partitions,
)
from reference.coordinator import target_assignment
from reference.coordinator.classic_group import ClassicGroup
from reference.coordinator.classic_member import Member
from reference.coordinator.classic_state import State
from reference.coordinator.consumer_group import ConsumerGroup
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from reference.protocol.messages.delete_groups import DeleteGroupsRequest
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.leave_group import LeaveGroupRequest
from reference.protocol.messages.offset_commit import OffsetCommitRequest
from reference.protocol.messages.offset_delete import OffsetDeleteRequest
from reference.protocol.messages.offset_fetch import OffsetFetchRequest
from reference.protocol.messages.sync_group import SyncGroupResponse
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from reference.protocol.schema import Message
from tests.coordinator.drawn_clients import JOINS, Classic, Consumer, comes_back_to_full, compacted, part_of, readable
from tests.coordinator.our_groups import ASSIGNORS, CONSUMER_SETTINGS
from tests.coordinator.paired_groups import CONFIG, GROUPS, REFUSALS, Difference, Kafka, PairedGroups, Step

TOPICS = {"t1": 3, "t2": 2, "u1": 1}
NAMES = ("t1", "t2", "t3", "u1", "u2")
PATTERNS = ("t.*", "u.", "[tu]1", "x")
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND)
LONGEST_TIMEOUT_MS = 60_000
STEPS = 60
"""The number of steps of a run."""


class DrawnGroups:
    """Draws steps; most of them are those of well-behaved clients."""

    def __init__(self, kafka: Kafka, seed: int) -> None:
        self.chance = random.Random(seed)
        settings = replace(
            CONSUMER_SETTINGS,
            migration_policy=self.chance.choice(["bidirectional"] * 5 + ["upgrade", "downgrade", "disabled"]),
            assignment_interval_ms=self.chance.choice([0, 1_000, 1_000, 15_000]),
        )
        self.pair = PairedGroups(kafka, seed, settings, **TOPICS)
        self.steps: list[str] = []
        self._offset = 0
        self._protocols = self.chance.choice([["p", "q"], ["q", "p"]])
        self._assignor = self.chance.choice(
            ["spread", "reversed", "range"]
        )  # where two have as many votes, a hash decides
        groups = GROUPS[: self.chance.choice([1, 2])]
        self.classic = [
            Classic(ClassicMember(group, instance_id=instance))
            for group in groups
            for instance in (None, None, None, "i", "j", "i")
        ]
        self.consumers = [
            Consumer(group, instance, str(number))
            for group in groups
            for number, instance in enumerate((None, None, None, "i", "j", "i"))
        ]
        weights = {
            self._classic: self.chance.choice([0, 10, 30]),
            self._consumer: self.chance.choice([0, 10, 30]),
            self._offsets: self.chance.choice([1, 8]),
            self._change_topics: self.chance.choice([0, 2]),
            self._administer: self.chance.choice([0, 1]),
            self._reload: self.chance.choice([0, 1, 3]),
        }
        self._actions, self._weights = [*weights], [*weights.values()]
        self._tokens: dict[str, Classic | Consumer] = {}
        self._topics_of_instances: dict[tuple[str, str], list[str]] = {}
        self._downgraded: dict[str, int] = {}
        """Group id -> the time at which it became a classic group."""
        self._upgraded: dict[str, int] = {}
        """Group id -> the time at which it became a consumer group while it rebalanced."""
        self._count = 0
        self._fails = 0.02
        """The probability that a write fails where it may."""

    def run(self, count: int) -> None:
        if self.chance.random() < 0.5:
            self._generation()
        for _ in range(count):
            self._let_pass(self.chance.choice([1, 1, 7, 7, 503, 1_009, 3_001, 10_007]))
            if self.chance.random() < 0.02:
                self._let_pass(self.chance.choice([40_009, 100_003, 400_009]))
            (action,) = self.chance.choices(self._actions, self._weights)
            action()

    def _let_pass(self, ms: int) -> None:
        self.pair.now += ms + 16 * self._count
        due = self.pair.ours.shard.next_deadline()
        if due is not None and due <= self.pair.now:
            self._make(Step("time"))

    def _of_type(self, type: type[ClassicGroup | ConsumerGroup]) -> Iterable[str]:
        return [id for id, group in self.pair.ours.shard.groups.items() if isinstance(group, type)]

    def _make(self, step: Step, client: Classic | Consumer | None = None) -> None:
        self._count += 1
        token = f"step{self._count}"
        if client is not None:
            self._tokens[token] = client
        if self._may_fail(step.request) and self.chance.random() < self._fails:
            step.arguments["refusal"] = self.chance.choice([*REFUSALS])
        self.steps.append(f"{self.pair.now} {step!r}")
        before, groups = {*self._of_type(ConsumerGroup)}, self.pair.ours.shard.groups
        rebalancing = [id for id, each in groups.items() if getattr(each, "state", None) is State.PREPARING_REBALANCE]
        for asked, answer in self.pair.make(step, token).items():
            self._take(self._tokens.get(asked), answer)
        self._upgraded |= dict.fromkeys(set(rebalancing).intersection(self._of_type(ConsumerGroup)), self.pair.now)
        self._downgraded |= dict.fromkeys(before.intersection(self._of_type(ClassicGroup)), self.pair.now)

    def _may_fail(self, request: Message | None) -> bool:
        """Whether both coordinators handle a failed write in the same way.

        Kafka cancels the timers of a member that has not left; creates a group in memory; and does not retry the record
        of the topics that a pattern matched.
        """
        group = self.pair.ours.shard.groups.get(getattr(request, "group_id", ""))
        leaves = isinstance(request, LeaveGroupRequest) or getattr(request, "member_epoch", 0) < 0
        makes = group is None or (group.is_empty and isinstance(request, JoinGroupRequest))
        return not leaves and not makes and not getattr(group, "pattern_users", None)

    def _ask(self, request: Message, versions: tuple[int, ...], client: Classic | Consumer | None = None) -> None:
        if not comes_back_to_full(self.pair.ours.shard.groups, request, CONFIG["group.consumer.max.size"]):
            self._make(Step("request", request, self.chance.choice(versions)), client)

    def _take(self, client: Classic | Consumer | None, answer: Message) -> None:
        code = getattr(answer, "error_code", 0)
        if isinstance(client, Classic):
            if isinstance(answer, JoinGroupResponse):
                client.is_waiting = False
                client.said.joined(answer)
                if code == ErrorCode.NONE:
                    client.others = [each.member_id for each in answer.members]
                    client.is_to_sync = True
            if isinstance(answer, SyncGroupResponse):
                client.is_to_sync = False
                if code == ErrorCode.NONE:
                    client.owned = readable(bytes(answer.assignment))
            if code in LOST:
                client.said.id, client.said.generation, client.owned = "", -1, []
        elif isinstance(client, Consumer) and isinstance(answer, ConsumerGroupHeartbeatResponse):
            if code == ErrorCode.NONE:
                client.epoch, client.id = max(answer.member_epoch, 0), answer.member_id or client.id
                if answer.assignment is not None:
                    client.owned = set(assigned_partitions(answer))
            elif code in (*LOST, ErrorCode.FENCED_MEMBER_EPOCH):
                client.epoch, client.owned = JOINS, set()

    def _confused(self) -> bool:
        return self.chance.random() < 0.08

    # ---- members of the classic protocol

    def _generation(self) -> None:
        """A static member and another form a generation; then one of them joins again, often the same after a restart."""
        chance = self.chance
        static = chance.choice([each for each in self.classic if each.said.instance_id is not None])
        others = [
            each for each in self.classic if each.said.instance_id is None and each.said.group == static.said.group
        ]
        pair = [static, chance.choice(others)]
        for client in pair:
            for _ in range(2):  # a dynamic member is given its id first
                if not client.is_waiting:
                    self._join(client)
                    self._let_pass(1)
        self._let_pass(10_007)
        self._fails = chance.choice([0, 0.5])
        for client in [each for each in pair if each.is_to_sync]:
            if chance.random() < 0.2:
                self._join(client, is_same=True)
            self._sync(client)
            self._let_pass(1)
        client = chance.choice([static, static, pair[1]])
        if chance.random() < 0.7:
            client.said.id, client.said.generation = "", -1
        self._join(client, is_same=chance.random() < 0.7)
        self._fails = 0.02

    def _classic(self) -> None:
        chance = self.chance
        client = chance.choice(self.classic)
        if self._confused():
            chance.choice([self._join, self._sync, self._heartbeat, self._leave])(client)
        elif client.is_waiting:
            self._heartbeat(client) if chance.random() < 0.1 else self._join(client)
        elif client.said.generation < 0:
            self._join(client)
        elif client.is_to_sync:
            self._sync(client)
        else:
            drawn = chance.random()
            [self._heartbeat, self._join, self._leave][(drawn > 0.5) + (drawn > 0.85)](client)

    def _join(self, client: Classic, *, is_same: bool = False) -> None:
        chance, said = self.chance, client.said
        first, second = self._protocols
        names = chance.choice([[first], [first], [first, second], [first, second], [second]])
        topics: list[str] = chance.sample(NAMES, chance.choice([1, 1, 2]))
        if said.instance_id is not None:
            # Kafka looks into the metadata of a static member only when a generation begins, and not where it returns.
            topics = self._topics_of_instances.setdefault((said.group, said.instance_id), topics)
        metadata = encode_subscription(topics, client.owned, version=chance.choice([0, 1, 3]))
        if not is_same or not said.protocols:
            said.protocols = dict.fromkeys(names, metadata)
            if chance.random() < 0.03:
                said.protocols = {name: chance.choice([b"", b"m"]) for name in names}
        said.protocol_type = "consumer" if chance.random() < 0.95 else "connect"
        own_ms = self.classic.index(client)  # so that no two sessions end together
        said.session_timeout_ms = chance.choice([6_000, 10_000, 30_000]) + own_ms if not self._confused() else 1
        said.rebalance_timeout_ms = chance.choice([5_000, 20_000, 60_000])
        request = said.join()
        if self._confused():
            request.member_id = chance.choice(["", "unknown", chance.choice(self.classic).said.id])
        group = self.pair.ours.shard.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup) and group.is_empty:
            if self.pair.now < self._upgraded.get(said.group, 0) + LONGEST_TIMEOUT_MS:
                return  # Kafka still has the timer of that rebalance, and ends the next one by it, or counts a generation
            request.member_id = ""  # with an id Kafka refuses the member and forgets the group, but not its records
        client.is_waiting = True
        self._ask(request, (3, 4, 5, 7, 9) if said.instance_id is None else (5, 7, 9), client)

    def _sync(self, client: Classic) -> None:
        chance, said = self.chance, client.said
        given = {id: part_of(TOPICS, at, len(client.others)) for at, id in enumerate(client.others)}
        if chance.random() < 0.1:
            given = dict.fromkeys(client.others, chance.choice([b"", b"x"]))
        request = said.sync(given)
        if self._confused():
            request.generation_id += chance.choice([-1, 1])
        if self._confused():
            request.protocol_name = "other"
        self._ask(request, (3, 5) if request.protocol_name is not None else (3,), client)

    def _heartbeat(self, client: Classic) -> None:
        request = client.said.heartbeat()
        if self._confused():
            request.generation_id += self.chance.choice([-1, 1])
        self._ask(request, (3, 4), client)

    def _leave(self, client: Classic) -> None:
        chance = self.chance
        request = client.said.leave()
        for other in chance.sample(self.classic, chance.choice([0, 0, 1])):
            request.members.append(other.said.identity())
        if self._confused():
            request.members[0].member_id = ""
        if client.said.instance_id is None and chance.random() < 0.3:
            self._ask(LeaveGroupRequest(group_id=client.said.group, member_id=client.said.id), (1, 2), client)
        else:
            self._ask(request, (3, 5), client)
        client.said.id, client.said.generation = "", -1

    # ---- members of the new protocol

    def _consumer(self) -> None:
        chance = self.chance
        client = chance.choice(self.consumers)
        if self._is_not_to_upgrade(client.group):
            return
        request = ConsumerGroupHeartbeatRequest(
            group_id=client.group,
            member_id=client.id,
            instance_id=client.instance,
            member_epoch=client.epoch,
            rebalance_timeout_ms=-1,
        )
        drawn = chance.random()
        version = (1,)
        if client.epoch == JOINS or drawn < 0.1:
            self._fill_all_fields(client, request)
            if client.epoch == JOINS and chance.random() < 0.2:
                request.member_id, version = "", (0,)
        elif drawn < 0.2:
            request.member_epoch = -1 if client.instance is None else chance.choice([-1, -2])
        elif drawn < 0.3:
            self._subscribe(request)
        if client.epoch != JOINS and request.topic_partitions is None and chance.random() < 0.6:
            request.topic_partitions = owned_partitions(sorted(client.owned, key=repr))
        if self._confused():
            request.member_epoch += chance.choice([-1, 1])
        if request.member_epoch != JOINS and self._confused():
            request.member_id = chance.choice(["unknown", chance.choice(self.consumers).id])
        self._ask(request, version if request.subscribed_topic_regex is None else (1,), client)

    def _is_not_to_upgrade(self, id: str) -> bool:
        """A classic group without a generation of all its members: Kafka fails where it is to become a consumer group, ours makes
        it one. One that is full, or has metadata that cannot be read: Kafka has waiting members join again before it refuses.
        And one that was a consumer group: Kafka still has timers of that time, and fences members that did nothing."""
        group = self.pair.ours.shard.groups.get(id)
        if not isinstance(group, ClassicGroup) or group.is_empty:
            return False
        waits = any(each.joining or each.syncing for each in group.members.values())
        is_full = len(group.members) >= CONFIG["group.consumer.max.size"]
        if waits and (is_full or any(map(_is_broken, group.members.values()))):
            return True
        names = [[name for name, _ in each.protocols] for each in group.members.values()]
        is_between = group.protocol is None or any(group.protocol not in each for each in names)
        return is_between or self.pair.now < self._downgraded.get(id, 0) + LONGEST_TIMEOUT_MS

    def _fill_all_fields(self, client: Consumer, request: ConsumerGroupHeartbeatRequest) -> None:
        request.rebalance_timeout_ms = self.chance.choice([5_000, 20_000])
        request.rack_id = self.chance.choice([None, "a", "b"])
        request.topic_partitions = owned_partitions(sorted(client.owned, key=repr)) if client.epoch else []
        self._subscribe(request)

    def _subscribe(self, request: ConsumerGroupHeartbeatRequest) -> None:
        chance = self.chance
        request.subscribed_topic_names = chance.sample(NAMES, chance.choice([0, 1, 1, 2, 3]))
        existing = self.pair.topics.ids
        if existing and not existing.keys() & {*request.subscribed_topic_names}:
            # Kafka may write a member again that subscribes to nothing: it compares empty maps by their identity.
            request.subscribed_topic_names.append(chance.choice([*existing]))
        if chance.random() < 0.3 and request.member_id:
            request.subscribed_topic_regex = chance.choice([*PATTERNS, ""])
            if not isinstance(self.pair.ours.shard.groups.get(request.group_id), ClassicGroup) and self._confused():
                request.subscribed_topic_regex = "("  # Kafka calls a classic group's members to join, and then finds it
        if chance.random() < 0.3:
            request.server_assignor = self._assignor

    # ---- offsets

    def _offsets(self) -> None:
        chance = self.chance
        commits = [self._commit, self._commit, self._commit_in_transaction]
        chance.choice([*commits, self._end, self._delete_offsets, self._fetch])()

    def _places(self) -> list[tuple[str, int]]:
        topics = self.pair.topics
        return [(name, index) for name, id in topics.ids.items() for index in range(topics.partition_count(id))]

    def _identity(self) -> tuple[str, str, str | None, int]:
        chance = self.chance
        if chance.random() < 0.3:
            return chance.choice(GROUPS), "", None, -1
        if chance.random() < 0.5:
            said = chance.choice(self.classic).said
            found = said.group, said.id, said.instance_id, said.generation
        else:
            client = chance.choice(self.consumers)
            found = client.group, client.id, client.instance, client.epoch
        return (*found[:3], found[3] + chance.choice([-1, 1])) if self._confused() else found

    def _metadata(self, group: str) -> str | None:
        """Kafka creates a group in memory for a commit that it then refuses."""
        choices = [None, "", "m", "m" * 11] if group in self.pair.ours.shard.groups else [None, "m"]
        return self.chance.choice(choices)

    def _commit(self) -> None:
        if not self._places():
            return
        group, member, instance, generation = self._identity()
        self._offset += 1
        topic, index = self.chance.choice(self._places())
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=self._offset,
            committed_leader_epoch=self.chance.choice([-1, 3]),
            committed_metadata=self._metadata(group),
        )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member,
            group_instance_id=instance,
            generation_id_or_member_epoch=generation,
            topics=[OffsetCommitRequest.OffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        if instance is None and self.chance.random() < 0.1:
            partition.committed_leader_epoch = -1
            request.retention_time_ms = self.chance.choice([-1, 0, 5_000])
            self._ask(request, (2, 4))
        else:
            self._ask(request, (7, 8, 9))

    def _commit_in_transaction(self) -> None:
        if not self._places():
            return
        group, member, instance, generation = self._identity()
        self._offset += 1
        topic, index = self.chance.choice(self._places())
        partition = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=self._offset, committed_metadata=self._metadata(group)
        )
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=group,
            producer_id=self.chance.choice([1, 2]),
            generation_id_or_member_epoch=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        self._ask(request, (3, 5))

    def _end(self) -> None:
        ends = {"producer": self.chance.choice([1, 2]), "epoch": 0, "commits": self.chance.random() < 0.7}
        self._make(Step("end transaction", arguments=ends))
        marker = ("commit" if ends["commits"] else "abort", "", int(ends["producer"]), True)
        self.pair.log.append(marker)
        self.pair.kafkas_log.append(marker)

    def _delete_offsets(self) -> None:
        if not self._places():
            return
        topic, index = self.chance.choice(self._places())
        table = OffsetDeleteRequest.OffsetDeleteRequestTopic
        partition = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=index)
        self._ask(
            OffsetDeleteRequest(
                group_id=self.chance.choice(GROUPS), topics=[table(name=topic, partitions=[partition])]
            ),
            (0,),
        )

    def _fetch(self) -> None:
        chance = self.chance
        id, member, _, epoch = self._identity()
        table = OffsetFetchRequest.OffsetFetchRequestTopics
        places = [table(name=name, partition_indexes=[0, 1, 9]) for name in chance.sample(NAMES, 2)]
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=id,
            member_id=chance.choice([member or None, None, ""]),
            member_epoch=epoch,
            topics=None if chance.random() < 0.3 else places,
        )
        if group.member_id is None or (not member and chance.random() < 0.5):
            group.member_epoch = -1  # with an epoch and no member id Kafka fails (NullPointerException)
        self._ask(OffsetFetchRequest(groups=[group], require_stable=chance.random() < 0.5), (9,))

    # ---- administration

    def _administer(self) -> None:
        self._ask(DeleteGroupsRequest(groups_names=[self.chance.choice(GROUPS)]), (1, 2))

    def _change_topics(self) -> None:
        self._make(Step("time"))
        topics, name = self.pair.topics, self.chance.choice(NAMES)
        gone: UUID | None = None
        is_new = name not in topics.ids
        if is_new:
            topics.make(name, self.chance.choice([1, 2, 3]))
        elif self.chance.random() < 0.5:
            topics.grow(name, topics.partition_count(topics.ids[name]) + 1)
        else:
            gone = topics.ids[name]
            topics.delete(name)
        self._make(Step("topics", arguments=topics.described(), ours=(name, is_new, gone)))

    def _reload(self) -> None:
        ours, kafkas = self.pair.log, self.pair.kafkas_log
        if self.chance.random() < 0.5:
            ours, kafkas = kafkas, ours
        if self.chance.random() < 0.4:
            ours, kafkas = compacted(ours), compacted(kafkas)
        self._make(Step("load", arguments={"log": kafkas}, ours=ours))


def _is_broken(member: Member) -> bool:
    return member.assignment == b"x" or any(metadata in (b"", b"m") for _, metadata in member.protocols)


def differences(kafka: Kafka, seeds: Iterable[int], steps: int) -> Iterable[str]:
    """The last steps and the difference of each run in which the two coordinators differ."""
    with patch.dict(target_assignment.ASSIGNORS, ASSIGNORS):
        for seed in seeds:
            drawn = DrawnGroups(kafka, seed)
            try:
                drawn.run(steps)
            except Difference as difference:
                yield "\n".join([f"seed {seed}, {len(drawn.steps)} steps", *drawn.steps[-3:], str(difference)])


if __name__ == "__main__":
    first, last = map(int, sys.argv[1:])
    for difference in differences(Kafka(), range(first, last), STEPS):
        print(difference)
