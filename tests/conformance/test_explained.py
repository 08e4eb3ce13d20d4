"""A failure that the target's own configuration explains is reported with that configuration."""

from pathlib import Path

import pytest

from conformance import observations
from conformance.requirement import select
from conformance.results import Verdict
from conformance.runner import Plan, run
from linearizability.testing import reference_broker


def test_a_missing_coordinator_is_explained_by_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observations, "READY_WITHIN_S", 1.0)
    with reference_broker(config={"offsets.topic.replication.factor": "3"}) as broker:
        found = run(Plan(f"addr:{broker.bootstrap}", select(["BAS-06"]), tmp_path))
    (judgement,) = [one for one in found.judgements if one.requirement.id == "BAS-06"]
    assert judgement.verdict is Verdict.FAIL
    assert "the target has 1 node, and is configured with offsets.topic.replication.factor=3" in judgement.seen
