"""Every promise has a switch that breaks it and a model in which it is asked."""

from dataclasses import replace

import pytest

from spec import promises
from spec.catalogue import MODELS, all_cases
from spec.models import Edit, checked

PROMISED = {(model.folder, promise) for model in MODELS for promise in checked(model.text)}
MODEL = {model.name: model for model in MODELS}


def test_every_promise_has_a_switch_that_breaks_it() -> None:
    broken = {(case.model.folder, case.switch.violates) for case in all_cases().values() if case.switch}
    assert PROMISED - broken == set()


def test_every_promise_has_a_condition_and_no_other_has() -> None:
    assert {(folder, name) for folder, asked in promises.REACHED.items() for name in asked} == PROMISED


def test_every_promise_is_asked_in_some_model() -> None:
    stored = promises.load()
    asked = {(MODEL[row.model].folder, name) for row in stored.values() for name in row.reached}
    assert PROMISED - asked == {*promises.NOT_SEEN}


def test_what_is_stored_speaks_of_the_present_models() -> None:
    stored = promises.load()
    assert {*stored} <= {*MODEL}
    assert [name for name, row in stored.items() if row.digest != promises.digest(MODEL[name])] == []


@pytest.mark.java
def test_what_is_never_so_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored row is found again, and a condition that no state meets is distinguished."""
    model = MODEL["MCFailover"]
    stored = promises.load()["MCFailover"]
    found = promises.reach(model)
    assert (found.reached, found.unreached, found.distinct) == (stored.reached, stored.unreached, stored.distinct)
    assert "ConsumedNeverChanges" in found.unreached
    monkeypatch.setitem(promises.REACHED["replication"], "TypeOK", "partition.leaderEpoch > 99")
    assert "TypeOK" in promises.reach(model).unreached


def test_an_edit_that_fits_nowhere_or_twice_is_refused() -> None:
    for was in ("no such text", "highWatermark"):
        with pytest.raises(ValueError, match="not one"):
            Edit("Replica.ExpandIsr", was, "TRUE").of("replication")


def test_an_edited_switch_is_stale_when_its_edit_changes() -> None:
    case = all_cases()["ExpandBelowEpochStart"]
    assert case.switch and case.switch.edit
    other = replace(case, switch=replace(case.switch, edit=replace(case.switch.edit, becomes="FALSE")))
    assert other.digest() != case.digest()
    assert all_cases()["MCExpansion"].digest() != case.digest()
