"""The same drawn fetches for our fetch sessions and for Apache Kafka's, which `java/Sessions.java` drives.

Topics that are deleted and created again, and few slots, are written out.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from reference.node.fetch_sessions import EVICTION_MS, FetchContext, FetchSessions
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.primitives import NodeId, TimestampMs
from tests.node.three_nodes import IDS, ThreeNodes
from tests.workload.kafka_decides import kafka_decides

SOURCE = Path(__file__).parent / "java" / "Sessions.java"
PARTITIONS = 5
TOPIC_ID = UUID(int=9)
UNKNOWN = 77
"""The id of no session."""

Step = dict[str, Any]


def draw_result(chance: random.Random) -> dict[str, Any]:
    failed = chance.random() < 0.1
    return {
        "error": ErrorCode.NOT_LEADER_OR_FOLLOWER if failed else ErrorCode.NONE,
        "high_watermark": -1 if failed else chance.choice([5, 5, 5, 6]),
        "log_start": chance.choice([0, 0, 0, 0, 2]),
        "preferred": chance.choice([-1] * 12 + [2]),
        "bytes": chance.choice([0, 0, 0, 9]),
        "diverging": chance.random() < 0.05,
    }


def draw_run(seed: int, length: int) -> list[Step]:
    """Steps for few slots: fetches that create, continue and end sessions, some answered late or throttled, and idle hours."""
    chance = random.Random(seed)
    slots, now, epochs, open_fetches, count = chance.randint(1, 4), 1_000, dict[int, int](), list[int](), 0
    steps: list[Step] = [{"slots": slots}]
    for _ in range(length):
        now += chance.choice([1, 1, 1, 500, EVICTION_MS // 2, EVICTION_MS])
        if open_fetches and chance.random() < 0.55:
            number = open_fetches.pop(chance.randrange(len(open_fetches)))
            results = [draw_result(chance) for _ in range(PARTITIONS)]
            answer = {"throttled": True} if chance.random() < 0.05 else {"results": results}
            steps.append({"now": now, "fetch": number, **answer})
            continue
        session = chance.choice([-1, -1, chance.randint(0, 6), chance.randint(0, max(1, count // 4))])
        is_full = session < 0 or chance.random() < 0.1
        epoch = chance.choice([0, 0, 0, -1]) if is_full else epochs.get(session, 1)
        if not is_full:
            epoch += chance.choice([0] * 9 + [1])
            epochs[session] = epoch + 1
        asked = chance.sample(range(PARTITIONS), chance.randint(0, PARTITIONS if is_full else 2))
        forgotten = [] if is_full else chance.sample(range(PARTITIONS), chance.choice([0, 0, 1, 2]))
        steps.append(
            {
                "now": now,
                "version": chance.choice([12] * 9 + [13]),
                "session": session,
                "epoch": epoch,
                "follower": chance.random() < 0.3,
                "ask": [[each, chance.randint(0, 9)] for each in asked],
                "forget": forgotten,
            }
        )
        open_fetches.append(count)
        count += 1
    return steps


class KafkaIds(random.Random):
    """Draws the session ids that Kafka drew, because they decide which of two equal sessions is evicted."""

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(0)
        drawn = [each[1] for each in answers if each and isinstance(each[0], int) and each[1] != 0]
        self.ids = iter(dict.fromkeys(drawn))

    def randrange(self, *_: int) -> int:
        return next(self.ids, 1)


@dataclass(slots=True)
class Ours:
    """Our sessions, with results in the form of Kafka's driver."""

    sessions: FetchSessions
    created: list[int] = field(default_factory=list[int])
    fetches: list[tuple[FetchContext, int]] = field(default_factory=list[tuple[FetchContext, int]])

    def begin(self, step: Step) -> list[Any]:
        version = step["version"]
        names: dict[str, Any] = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "t"}
        asked = [FetchRequest.FetchPartition(partition=index, fetch_offset=offset) for index, offset in step["ask"]]
        number = step["session"]
        request = FetchRequest(
            session_id=0 if number < 0 else self.created[number] if number < len(self.created) else UNKNOWN,
            session_epoch=step["epoch"],
            topics=[FetchRequest.FetchTopic(partitions=asked, **names)] if asked else [],
            forgotten_topics_data=[FetchRequest.ForgottenTopic(partitions=step["forget"], **names)],
        )
        context = self.sessions.context(request, version, step["now"], is_of_follower=step["follower"])
        self.fetches.append((context, version))
        return [[each.partition, each.fetch_offset] for each in context.wanted]

    def respond(self, step: Step) -> list[Any] | None:
        """None where the next request has forgotten the session's last partition: Kafka leaves that out, ours reports it to a
        client that waits for it no more."""
        context, version = self.fetches[step["fetch"]]
        if context.incremental and context.session is not None and not context.session.partitions:
            return None
        if "throttled" in step:
            response = self.sessions.throttled(context, throttle_ms=5)
        else:
            results = [_result(each.partition, step["results"][each.partition]) for each in context.wanted]
            response = self.sessions.finish(context, version, results, step["now"])
        id = response.session_id
        if id != 0 and id not in self.created:
            self.created.append(id)
        listed = [each.partition_index for topic in response.responses for each in topic.partitions]
        return [int(response.error_code), id, listed]


