"""What requirements build on: each row names requirements that exist, and no two build on each other."""

from dataclasses import replace
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.broker import Broker
from conformance.dependencies import USED_BY, dependencies_of
from conformance.requirement import AREAS, Needs, catalogue
from conformance.results import Verdict
from conformance.steps import built_on, refused, refused_by_epoch
from conformance.transaction_client import CLASSIC, TransactionalClient
from conformance.wire import Failed
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import NO_UUID
from tests.conformance.mortal import Mortal, entry, judged_on, verdicts


def test_rows_name_requirements_and_areas_that_exist() -> None:
    known = {*catalogue(), *AREAS}
    assert not [name for row in USED_BY.values() for name in row.split() if name not in known]
    assert not USED_BY.keys() - catalogue().keys()


def test_no_two_build_on_each_other() -> None:
    records = [entry.requirement for entry in catalogue().values()]
    order = [*TopologicalSorter({one.id: {*one.builds_on, *one.prerequisites} for one in records}).static_order()]
    assert order.index("TXN-01") < order.index("BAS-10") < order.index("TXN-31")


def test_an_area_means_those_without_a_row_above() -> None:
    assert "BAS-08" in catalogue()["OFF-21"].requirement.builds_on
    assert dependencies_of("BAS-07") == ("COO-01", "GRP-06", "GRP-08")


def test_what_others_build_on_is_judged_on_their_starts_of_the_target() -> None:
    """A requirement that needs a configuration, nodes or a hook that its users do not need could not block them."""
    needs = {id: entry.requirement.needs for id, entry in catalogue().items()}
    unlike = [
        (used, user)
        for user in needs
        for used in dependencies_of(user)
        if not (
            needs[used].configs.items() <= needs[user].configs.items()
            and {*needs[used].hooks} <= {*needs[user].hooks}
            and needs[used].nodes <= needs[user].nodes
        )
    ]
    assert not unlike


def test_what_is_judged_later_on_a_start_of_its_own_blocks_what_builds_on_it(tmp_path: Path) -> None:
    @built_on("ACK-17")
    def step(broker: Broker) -> None:
        raise Failed("records are gone")

    def lost(broker: Broker) -> None:
        raise Failed("the topic is gone")

    entries = [
        entry("HIS-01", step),
        entry("HIS-12", lost),
        entry("ACK-17", lost, needs=Needs(hooks=("restart",))),
    ]
    report = judged_on(Mortal(restartable=True), tmp_path, *entries)
    assert verdicts(report) == {"HIS-01": Verdict.BLOCKED, "HIS-12": Verdict.BLOCKED, "ACK-17": Verdict.FAIL}
    assert {one.requirement.id: one.blocked_by for one in report.judgements}["HIS-12"] == "ACK-17"


def test_writes_that_meet_the_same_producer_id_of_another_coordinator_are_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on crabka with three nodes: each node assigns producer ids from 1000 on, and refuses by its own transaction's epoch."""

    def gives_an_id_twice(broker: Broker) -> None:
        raise Failed("does not hold: id 1001")

    def refused(broker: Broker) -> None:
        client = object.__new__(TransactionalClient)
        client.broker = broker
        client.protocol = replace(CLASSIC, adds=False)
        answer = SimpleNamespace(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
        monkeypatch.setattr(client, "produce", lambda *_, **__: answer, raising=False)
        client.write(Topic("topic", NO_UUID, 1), b"a record")

    transactions = ("TXN-10", "TXN-13", "TXN-17")
    met = (*transactions, "TXV-01", "TXV-03", "TXV-10", "TXV-11", "TXV-15", "TXV-19", "TXV-20", "TXV-23", "TXV-24")
    entries = [entry("TXN-01", gives_an_id_twice), *(entry(id, refused) for id in met)]
    report = judged_on(Mortal(restartable=True), tmp_path, *entries)
    blocked_by = {one.requirement.id: one.blocked_by for one in report.judgements}
    assert blocked_by == {"TXN-01": ""} | dict.fromkeys(met, "TXN-01")


def test_records_that_are_shown_too_early_are_not_hidden_behind_the_producer_id() -> None:
    """As on the mock cluster: TXN-11 blocks its TXN-01, and has nothing to do with records of an open transaction."""
    assert "TXN-01" not in catalogue()["TXV-01"].requirement.builds_on


@pytest.mark.parametrize(
    ("code", "step"), [(ErrorCode.INVALID_PRODUCER_EPOCH, "TXN-01"), (ErrorCode.CORRUPT_MESSAGE, "")]
)
def test_only_an_epoch_that_refuses_a_write_is_a_step_of_the_producer_id(code: ErrorCode, step: str) -> None:
    with pytest.raises(Failed) as failure, refused_by_epoch("TXN-01"):
        raise refused("a valid batch was refused", code)
    assert failure.value.built_on == step


def test_a_write_that_an_epoch_refuses_is_more_than_a_write_that_fails() -> None:
    """`Broker.append` names BAS-03, which passes: so LOF-13 once failed for crabka's producer ids."""

    @built_on("BAS-03")
    def append(broker: Any) -> None:
        raise refused("a valid batch was refused", ErrorCode.INVALID_PRODUCER_EPOCH)

    profile = SimpleNamespace(deadly=[])
    broker: Any = SimpleNamespace(subject=SimpleNamespace(profile=profile))
    with pytest.raises(Failed) as failure, refused_by_epoch("TXN-01"):
        append(broker)
    assert failure.value.built_on == "TXN-01"


def test_offsets_that_an_epoch_refuses_after_an_end_are_a_step_of_the_epoch_that_it_raised() -> None:
    """As on crabka, where TXV-08 commits the offsets of several transactions, one after the other."""
    client = object.__new__(TransactionalClient)
    client.protocol = CLASSIC
    client.add_offsets = lambda *_, **__: ErrorCode.INVALID_PRODUCER_EPOCH  # type: ignore[method-assign]
    with pytest.raises(Failed) as failure:
        client.write_offsets("group", {})
    assert failure.value.built_on == "TXN-29"


def test_a_second_transaction_that_is_refused_is_not_hidden_behind_what_describes_it() -> None:
    """As on crabka, where each end of a transaction raises the epoch: only TXN-29 is about that."""
    assert not {"TXN-22", "FET-10"} & {*catalogue()["TXN-29"].requirement.builds_on}
