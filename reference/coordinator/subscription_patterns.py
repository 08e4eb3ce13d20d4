"""Subscriptions by pattern: when patterns are matched again, and what a changed pattern writes (CGH-16).

A pattern is matched against all topic names right after a heartbeat, not within it. The matched topics are kept in the
log. If they differ, the group epoch grows, and the members' next heartbeats use them.
Source: GroupMetadataManager.maybeUpdateRegularExpressions and handleRegularExpressionsResult of 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from reference.coordinator import consumer_group_records as records
from reference.coordinator.consumer_group import ConsumerGroup
from reference.coordinator.consumer_group_records import ResolvedPattern
from reference.coordinator.consumer_member import ConsumerMember
from reference.coordinator.group import KeyValue
from reference.coordinator.metadata_hash import TopicHashes
from reference.coordinator.pattern_matching import compile_pattern
from reference.coordinator.topics import Topics
from reference.protocol.primitives import TimestampMs, TopicName

LEAST_REFRESH_INTERVAL_MS = 10_000
"""The shortest time between two matches of a group's patterns."""


@dataclass(slots=True)
class PatternChange:
    """A heartbeat's change of its member's pattern."""

    is_changed: bool = False
    is_resolved: bool = False
    """Whether it is changed, and the topics of the new pattern are known."""
    is_first: bool = False
    """Whether it is changed to a pattern that no member of the group had."""
    records: list[KeyValue] = field(default_factory=list[KeyValue])


def change_pattern(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> PatternChange:
    """Errors: KafkaError INVALID_REGULAR_EXPRESSION."""
    if before.regex == after.regex:
        return PatternChange()
    change = PatternChange(is_changed=True)
    if before.regex and group.pattern_users.get(before.regex) == 1:
        change.records.append(records.pattern_tombstone(group.id, before.regex))
    if not after.regex:
        change.is_resolved = bool(before.regex)
    elif after.regex in group.pattern_users:
        change.is_resolved = after.regex in group.patterns
    else:
        compile_pattern(after.regex)
        change.is_first = True
    return change


def patterns_of(members: Iterable[ConsumerMember]) -> set[str]:
    return {member.regex for member in members if member.regex}


def must_resolve(
    group: ConsumerGroup,
    members: Iterable[ConsumerMember],
    change: PatternChange,
    newest_topics_version: int,
    interval_ms: int,
    now: TimestampMs,
) -> bool:
    """Whether the patterns of these members have to be matched."""
    if not group.pattern_users and not change.is_changed:
        return False
    patterns = patterns_of(members)
    if not patterns:
        return False
    last = next(iter(group.patterns.values()), None)
    if last is None:
        return True
    if now <= last.resolved_at + LEAST_REFRESH_INTERVAL_MS:
        return False
    return (
        change.is_first
        or len(patterns) != len(group.patterns)
        or last.version < newest_topics_version
        or now > last.resolved_at + interval_ms
    )


def resolve(group: ConsumerGroup, topics: Topics, hashes: TopicHashes, now: TimestampMs) -> list[KeyValue]:
    """The records of a match of the members' patterns against all topics, with a new group epoch if the topics changed."""
    found = {
        pattern: ResolvedPattern(_matched(pattern, topics), topics.version, now)
        for pattern in sorted(group.pattern_users)
    }
    written = [records.pattern_record(group.id, pattern, resolved) for pattern, resolved in found.items()]
    metadata_hash = hashes.of(_subscribed(group, found))
    if metadata_hash != group.metadata_hash or any(_topics(group, each) != found[each].topics for each in found):
        epoch = group.epoch + 1
        written.append(records.group_epoch_record(group.id, epoch, metadata_hash))
        group.checked_at_epoch = epoch
    return written


def _matched(pattern: str, topics: Topics) -> frozenset[TopicName]:
    regex = compile_pattern(pattern)
    return frozenset(name for name in topics.names() if regex.matches(name))


def _topics(group: ConsumerGroup, pattern: str) -> frozenset[TopicName]:
    known = group.patterns.get(pattern)
    return known.topics if known is not None else frozenset()


def _subscribed(group: ConsumerGroup, found: dict[str, ResolvedPattern]) -> set[TopicName]:
    by_name = {topic for member in group.members.values() for topic in member.topics}
    return by_name.union(*(resolved.topics for resolved in found.values()))
