"""The configurations in which a target must be started, so that every requirement has its own, with few starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from conformance.judging import HASTENING, OF_SILENT_NODES
from conformance.requirement import Entry

BASE_CONFIGS = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
"""The configurations of every target that the suite starts: shorter waits, no change of a response."""

TIMES = HASTENING | OF_SILENT_NODES
"""Configurations that change only the time of a broker's actions."""
KAFKAS_DEFAULTS = {
    "group.consumer.heartbeat.interval.ms": "5000",
    "group.consumer.migration.policy": "bidirectional",
    "group.max.session.timeout.ms": "1800000",
    "group.min.session.timeout.ms": "6000",
    "offset.metadata.max.bytes": "4096",
    "producer.id.expiration.ms": "86400000",
    "transaction.max.timeout.ms": "900000",
}
"""Defaults of Kafka on which a requirement depends."""
STILL_LEADERS = {"auto.leader.rebalance.enable": "false"}
"""No leader changes without a cause. Every requirement expects that, unless it needs the opposite."""
HARMLESS = KAFKAS_DEFAULTS | STILL_LEADERS
"""Settings with a value that changes no response. Any other setting gets a separate start for the requirements that need it."""


@dataclass
class Group:
    """Requirements that are judged on one start of the target, and its configurations."""

    configs: dict[str, str] = field(default_factory=dict[str, str])
    entries: list[Entry] = field(default_factory=list[Entry])


def changes_answers(name: str, value: str) -> bool:
    """Whether a setting may change the responses to a requirement that does not need it."""
    return name not in TIMES and HARMLESS.get(name) != value


def fits(wanted: Mapping[str, str], configs: Mapping[str, str]) -> bool:
    """Whether a requirement can be judged on a start with these configurations: all of its own, and no other that changes
    responses.

    `wanted` are the requirement's own; BASE_CONFIGS are added here.
    """
    own = BASE_CONFIGS | dict(wanted)
    return own.items() <= configs.items() and not any(
        changes_answers(name, value) for name, value in configs.items() if name not in own
    )


def plan(entries: Iterable[Entry]) -> list[Group]:
    """Groups of requirements that can share a start (`fits`); those that need nothing special come first.

    A requirement marked `alone` shares its start only with those of exactly the same configurations. Requirements with hooks
    get a separate start with few topics, because a restarted broker must recover each of them.
    """
    plain, hurt = Group(dict(BASE_CONFIGS)), Group(dict(BASE_CONFIGS))
    special: list[Group] = []
    alone: list[Group] = []
    for entry in entries:
        needs = entry.requirement.needs
        wanted = BASE_CONFIGS | needs.configs
        if wanted == plain.configs or entry.test is None:
            (hurt if needs.hooks else plain).entries.append(entry)
        else:
            group = _group_for(alone if needs.alone else special, wanted, exactly=needs.alone)
            group.configs.update(needs.configs)
            group.entries.append(entry)
    return [group for group in (plain, hurt, *special, *alone) if group.entries]


def _group_for(groups: list[Group], wanted: dict[str, str], *, exactly: bool) -> Group:
    """A group with the wanted configurations, or, unless `exactly`, one that they can join without effect on its members;
    else a new one."""
    for group in groups:
        both = group.configs | wanted
        shared = all(fits(each.requirement.needs.configs, both) for each in group.entries) and fits(wanted, both)
        if group.configs == wanted or (shared and not exactly):
            return group
    groups.append(Group(dict(wanted)))
    return groups[-1]


def by_duration(groups: Sequence[Group]) -> list[Group]:
    """The first group, then the others by their longest deadline, the longest first, so that no long one is left to the end."""
    return [
        *groups[:1],
        *sorted(groups[1:], key=lambda group: -max(entry.requirement.deadline_s for entry in group.entries)),
    ]


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """The entries in the order of reports, each after the listed ones that it requires."""
    by_id = {entry.requirement.id: entry for entry in entries}
    placed: dict[str, Entry] = {}

    def place(entry: Entry) -> None:
        if entry.requirement.id in placed:
            return
        for required in entry.requirement.prerequisites:
            if required in by_id:
                place(by_id[required])
        placed[entry.requirement.id] = entry

    for entry in entries:
        place(entry)
    return list(placed.values())


def is_exclusive(entry: Entry) -> bool:
    """Whether a requirement runs alone: it is marked exclusive, uses fault hooks, or records a history (area HIS)."""
    return entry.requirement.exclusive or bool(entry.requirement.needs.hooks) or entry.requirement.area == "HIS"
