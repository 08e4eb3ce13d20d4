"""Compare a run with an earlier one, its baseline. A worse verdict fails the run; a better one is only reported."""

from __future__ import annotations

from conformance.results import Change, Judgement, Lack, Run, Verdict

RANK = {Verdict.FAIL: 1, Verdict.BLOCKED: 1, Verdict.TOLERATED: 2, Verdict.PASS: 3}
"""Verdicts that can be compared. A requirement that the baseline did not judge is neither better nor worse."""


def verdicts(baseline: Run) -> dict[str, Verdict]:
    """The verdict of each requirement, by its id."""
    return {one.requirement.id: one.verdict for one in baseline.judgements}


def excused(judgement: Judgement, before: Verdict | None) -> bool:
    """Whether the baseline excuses this failure: the requirement failed, or was blocked, there too.

    A failure of a requirement that the baseline lacks, or did not judge, is not excused.
    """
    return judgement.verdict is Verdict.FAIL and before in (Verdict.FAIL, Verdict.BLOCKED)


def compare(run: Run, before: dict[str, Verdict]) -> tuple[list[Change], list[Change]]:
    """The verdicts that are worse than the baseline's, and those that are better.

    A requirement that passed and is not judged any more is worse: else a broken API would hide a failure. It is not worse where
    the suite failed, where the run ended before its turn, or where the target is judged as a release that does not owe it.
    """
    worse: list[Change] = []
    better: list[Change] = []
    for judgement in run.judgements:
        then, now = (
            RANK.get(before.get(judgement.requirement.id, Verdict.NOT_JUDGED), 0),
            RANK.get(judgement.verdict, 0),
        )
        hidden = (
            judgement.verdict is Verdict.NOT_JUDGED and not judgement.unreached and judgement.lacks is not Lack.RELEASE
        )
        change = Change(
            id=judgement.requirement.id,
            before=before.get(judgement.requirement.id, Verdict.NOT_JUDGED),
            now=judgement.verdict,
            reason=judgement.reason,
        )
        if then > now > 0 or (then > 1 and hidden):
            worse.append(change)
        elif now > then > 0:
            better.append(change)
    return worse, better
