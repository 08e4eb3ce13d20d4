"""Kafka's kafka-consumer-groups and kafka-dump-log on the reference's groups, as an operator uses them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from linearizability.targets import open_target
from tests.clients.members import ConfluentMember, Member, await_shares
from tests.storage.dump import complaints, dump
from tests.tools.conftest import Admin
from tests.tools.jvm import Tools

pytestmark = pytest.mark.java


def rows(text: str) -> list[dict[str, str]]:
    """The rows of the tool's table, by the names of the columns."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    at = next(number for number, words in enumerate(lines) if "GROUP" in words)
    return [dict(zip(lines[at], words, strict=False)) for words in lines[at + 1 :]]


@contextmanager
def two_members(admin: Admin, topic: str, group: str) -> Iterator[list[Member]]:
    members: list[Member] = [ConfluentMember(admin.broker.bootstrap, topic, group, "range") for _ in range(2)]
    try:
        await_shares(members, [2, 2])
        yield members
    finally:
        for member in members:
            member.leave()


class TestLiveGroup:
    def test_state_members_and_offsets(self, admin: Admin) -> None:
        topic = admin.topic("watched", partitions=4)
        admin.produce(topic, "a", "b", "c")
        with two_members(admin, topic, "watchers"):
            (state,) = rows(admin("kafka-consumer-groups", "--describe", "--group", "watchers", "--state").well())
            assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "2")
            assert f"{admin.broker.bootstrap}" in " ".join(state.values())
            reported = admin(
                "kafka-consumer-groups", "--describe", "--group", "watchers", "--members", "--verbose"
            ).well()
            members = rows(reported)
            assert [row["#PARTITIONS"] for row in members] == ["2", "2"]
            assert {row["CLIENT-ID"] for row in members} == {"rdkafka"}
            shares = re.findall(r"watched:?\(?([\d,]+)", reported)
            assert sorted(partition for share in shares for partition in share.split(",")) == ["0", "1", "2", "3"]
            listed = admin("kafka-consumer-groups", "--list", "--state", "Stable").well()
            assert "watchers" in listed.split()
            assert "watchers" not in admin("kafka-consumer-groups", "--list", "--state", "Empty").well().split()
            typed = rows(admin("kafka-consumer-groups", "--list", "--type").well())
            assert {"GROUP": "watchers", "TYPE": "Classic"}.items() <= next(
                row for row in typed if row["GROUP"] == "watchers"
            ).items()

    def test_deletions_and_resets_are_refused_while_members_run(self, admin: Admin) -> None:
        topic = admin.topic("in-use", partitions=4)
        admin.produce(topic, "a")
        with two_members(admin, topic, "users"):
            deleted = admin("kafka-consumer-groups", "--delete", "--group", "users")
            assert "GroupNotEmptyException" in deleted.out + deleted.errors
            offsets = admin("kafka-consumer-groups", "--delete-offsets", "--group", "users", "--topic", topic)
            assert "subscribed" in offsets.out + offsets.errors
            reset = admin(
                "kafka-consumer-groups",
                "--reset-offsets",
                "--group",
                "users",
                "--topic",
                topic,
                "--to-earliest",
                "--execute",
            )
            assert "inactive" in reset.out + reset.errors


def offsets_logs(folder: Path) -> list[Path]:
    return [log for log in sorted(folder.rglob("__consumer_offsets-*/*.log")) if log.stat().st_size]


def test_the_tool_decodes_the_records_of_groups(tools: Tools, tmp_path: Path) -> None:
    """Members, an assignment, offsets with metadata, and their removal, in Kafka's own record formats."""
    with open_target("reference:1", folder=tmp_path) as target:
        admin = Admin(tools, target)
        topic = admin.topic("decoded", partitions=4)
        admin.produce(topic, "a", "b")
        where = ("--group", "decoders", "--topic", topic)
        admin("kafka-consumer-groups", "--reset-offsets", *where, "--to-latest", "--execute").well()
        with two_members(admin, topic, "decoders"):
            pass
        admin("kafka-consumer-groups", "--delete", "--group", "decoders").well()
        target.stop(1)
        text = dump(offsets_logs(tmp_path), "--offsets-decoder")
    assert complaints(text) == []
    groups = [value for key, value in records(text) if key == {"type": "2", "data": {"group": "decoders"}}]
    generations = [value["data"]["generation"] for value in groups[:-1] if value is not None]
    assert generations == sorted({*generations})
    assert groups[-1] is None, "its removal"
    two = next(members for value in groups if value is not None and len(members := value["data"]["members"]) == 2)
    assert [each["clientId"] for each in two] == ["rdkafka", "rdkafka"]
    assert all(each["assignment"] and each["subscription"] for each in two)
    offsets = [
        (key["data"]["partition"], None if value is None else value["data"]["offset"])
        for key, value in records(text)
        if key["type"] == "1" and key["data"]["topic"] == topic
    ]
    kept, removed = dict(offsets[:4]), dict(offsets[-4:])
    assert ({*kept}, sum(offset or 0 for offset in kept.values())) == ({0, 1, 2, 3}, 2)
    assert removed == dict.fromkeys(range(4)), "removed with their group"


def records(text: str) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """The keys and values that the tool printed."""
    found = re.findall(r"key: (\{.*\}) payload: (\{.*\}|<DELETE>)$", text, re.MULTILINE)
    return [(json.loads(key), None if value == "<DELETE>" else json.loads(value)) for key, value in found]
