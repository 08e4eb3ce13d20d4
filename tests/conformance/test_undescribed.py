"""Transactions across nodes are judged without DescribeTransactions, too, which came with Kafka 3.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.requirement import select
from conformance.results import Verdict
from conformance.runner import Plan, run
from conformance.transaction_client import TransactionalClient
from tests.conformance.mortal import verdicts

ACROSS_NODES = ["TXN-47", "TXV-19"]


@pytest.mark.process
def test_they_are_judged_by_what_the_coordinator_and_the_partitions_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransactionalClient, "is_described", property(lambda client: False))
    monkeypatch.delattr(TransactionalClient, "described")
    report = run(Plan("reference:3", select(ACROSS_NODES), tmp_path, starts=1))
    reasons = {one.requirement.id: one.reason for one in report.judgements}
    seen = {id: verdict for id, verdict in verdicts(report).items() if id in ACROSS_NODES}
    assert seen == dict.fromkeys(ACROSS_NODES, Verdict.PASS), [reasons[id] for id in ACROSS_NODES]
