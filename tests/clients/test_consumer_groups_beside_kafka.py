"""One conversation with a consumer group, held with Kafka and with the reference: the same answers, the same records.

What differs by chance is made alike: topics are reported by their names, times and hashes of topic ids are left out, and the
records of several members in a row are sorted, because Kafka writes those in the order of a hash table.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.broker import Broker
from conformance.consumers import Consumer, reported_in, unused_group
from conformance.host import addresses
from conformance.levels import MAY
from conformance.requirement import Requirement
from conformance.subject import Subject
from linearizability.client.group_member import owned_partitions
from linearizability.client.requests import Topic
from linearizability.targets import open_target
from reference.protocol.messages.api_versions import ApiVersionsRequest
from reference.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from reference.protocol.messages.create_partitions import CreatePartitionsRequest
from tests.storage.dump import dump

CONFIG = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "group.consumer.assignment.interval.ms": "0",
}
RECORD = Requirement(id="CGH-00", level=MAY, sentence="A conversation.", source="conformance", deadline_s=300)
ROUNDS = 4
MATCHED_AFTER_S = 1.5
"""The wait for Kafka's background threads, which match patterns and apply changes of topics to groups."""

CHANCE = re.compile(r'"(assignmentTimestamp|timestamp|version|metadataHash)":-?\d+')
MEMBERS_RECORDS = ("5", "7", "8")


