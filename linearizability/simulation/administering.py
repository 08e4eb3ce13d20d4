"""A client that creates topics, and checks at the end that all confirmed ones still exist, also after power losses."""

from __future__ import annotations

from typing import Any

from linearizability.client.errors import STALE
from linearizability.client.requests import new_topic
from linearizability.simulation.client import CREATE_TOPICS, METADATA, METADATA_VERSION, SimulatedClient
from linearizability.simulation.cluster import SimulatedCluster
from linearizability.simulation.history_recorder import HistoryRecorder
from linearizability.simulation.line import BACKOFF_MS
from linearizability.simulation.schedule import Administrator, Topic
from linearizability.simulation.world import MICROSECONDS_A_MS, Violation
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse

CREATE_TOPICS_VERSION = 7
CREATE_TIMEOUT_MS = 1_000
NOT_YET = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_REPLICATION_FACTOR, ErrorCode.BROKER_NOT_AVAILABLE,
    }
)  # fmt: skip
"""Transient refusals of a valid topic: no controller, too few live brokers, a failing disk."""
ALONE_NOT_YET = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_REPLICATION_FACTOR})
"""The same for a single node: a full disk, which also prevents its registration after a restart."""


class SimulatedAdministrator(SimulatedClient):
    """Creates the topics of a list one by one, each until it is confirmed."""

    def __init__(
        self, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, topics: list[Topic], pause_ms: int
    ) -> None:
        super().__init__(cluster, number, recorder)
        self._topics = topics
        self._pause_ms = pause_ms
        self._next = 0
        self.confirmed: dict[str, str] = {}
        """Created topic -> its id; empty where no response had the id."""

    @classmethod
    def for_plan(
        cls, cluster: SimulatedCluster, number: int, recorder: HistoryRecorder, plan: Administrator
    ) -> SimulatedAdministrator:
        topics = [Topic(name=f"made-{number}-{index}") for index in range(plan.topics)]
        return cls(cluster, number, recorder, topics, plan.pause_ms)

    def on_ready(self) -> None:
        self._create()

    def _create(self) -> None:
        if not self.is_ready or self.in_flight or self.finished:
            return
        if self._next == len(self._topics):
            self._check()
            return
        topic = self._topics[self._next]
        if not self.cluster.are_unfenced(topic.replicas):
            # A fenced broker would not be in the first ISR.
            self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._create)
            return
        wanted = new_topic(
            topic.name,
            topic.partitions,
            configs=topic.configs,
            replication_factor=self.cluster.schedule.replication_factor,
            placed=[topic.replicas] * topic.partitions if topic.replicas else None,
        )
        body = CreateTopicsRequest(topics=[wanted], timeout_ms=CREATE_TIMEOUT_MS)
        self.ask(CREATE_TOPICS, CREATE_TOPICS_VERSION, body, self._on_created)

    def _on_created(self, body: CreateTopicsResponse, _: Any) -> None:
        answer = body.topics[0]
        self.count("CreateTopics", answer.error_code)
        pause_ms = BACKOFF_MS
        if answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.confirmed[answer.name] = str(answer.topic_id) if answer.error_code == ErrorCode.NONE else ""
            self._next += 1
            pause_ms = self._pause_ms
        elif answer.error_code not in (ALONE_NOT_YET if self.cluster.is_alone else NOT_YET):
            raise Violation("groundless-refusal", f"topic {answer.name} was refused with error {answer.error_code}")
        self.world.after(pause_ms * MICROSECONDS_A_MS, self._create)

    def _check(self) -> None:
        topics = [MetadataRequest.MetadataRequestTopic(name=name) for name in self.confirmed]
        self.ask(
            METADATA, METADATA_VERSION, MetadataRequest(topics=topics, allow_auto_topic_creation=False), self._checked
        )

    def _checked(self, body: MetadataResponse, _: Any) -> None:
        for topic in body.topics:
            name = str(topic.name)
            if topic.error_code in STALE and not self.cluster.is_alone:
                # This node's metadata may lag; in the end it must have the topic.
                self.world.after(BACKOFF_MS * MICROSECONDS_A_MS, self._create)
                return
            if topic.error_code != ErrorCode.NONE:
                raise Violation(
                    "topic-lost", f"topic {name} was confirmed and is answered with error {topic.error_code}"
                )
            if self.confirmed[name] not in ("", str(topic.topic_id)):
                raise Violation("topic-lost", f"topic {name} was {self.confirmed[name]} and is now {topic.topic_id}")
        if self.cluster.is_over:
            self.finish()
        else:
            self.world.after(self._pause_ms * MICROSECONDS_A_MS, self._create)
