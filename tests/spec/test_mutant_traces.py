"""Traces of brokers with a planted bug are rejected if the bug shows in a partition's trace.

The mutants of the switches are driven by schedules (`test_fault_schedules.py`, `test_quorum_schedules.py`); those of groups and
of transactions are with their traces. Here are the others, and the reasons of those that no trace shows.
"""

from __future__ import annotations

import pytest

from linearizability.mutants.registry import MUTANTS
from spec import quorum_schedules
from spec.checker import Verdict
from spec.fault_schedules import MUTANT_OF
from spec.trace import check_traces, trace_of
from tests.spec.clusters import partition_traces_of, small

SHOWN_BY_SEED = {
    "kip-101-divergence": 0,
    "kip-320": 8,
    "leaver-counted-out": 8,
    "committed-under-min-isr": 0,
    "acknowledged-under-min-isr": 1,
    "acknowledged-before-commit": 0,
    "follower-believes-its-leader": 76,
    "divergence-unchecked": 35,
    "high-watermark-ahead": 0,
    "high-watermark-back": 0,
}
"""Mutant -> the seed of a small run that leaves the specification."""

NOT_REPORTED = {
    "unfenced-before-replay": "no step of a partition: the simulation's check of the metadata finds it",
    "snapshot-ahead": "the quorum's trace has no snapshots but those that are sent: seldom does one that is ahead outlive its "
    "writer (a promise of the simulation finds it: `tests/mutants/test_mutants.py`)",
    "kip-903": "the leader proposes no replica of another incarnation: former-incarnation-unnoticed is this bug without that defence",
    "fenced-broker-admitted": "the leader proposes no replica that is fenced: fencing-unnoticed is this bug without that defence",
    "epoch-start-unasked": "it needs a leader that dies as it commits: no small incarnation has one",
    "high-watermark-restored-wrongly": "it shows where an incarnation ends with records that were not committed: seldom in small runs",
    "follower-serves-ahead": "small runs read from leaders",
    "newer-epochs-appended": "it needs answers whose records change on their way, which the specification does not know: a promise "
    "of the simulation finds it (`tests/simulation/test_late_slices.py`)",
    "producers-forgotten-by-new-leaders": "a trace reports records by offsets, not by what is in them",
    "commit-answered-before-it-is-replicated": "a group's commit is no step of a partition",
    "unsettled-end-reported": "what a client is answered to a look-up is no step: a promise of the simulation finds it",
    "partitions-unverified": "no step of a partition: a transaction's traces show it (`test_coordinator_schedules.py`)",
    "removed-leader-never-stands": "no step that is forbidden is taken: a promise of the simulation finds it (`tests/mutants/test_mutants.py`)",
    "internal-topics-without-a-leader": "a step that is not taken is none that is forbidden: the simulation finds the partition",
    "idle-epoch-left-behind": "the move of a log into another directory is no step: a promise of the simulation finds it",
    "deleted-topics-log-kept": "two topics of one name are no trace: promises of the simulation find it",
    "deleted-topics-high-watermark-kept": "two topics of one name are no trace: a promise of the simulation finds it",
    "own-settings-refused": "no step of a partition: the conformance suite finds it",
    "epoch-kept-by-end": "no step of a partition: a transaction's traces show it (`test_shard_traces.py`)",
}
NOT_REPORTED |= dict.fromkeys(
    (name for name, mutant in MUTANTS.items() if mutant.coordination == "zookeeper"),
    "no step of a partition: a promise of the simulation finds it (`tests/mutants/test_mutants.py`)",
)
"""Mutants of several nodes that no trace of a small incarnation shows, and why."""


def test_every_mutant_of_several_nodes_is_rejected_somewhere_or_says_why_not() -> None:
    named = {*SHOWN_BY_SEED} | {*MUTANT_OF.values()} | {*quorum_schedules.MUTANT_OF.values()} | {*NOT_REPORTED}
    assert {name for name, mutant in MUTANTS.items() if mutant.nodes == 3} <= named


@pytest.mark.sampled(days=5)
@pytest.mark.java
def test_each_is_rejected() -> None:
    traces = [
        trace_of(events, f"{mutant} {name}")
        for mutant, seed in SHOWN_BY_SEED.items()
        for name, events in partition_traces_of(small(seed), mutant).items()
    ]
    done = check_traces(traces, look_ups=0)
    assert done.outcome.verdict == Verdict.HOLDS, done.outcome.reason
    assert {verdict.name.split()[0] for verdict in done.rejected} == {*SHOWN_BY_SEED}
