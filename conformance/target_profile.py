"""A target's capabilities, as probed before a run: helpers follow them, `tidegauge doctor` prints them, reports begin with
them.

A profile is not a verdict. Requirements judge which capabilities a target must have.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

TopicSource = Literal["CreateTopics", "auto-creation", "--topics", "none"]
NEWEST_FORMAT = 2
SLOW_JOIN_S = 1.5
"""A lone member's longer wait for its first generation means that the coordinator delays rebalances."""
PATIENCE_WITH_SLOW_JOINS = 6.0
MEMBER_SESSION_MS = 60_000
"""Longer than any test, so that no member is removed on a busy machine."""

BY_TOPIC_ID = {"Fetch": 13, "Produce": 13, "OffsetCommit": 10, "OffsetFetch": 10}
"""API -> the first version that names topics by their ids alone."""


LONGEST_MS = "9223372036854775807"
FEATURES: dict[str, tuple[int, dict[str, int]]] = {
    "group.version": (1, {"ConsumerGroupDescribe": 0, "ConsumerGroupHeartbeat": 0}),
    "transaction.version": (2, {"EndTxn": 5, "TxnOffsetCommit": 5}),
}
"""Feature -> the level that enables it, and the API versions that need it."""
USUAL = {
    "cleanup.policy": ("log.cleanup.policy", "delete"),
    "compression.type": ("compression.type", "producer"),
    "delete.retention.ms": ("log.cleaner.delete.retention.ms", "86400000"),
    "max.compaction.lag.ms": ("log.cleaner.max.compaction.lag.ms", LONGEST_MS),
    "max.message.bytes": ("message.max.bytes", "1048588", "1000012"),
    "message.timestamp.after.max.ms": ("log.message.timestamp.after.max.ms", "3600000", LONGEST_MS),
    "message.timestamp.before.max.ms": ("log.message.timestamp.before.max.ms", LONGEST_MS),
    "message.timestamp.difference.max.ms": ("log.message.timestamp.difference.max.ms", LONGEST_MS),
    "message.timestamp.type": ("log.message.timestamp.type", "CreateTime"),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms", "0"),
    "min.insync.replicas": ("min.insync.replicas", "1"),
    "retention.bytes": ("log.retention.bytes", "-1"),
    "segment.bytes": ("log.segment.bytes", "1073741824"),
    "segment.jitter.ms": ("log.roll.jitter.ms", "0"),
    "segment.ms": ("log.roll.ms", "604800000"),
    "unclean.leader.election.enable": ("unclean.leader.election.enable", "false"),
}
"""Topic configuration -> the broker configuration of its default, and the defaults of Kafka's releases."""
IN_HOURS = {"segment.jitter.ms": ("log.roll.jitter.hours", "0"), "segment.ms": ("log.roll.hours", "168")}
"""The same for broker configurations in hours, which count where none in milliseconds is set."""


class SeenNode(BaseModel):
    """One broker from Metadata."""

    model_config = ConfigDict(extra="forbid")

    id: int
    host: str
    port: int
    unreachable: str = Field(default="", description="why no connection could be made from here; empty: it can")


