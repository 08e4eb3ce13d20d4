"""Every rule finds exactly one anomaly in the history that explains it, with a witness and a text; and its record is complete."""

from pathlib import Path

import pytest

from linearizability.history.contract import Contract
from linearizability.history.notation import history
from linearizability.history.operations import poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline.engine import check, judge_history
from linearizability.rules import RULES
from linearizability.rules.rule import Rule, RunRule


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.id)
def test_example(rule: Rule | RunRule) -> None:
    contract = Contract(strict_recency=rule.optional).model_dump()
    example = history(rule.example, contract)
    assert not example.defects
    judgement = judge_history(example)
    assert judgement.anomalies.get(rule.id) == 1, judgement.to_json()
    witness = next(anomaly for anomaly in judgement.witnesses() if anomaly.rule == rule.id)
    assert witness.operations and witness.text


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_record(rule: Rule | RunRule) -> None:
    for text in (rule.definition, rule.promise, rule.source, rule.needs, rule.cost):
        assert text and text == text.strip()
    assert rule.definition.endswith(".") and rule.promise.endswith(".")


def test_a_history_without_faults_is_valid() -> None:
    good = history(
        """
        0 send t-0:1@0
        0 send t-0:2@1
        2 send t-1:5@0 info
        1 assign t-0 t-1
        1 poll t-0:1@0
        1 poll t-0:2@1 t-1:5@0
        1 assign t-0
        0 send t-0:3@2
        1 poll t-0:3@2
        """
    )
    judgement = judge_history(good)
    assert judgement.verdict == "valid" and not judgement.anomalies, judgement.to_json()


def test_processes_that_share_a_recorder_are_judged_one_by_one(tmp_path: Path) -> None:
    """Their operations are numbered through: process 1 is given a record again, whatever process 2 did in between."""
    with Recorder.open(tmp_path, run="r") as recorder:
        for value in range(4):
            recorder.ok(recorder.invoke("send", [send("t-0", value)]), [send("t-0", value, offset=value)])
        for process, first in ((1, 0), (2, 0), (1, 0), (2, 2)):
            polled = poll({"t-0": [(first, first), (first + 1, first + 1)]})
            recorder.ok(recorder.invoke("poll", [poll()], process=process), [polled])
        for process, value, offset in ((3, 4, 5), (4, 5, 6), (3, 6, 4)):
            operation = recorder.invoke("send", [send("t-0", value)], process=process)
            recorder.ok(operation, [send("t-0", value, offset=offset)])
    (judgement,) = check([tmp_path])
    assert judgement.anomalies["nonmonotonic-poll"] == 1
    assert judgement.anomalies["nonmonotonic-send"] == 1


def test_a_group_whose_commits_all_failed() -> None:
    """Found by random facts: there is nothing that a fetched offset could be compared with."""
    failed = history(
        """
        0 send t-0:1@0
        1 poll t-0:1@0
        1 commit g t-0@1 fail
        2 committed g t-0@-1
        """
    )
    assert judge_history(failed).verdict == "valid"
