"""The catalogue: complete records, selection, versions, confirmations."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from conformance.levels import MUST
from conformance.report.schema import SCHEMA, schema_text
from conformance.requirement import (
    AREAS,
    CONFIRMATIONS,
    Requirement,
    catalogue,
    owed_by,
    requirement,
    select,
    untestable,
    version_key,
)


def test_every_record_says_what_it_asks() -> None:
    for id, entry in catalogue().items():
        record = entry.requirement
        assert record.sentence.endswith("."), id
        assert bool(record.untestable) == (entry.test is None), id
        assert record.untestable or record.accepted, f"{id} does not say what is accepted"
        for version in (record.since, record.until):
            assert not version or version_key(version), id


def test_modules_hold_one_area_each() -> None:
    areas: dict[str, set[str]] = {}
    for entry in catalogue().values():
        if entry.test:
            areas.setdefault(entry.module, set()).add(entry.requirement.area)
    assert {module: area for module, area in areas.items() if len(area) > 1} == {}


def test_the_catalogue_is_in_the_order_of_reports() -> None:
    ids = list(catalogue())
    assert ids == sorted(ids, key=lambda id: (list(AREAS).index(id[:3]), int(id[4:])))


@pytest.mark.parametrize(
    ("patterns", "ids"),
    [
        (["FRM-04"], ["FRM-04"]),
        (["frm-04", "API-01"], ["FRM-04", "API-01"]),
        (["FRM-02..FRM-04"], ["FRM-02", "FRM-03", "FRM-04"]),
    ],
)
def test_selection(patterns: list[str], ids: list[str]) -> None:
    assert [entry.requirement.id for entry in select(patterns)] == ids


def test_an_area_selects_all_of_it() -> None:
    assert {entry.requirement.area for entry in select(["API"])} == {"API"}


@pytest.mark.parametrize("pattern", ["XYZ", "FRM-999", "FRM-99..API-01", ""])
def test_a_pattern_that_names_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="names no requirement"):
        select([pattern])


def test_levels_and_versions_narrow_a_selection() -> None:
    assert {entry.requirement.level for entry in select(levels=[MUST])} == {MUST}
    assert "TXN-18" not in {entry.requirement.id for entry in select(version="3.9.2")}
    assert "TXN-18" in {entry.requirement.id for entry in select(version="4.0.0")}


@pytest.mark.parametrize(
    ("since", "until", "version", "owed"),
    [
        ("4.0", "", "4.0.0", True),
        ("4.0", "", "3.9.2", False),
        ("", "3.9", "3.9.2", True),
        ("", "3.9", "4.0.0", False),
        ("4.10", "", "4.9.9", False),
        ("4.4", "", "4.4.0-SNAPSHOT", True),
    ],
)
def test_since_and_until_include_their_versions(since: str, until: str, version: str, owed: bool) -> None:
    record = Requirement(id="FRM-01", level=MUST, sentence="A sentence.", source="a test", since=since, until=until)
    assert owed_by(record, version) is owed


def test_an_id_is_given_once() -> None:
    with pytest.raises(ValueError, match="registered twice"):
        untestable(
            "FRM-01", notices="none seen: no node was looked at", sentence="A sentence.", source="a test", reason="none"
        )
    with pytest.raises(ValueError, match="no such area"):
        requirement(
            "XXX-01", notices="none seen: no node was looked at", sentence="A sentence.", source="a test", accepted="x"
        )


DELETE_NO_TOPIC = {
    "MET-04": "no topic has the name",
    "TOP-14": "what is not there, or is named badly",
    "TOP-15": "the broker deletes nothing",
    "QTA-42": "refused by the quota",
    "CGH-26": "needs Kafka 4.0, where a topic's end takes no group with it",
}


def test_requirements_that_delete_topics_are_judged_alone() -> None:
    """Up to Kafka 3.9 a deleted topic takes all groups with it that have neither members nor offsets, and so those in which a
    member is between its two JoinGroups (GroupCoordinator.handleDeletedPartitions): GRP-27 failed so on 3.5.2."""
    deleting = {id for id, entry in catalogue().items() if entry.test and _names_deletion(entry.test, set())}
    assert {id for id in deleting if not catalogue()[id].requirement.exclusive} == {*DELETE_NO_TOPIC}


def _names_deletion(function: Callable[..., Any], seen: set[Callable[..., Any]]) -> bool:
    """Whether a function of the suite, or one that it calls, asks for topics to be deleted. A refusal's cleaning up is left out."""
    plain = inspect.unwrap(function)
    if plain in seen or not isinstance(plain, FunctionType) or plain.__name__ == "expect_refused":
        return False
    seen.add(plain)
    names = {*_names(plain.__code__)}
    called = [plain.__globals__.get(name) for name in names]
    return bool(names & {"DeleteTopicsRequest", "delete_topics_request"}) or any(
        _names_deletion(each, seen) for each in called if callable(each) and _is_the_suites(each)
    )


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_the_suites(function: Callable[..., Any]) -> bool:
    return inspect.unwrap(function).__module__.startswith("conformance.")


def test_confirmations_name_requirements_that_exist() -> None:
    held = json.loads(CONFIRMATIONS.read_text())
    assert held, "no confirmation is stored"
    for version, ids in held.items():
        assert version_key(version)
        assert [id for id in ids if id not in catalogue() or catalogue()[id].test is None] == []


def test_the_published_schema_is_that_of_the_models() -> None:
    assert SCHEMA.read_text() == schema_text(), "run: python -m conformance.report.schema"
