"""Run-length coded logs, in which traces are checked, answer as the specification's own logs do."""

from __future__ import annotations

import pytest

from spec.checker import SHORT_RUN, Job, Verdict, check
from spec.models import SPEC

MODULE = """
---- MODULE RunLengthIsLog ----
EXTENDS Log, RunLengthLog

Record(epoch) == [epoch |-> epoch, number |-> 0]
Sorted(epochs) == \\A i \\in 1 .. Len(epochs) - 1 : epochs[i] <= epochs[i + 1]
Logs == {[i \\in DOMAIN epochs |-> Record(epochs[i])] :
            epochs \\in {e \\in UNION {[1 .. n -> 1 .. 4] : n \\in 0 .. 5} : Sorted(e)}}

Ends(log) == {i \\in DOMAIN log : i = Len(log) \\/ log[i + 1].epoch > log[i].epoch}
EndsBefore(log, end) == Cardinality({i \\in Ends(log) : i < end})
Runs(log) == [n \\in 1 .. Cardinality(Ends(log)) |->
                LET end == CHOOSE i \\in Ends(log) : EndsBefore(log, i) = n - 1
                IN  [epoch |-> log[end].epoch, end |-> end]]

Alike(log) ==
    /\\ RunEndOffset(Runs(log)) = EndOffset(log)
    /\\ RunLastEpoch(Runs(log)) = LastEpoch(log)
    /\\ \\A end \\in 0 .. Len(log) : RunPrefix(Runs(log), end) = Runs(Prefix(log, end))
    /\\ \\A epoch \\in 0 .. 5 : RunStartOffsetOf(Runs(log), epoch) = StartOffsetOf(log, epoch)
    /\\ \\A epoch \\in LastEpoch(log) .. 4 : epoch > 0 =>
            RunExtend(Runs(log), epoch, Len(log) + 2) = Runs(log \\o <<Record(epoch), Record(epoch)>>)

VARIABLE log
Init == log \\in Logs
Next == UNCHANGED log
AllAlike == Alike(log)
====
"""
CONFIGURATION = "INIT Init\nNEXT Next\nINVARIANT AllAlike\nCHECK_DEADLOCK FALSE\n"


def job(runs: str) -> Job:
    return Job(
        folder=SPEC / "replication",
        module="RunLengthIsLog",
        configuration=CONFIGURATION,
        jvm=SHORT_RUN,
        modules={"RunLengthIsLog": MODULE.lstrip(), "RunLengthLog": runs},
    )


RUNS = (SPEC / "replication" / "RunLengthLog.tla").read_text()


def test_every_operator_answers_as_that_of_plain_logs() -> None:
    outcome = check(job(RUNS))
    assert outcome.verdict == Verdict.HOLDS, outcome.reason or outcome.output
    assert outcome.distinct == 126


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("StartOf(runs, i) < end}", "StartOf(runs, i) <= end}"),
        ("StartOf(runs, Len(runs)) < end THEN", "StartOf(runs, Len(runs)) <= end THEN"),
        ("RunLastEpoch(runs) < epoch THEN", "RunLastEpoch(runs) <= epoch THEN"),
    ],
)
def test_a_wrong_operator_is_noticed(right: str, wrong: str) -> None:
    assert right in RUNS
    assert check(job(RUNS.replace(right, wrong))).verdict == Verdict.VIOLATED