class TargetProfile(BaseModel):
    """The capabilities of a target. The defaults are those of a recent Apache Kafka that answers at once."""

    model_config = ConfigDict(extra="forbid")

    advertised: dict[str, tuple[int, int]] = Field(
        default_factory=dict, description="API -> lowest and highest version"
    )
    asked_in: int = Field(default=0, description="the version of ApiVersions that gets a readable answer")
    unserved: dict[str, dict[int, str]] = Field(
        default_factory=dict, description="API -> advertised version -> what came instead of a readable answer"
    )
    doubtful: dict[str, dict[int, str]] = Field(
        default_factory=dict,
        description="API -> advertised version -> why API-05 failed in it; helpers use it where no other is left",
    )
    switched_off: dict[str, int] = Field(
        default_factory=dict,
        description="API -> the first version that needs a feature (KIP-584) which the target knows and has not finalized",
    )
    deadly: list[str] = Field(
        default_factory=list,
        description="basic requirements that the target did not survive: no other requirement takes their step again",
    )
    lethal: list[str] = Field(
        default_factory=list, description="versions of APIs that the target did not survive: API-05 asks them last"
    )
    formats: list[int] = Field(default=[NEWEST_FORMAT], description="message formats (magic) that Produce accepts")
    topics_by: TopicSource = Field(default="CreateTopics", description="how a topic comes to be")
    topic_configs: bool = Field(default=True, description="whether CreateTopics accepts configurations")
    keeps_unlimited: bool = Field(
        default=True,
        description="whether records stay in a topic with retention.ms=-1, which switches their removal off",
    )
    places: bool = Field(default=True, description="whether CreateTopics puts partitions on the brokers that it names")
    topic_ids: bool = Field(default=True, description="whether Metadata gives topics an id (KIP-516)")
    given_topics: list[str] = Field(default_factory=list, description="the topics of --topics")
    fetch_wait_ms: int = Field(default=0, description="the least max_wait_ms with which a fetch returns records")
    ends_by_fetch: bool = Field(
        default=False, description="whether ends of logs are taken from Fetch: ListOffsets gives wrong ones (BAS-05)"
    )
    nodes: list[SeenNode] = Field(default_factory=list[SeenNode])
    controller_id: int = Field(default=-1, description="as Metadata says; -1: it does not")
    configs: dict[str, str | None] = Field(
        default_factory=dict, description="broker configurations that DescribeConfigs lists, with their values"
    )
    default_partitions: int = Field(default=0, description="partitions of a topic that says none; 0: unknown")
    admits_at_once: bool = Field(
        default=False,
        description="whether JoinGroup v4+ without a member id is admitted instead of given one (KIP-394)",
    )
    knows_unused_groups: bool = Field(
        default=True, description="whether the coordinator answers for a group without members, and not that it is none"
    )
    join_s: float = Field(
        default=0.0,
        description="how long a member with `session_ms` waits: for its first generation alone, or for one with another",
    )
    session_ms: int = Field(
        default=MEMBER_SESSION_MS,
        description="session and rebalance timeout of members; short where joins are held for a share of it",
    )
    unknown: dict[str, str] = Field(default_factory=dict, description="capability -> why it could not be probed")

    @property
    def patience(self) -> float:
        """The factor on the deadline of a requirement that uses classic groups."""
        return PATIENCE_WITH_SLOW_JOINS if self.join_s > SLOW_JOIN_S else 1.0

    @property
    def retained(self) -> dict[str, str]:
        """The configuration of the suite's topics that keeps old records."""
        return {"retention.ms": "-1"} if self.keeps_unlimited else {}

    @property
    def pinned(self) -> dict[str, str]:
        """The configurations that give a topic Kafka's defaults, where the broker's own differ."""
        described = [(name, of_broker, usual) for name, (of_broker, *usual) in USUAL.items()]
        described += [(name, of_broker, [hours]) for name, (of_broker, hours) in IN_HOURS.items()]
        return {
            name: USUAL[name][1]
            for name, of_broker, usual in described
            if (value := self.configs.get(of_broker)) is not None and value not in usual
        }

    @property
    def newest_format(self) -> int:
        """The message format of the helpers' writes."""
        return max(self.formats, default=NEWEST_FORMAT)

    def served(self, api: str, lowest: int, highest: int) -> tuple[int, int]:
        """The range without its highest versions that have no readable response; empty (lowest above highest) where none has.

        A doubtful version is used only if no better one is left.
        """
        broken = self.unserved.get(api, {})
        if not self.topic_ids and api in BY_TOPIC_ID:
            highest = min(highest, BY_TOPIC_ID[api] - 1)
        while highest >= lowest and highest in broken:
            highest -= 1
        doubtful = self.doubtful.get(api, {})
        best = next(
            (one for one in range(highest, lowest - 1, -1) if one not in doubtful and one not in broken), highest
        )
        return lowest, best

    def newest_served(self, api: str, lowest: int, highest: int) -> tuple[int, int]:
        """The newest versions in a row that are served, or the whole range where none is."""
        last = next((one for one in range(highest, lowest - 1, -1) if not self.broken(api, one)), None)
        if last is None:
            return lowest, highest
        below = next((one for one in range(last, lowest - 1, -1) if self.broken(api, one)), lowest - 1)
        return below + 1, last

    def broken(self, api: str, version: int) -> bool:
        """Whether API-05, or a probe, found this advertised version of an API not served as it should be."""
        return version in self.unserved.get(api, {}) or version in self.doubtful.get(api, {})

    def lines(self) -> Iterator[tuple[str, str]]:
        """The profile as lines for a person: label and text."""
        for node in self.nodes:
            state = f"cannot be reached from here: {node.unreachable}" if node.unreachable else "reachable"
            yield f"node {node.id}", f"{node.host}:{node.port}, {state}"
        yield "controller", str(self.controller_id) if self.controller_id >= 0 else "Metadata does not name one"
        yield (
            "APIs",
            f"{len(self.advertised)} advertised"
            + (f", in ApiVersions v{self.asked_in}: v0 has no readable answer" if self.asked_in else ""),
        )
        for api, version in self.switched_off.items():
            yield f"{api} v{version}", "advertised, and needs a feature that is switched off"
        for api, versions in self.unserved.items():
            for version, seen in sorted(versions.items()):
                yield f"{api} v{version}", f"advertised, but not served: {seen}"
        yield (
            "topics",
            {"none": "cannot be made"}.get(self.topics_by, f"by {self.topics_by}")
            + ("" if self.topic_configs else ", without configurations")
            + ("" if self.keeps_unlimited else "; with retention.ms=-1 they keep no record"),
        )
        if not self.places:
            yield "replicas", "not put on the brokers that CreateTopics names"
        if not self.topic_ids:
            yield "topic ids", "not reported: requests that need them are sent in older versions"
        yield "message formats", ", ".join(map(str, sorted(self.formats))) or "none"
        if self.fetch_wait_ms:
            yield "fetch", f"returns records only with max_wait_ms of {self.fetch_wait_ms} or more"
        if self.ends_by_fetch:
            yield "ends of logs", "by Fetch: ListOffsets gives another end than what was written (BAS-05)"
        if self.default_partitions:
            yield "default partitions", str(self.default_partitions)
        yield "configurations", f"{len(self.configs)} described" if self.configs else "not described"
        if self.join_s:
            yield "members join", f"after {self.join_s:.1f} s, with a session of {self.session_ms / 1000:g} s"
        for capability, why in self.unknown.items():
            yield capability, f"unknown: {why}"
