"""The three assignors on one example, as a table: who has what, and what moves when a member leaves and another joins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from linearizability.workload.assignment import ASSIGNORS
from linearizability.workload.assignment.subscription import Assignment, Group, Member

TOPICS = {"orders": 4, "payments": 4}
"""Two topics that are joined by their partitions' numbers."""

GENERATIONS = (("A", "B", "C"), ("B", "C"), ("B", "C", "D"))
"""The members of three generations in a row: A leaves, then D joins."""

HEAD = ("assignor", "generation", "A", "B", "C", "D", "most − fewest", "moved")


@dataclass(frozen=True, slots=True)
class Generation:
    """One rebalance's outcome."""

    members: tuple[str, ...]
    assignment: Assignment
    moved: int
    """Partitions that a member lost although it stayed: work that is interrupted."""

    @property
    def imbalance(self) -> int:
        """How many partitions more the fullest member has than the emptiest."""
        sizes = [len(partitions) for partitions in self.assignment.values()]
        return max(sizes) - min(sizes)


def history(
    assign: Callable[[Group], Assignment],
    partition_counts: Mapping[str, int] = TOPICS,
    generations: Sequence[tuple[str, ...]] = GENERATIONS,
) -> list[Generation]:
    """The generations of a group whose members all want all topics, and report what they own when they join again."""
    newcomer = Member(frozenset(partition_counts))
    before: Assignment = {}
    outcomes: list[Generation] = []
    for number, ids in enumerate(generations):
        members = {
            id: replace(newcomer, owned=frozenset(before[id]), generation=number - 1) if id in before else newcomer
            for id in ids
        }
        after = assign(Group(members, partition_counts))
        outcomes.append(Generation(ids, after, moved(before, after)))
        before = after
    return outcomes


def moved(before: Assignment, after: Assignment) -> int:
    """How many partitions were taken from members that are still there."""
    return sum(len(set(partitions) - set(after[id])) for id, partitions in before.items() if id in after)


def table() -> str:
    """The comparison in Markdown."""
    rows = [HEAD, ("---",) * len(HEAD)]
    for name, assign in ASSIGNORS.items():
        for number, generation in enumerate(history(assign), start=1):
            shares = (_share(generation.assignment, id) for id in ("A", "B", "C", "D"))
            rows.append((name, str(number), *shares, str(generation.imbalance), str(generation.moved)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _share(assignment: Assignment, id: str) -> str:
    """A member's partitions by topic (`o0 o1 p0 p1`); a dash for a member that is not there."""
    if id not in assignment:
        return "–"
    return " ".join(f"{topic[0]}{number}" for topic, number in assignment[id]) or "nothing"
