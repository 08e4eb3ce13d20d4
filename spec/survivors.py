"""Why each mutant that no model noticed is no fault: read one by one.

A row names mutants by how their names begin, and holds for each of them; the tests see that each survivor has one.
"""

from __future__ import annotations

REASONS: tuple[tuple[str, str], ...] = (
    (
        "Controller.IsForThisEpoch.guard1",
        "a leader epoch begins with a record, and the partition epoch grows with each: equal partition epochs are of one "
        "leader epoch",
    ),
    (
        "Controller.UnfenceBroker.guard1",
        "who is not running has forgotten its metadata (Halt), and has therefore replayed nothing",
    ),
    (
        "Replica.BecomeLeader.guard2",
        "by a record that names another the broker does what BecomeFollower does: it leads only if the record names it",
    ),
    (
        "Replica.BecomeLeader.reset1",
        "no fault of the rule: MCTruncation, dearer than the models met so far, breaks by it (the switch KeepProgress)",
    ),
    (
        "Replica.BecomeLeader.reset3",
        "only the switches of before KIP-595 ever have a replica truncate before it may fetch",
    ),
    (
        "Controller.Completed.alternative1",
        "where nothing comes or goes, completing changes nothing",
    ),
)
"""How the mutants' names begin, and the reason."""


def reason_of(mutant: str) -> str:
    """The reason of the longest row that fits; empty where there is none."""
    found = [(len(begins), reason) for begins, reason in REASONS if mutant.startswith(begins)]
    return max(found)[1] if found else ""