def _result(partition: int, drawn: dict[str, Any]) -> FetchResponse.PartitionData:
    result = FetchResponse.PartitionData(
        partition_index=partition,
        error_code=ErrorCode(drawn["error"]),
        high_watermark=drawn["high_watermark"],
        log_start_offset=drawn["log_start"],
        preferred_read_replica=drawn["preferred"],
        records=bytes(drawn["bytes"]),
    )
    if drawn["diverging"]:
        result.diverging_epoch = FetchResponse.EpochEndOffset(epoch=3, end_offset=7)
    return result


def differences(seeds: range, length: int) -> list[str]:
    """One line for each run that differs: the seed, its first step that was answered in two ways, and both answers."""
    runs = {seed: draw_run(seed, length) for seed in seeds}
    answers = iter(kafka_decides((step for steps in runs.values() for step in steps), SOURCE))
    found: list[str] = []
    for seed, steps in runs.items():
        theirs = [next(answers) for _ in steps]
        ours = Ours(FetchSessions(steps[0]["slots"], KafkaIds(theirs)))
        for number, (step, their) in enumerate(zip(steps[1:], theirs[1:], strict=True)):
            our = ours.begin(step) if "ask" in step else ours.respond(step)
            if our is not None and our != their:
                found.append(f"seed {seed}, step {number}: Kafka {their}, ours {our}, at {step}")
                break
    return found


@pytest.mark.java
def test_sessions_are_those_of_kafka() -> None:
    assert not differences(range(200), 60)


def test_the_epoch_after_the_last_is_one() -> None:
    """No drawn run is so long."""
    sessions = FetchSessions(1, random.Random(1))
    fetch = FetchRequest.FetchTopic(topic="t", partitions=[FetchRequest.FetchPartition(partition=0)])
    begun = sessions.context(FetchRequest(session_id=0, session_epoch=0, topics=[fetch]), 12, TimestampMs(0))
    id = sessions.finish(
        begun, 12, [FetchResponse.PartitionData(partition_index=0, records=b"")], TimestampMs(0)
    ).session_id
    sessions.sessions[id].epoch = 0x7FFFFFFF
    for epoch in (0x7FFFFFFF, 1):
        request = FetchRequest(session_id=id, session_epoch=epoch)
        assert sessions.context(request, 12, TimestampMs(0)).error is ErrorCode.NONE


if __name__ == "__main__":
    first, last = (int(each) for each in sys.argv[1:])
    for line in differences(range(first, last), 200):
        print(line)


def fetched(nodes: ThreeNodes, leader: NodeId, topic: UUID | None, session: tuple[int, int]) -> Any:
    """The answer to a fetch of a session, which names the topic or nothing."""
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    topics = [] if topic is None else [FetchRequest.FetchTopic(topic_id=topic, partitions=[partition])]
    id, epoch = session
    body = FetchRequest(max_bytes=1 << 20, session_id=id, session_epoch=epoch, topics=topics)
    answer: Any = nodes.call(leader, body)
    assert answer.error_code == ErrorCode.NONE
    return answer


def errors(answer: Any) -> list[int]:
    return [partition.error_code for topic in answer.responses for partition in topic.partitions]


def test_a_session_keeps_the_name_of_a_deleted_topic() -> None:
    nodes = ThreeNodes()
    nodes.create("t", 1)
    nodes.run_until(lambda: any(nodes.led(id, "t") for id in nodes.nodes))
    leader = next(id for id in nodes.nodes if nodes.led(id, "t"))
    image = nodes.nodes[leader].image
    topic = image.topics["t"].id
    began = fetched(nodes, leader, topic, (0, 0))
    assert errors(began) == [ErrorCode.NONE]
    nodes.call(leader, DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")], timeout_ms=20_000))
    nodes.run_until(lambda: "t" not in image.topics)
    assert errors(fetched(nodes, leader, None, (began.session_id, 1))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert errors(fetched(nodes, leader, topic, (0, -1))) == [ErrorCode.UNKNOWN_TOPIC_ID]
    nodes.create("t", 1)
    nodes.run_until(lambda: "t" in image.topics)
    assert errors(fetched(nodes, leader, None, (began.session_id, 2))) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert errors(fetched(nodes, leader, topic, (0, -1))) == [ErrorCode.UNKNOWN_TOPIC_ID]


@pytest.mark.parametrize(("slots", "has_sessions"), [("7", False), ("8", True)])
def test_there_are_no_sessions_with_fewer_slots_than_kafkas_cache_has_parts(slots: str, has_sessions: bool) -> None:
    nodes = ThreeNodes(**{"max.incremental.fetch.session.cache.slots": slots})
    answer: Any = nodes.call(IDS[0], FetchRequest(max_bytes=1 << 20, session_epoch=0, topics=[]))
    assert (answer.error_code, answer.session_id != 0) == (ErrorCode.NONE, has_sessions)
