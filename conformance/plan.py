"""In which configurations a started target must run, so that every requirement finds its own, with few restarts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from conformance.requirement import Entry

BASE_CONFIGS = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "300",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
"""What every target that the suite starts is given: shorter waits, nothing that changes an answer."""


@dataclass
class Group:
    """Requirements that are judged on one start of the target."""

    configs: dict[str, str] = field(default_factory=dict[str, str])
    entries: list[Entry] = field(default_factory=list[Entry])


def plan(entries: Iterable[Entry]) -> list[Group]:
    """Groups of requirements whose configurations agree; those that need nothing special come first.

    A requirement that must be alone shares its start only with those that need exactly the same. Those with hooks get a start
    that is not full of others' topics: a broker that is restarted opens each of them.
    """
    plain, hurt = Group(dict(BASE_CONFIGS)), Group(dict(BASE_CONFIGS))
    special: list[Group] = []
    alone: list[Group] = []
    for entry in entries:
        needs = entry.requirement.needs
        wanted = BASE_CONFIGS | needs.configs
        if wanted == plain.configs or entry.test is None:
            (hurt if needs.hooks else plain).entries.append(entry)
        elif needs.alone:
            _group_for(alone, wanted, exactly=True).entries.append(entry)
        else:
            group = _group_for(special, wanted, exactly=False)
            group.configs.update(needs.configs)
            group.entries.append(entry)
    return [group for group in (plain, hurt, *special, *alone) if group.entries]


def _group_for(groups: list[Group], wanted: dict[str, str], *, exactly: bool) -> Group:
    for group in groups:
        agrees = all(group.configs.get(key, value) == value for key, value in wanted.items())
        if group.configs == wanted or (agrees and not exactly):
            return group
    groups.append(Group(dict(wanted)))
    return groups[-1]


def by_duration(groups: Sequence[Group]) -> list[Group]:
    """The first group, then the others, those first whose requirements may take longest: nothing waits for one of them alone."""
    return [
        *groups[:1],
        *sorted(groups[1:], key=lambda group: -max(entry.requirement.deadline_s for entry in group.entries)),
    ]


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """The entries in the order of reports, each after those of them that it requires."""
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