class Conversation:
    """Members that send one request after the other, and the responses that they got."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.group = unused_group(broker)
        self.topics = {name: broker.topic(count, name=name) for name, count in (("foo", 4), ("bar", 2), ("baz", 1))}
        self.answers: list[Any] = []

    def member(self, id: str, *topics: str, **wishes: Any) -> Consumer:
        return Consumer(self.broker, self.group, topics, id=id, **wishes)

    def note(self, who: str, ask: Callable[[], Any]) -> None:
        answer = ask()
        reported = None if answer.assignment is None else sorted(self.named(reported_in(answer)))
        message = (answer.error_message or "").replace(self.group, "the group")
        self.answers.append(
            (who, answer.error_code, message, answer.member_epoch, answer.heartbeat_interval_ms, reported)
        )

    def named(self, partitions: set[Any]) -> list[tuple[str, int]]:
        names = {topic.id: name for name, topic in self.topics.items()}
        return [(names[id], partition) for id, partition in partitions]

    def rounds(self, *members: Consumer) -> None:
        for _ in range(ROUNDS):
            for member in members:
                self.note(member.id, member.beat)

    def hold(self) -> None:
        """Joins, revocations, other subscriptions, static members, patterns, growth, leaves and errors."""
        first, second = self.member("member-a", "foo"), self.member("member-b", "foo")
        self.note("a joins", first.join)
        self.note("b joins", second.join)
        self.rounds(first, second)
        self.note(
            "a wants bar",
            lambda: first.beat(subscribed_topic_names=["bar"], topic_partitions=owned_partitions(first.assigned)),
        )
        self.rounds(first, second)
        static = self.member("member-c", "foo", "bar", instance_id="i", assignor="range")
        self.note("c joins", static.join)
        self.rounds(first, second, static)
        self.note("c goes for a while", lambda: static.ask(member_epoch=-2))
        again = self.member("member-d", "foo", "bar", instance_id="i")
        self.note("d in its place", again.join)
        self.note("e is too late", lambda: self.member("member-e", "foo", instance_id="i").ask())
        pattern = self.member("member-r", regex="ba.*")
        self.note("r joins", pattern.join)
        time.sleep(MATCHED_AFTER_S)
        self.rounds(first, second, again, pattern)
        grown = CreatePartitionsRequest.CreatePartitionsTopic(name="baz", count=3, assignments=None)
        self.broker.call(CreatePartitionsRequest(topics=[grown], timeout_ms=10_000))
        time.sleep(MATCHED_AFTER_S)
        self.rounds(first, second, again, pattern)
        self.describe()
        self.note("r leaves", lambda: pattern.ask(member_epoch=-1))
        self.rounds(first, second, again)
        self.note("who is r", lambda: pattern.ask(member_epoch=5))
        self.note("a is ahead", lambda: first.ask(member_epoch=99))
        self.note("no pattern", lambda: pattern.ask(member_epoch=0, subscribed_topic_regex="a(", topic_partitions=[]))
        for member in (first, second, again):
            self.note("and leaves", lambda member=member: member.ask(member_epoch=-1))

    def describe(self) -> None:
        asked = ConsumerGroupDescribeRequest(group_ids=[self.group])
        (reported,) = self.broker.call(asked, 1, to=self.broker.coordinator(self.group)).groups
        self.answers.append(
            (reported.group_state, reported.group_epoch, reported.assignment_epoch, reported.assignor_name)
        )
        for member in sorted(reported.members, key=lambda member: member.member_id):
            owned, wanted = (
                sorted((topic.topic_name, *sorted(topic.partitions)) for topic in assignment.topic_partitions)
                for assignment in (member.assignment, member.target_assignment)
            )
            self.answers.append((member.member_id, member.instance_id, member.member_epoch, owned, wanted))


def conversed(spec: str, folder: Path) -> tuple[list[Any], list[Any]]:
    """The answers of the target in the conversation, and the records that it writes."""
    with open_target(spec, folder=folder / "target", config=CONFIG) as target:
        subject = Subject(addresses(target.bootstrap), "4.3.1", {ApiVersionsRequest.KEY: (0, 4)}, target)
        with Broker(subject, RECORD) as broker:
            asked = ApiVersionsRequest(client_software_name="conversation", client_software_version="1")
            versions = broker.call(asked, 3).api_keys
            subject.api_versions |= {each.api_key: (each.min_version, each.max_version) for each in versions}
            conversation = Conversation(broker)
            conversation.hold()
        time.sleep(MATCHED_AFTER_S)
        shutil.copytree(folder / "target", folder / "copy", ignore_dangling_symlinks=True)
    logs = [*(folder / "copy").rglob("__consumer_offsets-0/*.log")]
    assert logs
    text = dump(logs, "--offsets-decoder").replace(conversation.group, "the group")
    return conversation.answers, records_in(text, conversation.topics)


def records_in(text: str, topics: dict[str, Topic]) -> list[Any]:
    """The group's records, in order but for those of several members in a row."""
    for name, topic in topics.items():
        text = text.replace(base64.urlsafe_b64encode(topic.id.bytes).decode().rstrip("="), name)
    found: list[Any] = []
    for key, value in re.findall(r"key: (\{.*\}) payload: (.*)", text):
        if "the group" in key:
            reported = json.loads(CHANCE.sub(r'"\1":0', value)) if value.startswith("{") else None
            found.append((json.loads(key)["type"], key, in_order(reported)))
    ordered: list[Any] = []
    run: list[Any] = []
    for record in [*found, ("", "", None)]:
        if run and record[0] != run[0][0]:
            ordered += sorted(run, key=repr) if run[0][0] in MEMBERS_RECORDS else run
            run = []
        run.append(record)
    return ordered


def in_order(reported: Any) -> Any:
    """The record with its lists sorted, for topics and partitions are sets; each partition keeps its assignment epoch."""
    if isinstance(reported, dict):
        if "assignmentEpochs" in reported:
            pairs = sorted(zip(reported["partitions"], reported["assignmentEpochs"], strict=True))
            return {"topicId": reported["topicId"], "owned": pairs}
        return {name: in_order(value) for name, value in reported.items()}
    return sorted(map(in_order, reported), key=repr) if isinstance(reported, list) else reported


@pytest.mark.kafka
def test_the_same_answers_and_the_same_records(tmp_path: Path) -> None:
    (answers, records), (expected_answers, expected_records) = (
        conversed(spec, tmp_path / spec.partition(":")[0]) for spec in ("reference:1", "kafka:4.3.1")
    )
    assert answers == expected_answers
    assert len(records) > 50
    assert records == expected_records
