"""Which requirements share a start of the target: no setting that changes answers is in force for one that did not ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conformance.host import Host
from conformance.levels import MUST
from conformance.plan import BASE_CONFIGS, HARMLESS, KAFKAS_DEFAULTS, TIMES, Group, fits, plan
from conformance.requirement import Entry, Needs, Requirement, catalogue
from conformance.results import TargetRecord
from reference.controller.config_table import BROKER

OFTEN = {"log.cleaner.backoff.ms": "100"}
SOON = {"broker.session.timeout.ms": "6000"}
LATE = {"broker.session.timeout.ms": "30000"}
FORBIDDEN = {"delete.topic.enable": "false"}
SMALL = {"group.max.size": "2"}
USUAL = {"offset.metadata.max.bytes": "4096"}


def entry(id: str, configs: dict[str, str], **needs: Any) -> Entry:
    record = Requirement(
        id=id, level=MUST, sentence="A sentence of its own.", source="a test", needs=Needs(configs=configs, **needs)
    )
    return Entry(requirement=record, test=lambda broker: None)


def ids(group: Group) -> list[str]:
    return [one.requirement.id for one in group.entries]


def test_requirements_share_a_start_where_no_setting_of_one_changes_answers_of_the_other() -> None:
    entries = [
        entry("FRM-01", {}),
        entry("FRM-02", SOON),
        entry("FRM-03", LATE),
        entry("FRM-04", OFTEN),
        entry("FRM-05", FORBIDDEN | SOON),
        entry("FRM-06", dict([next(iter(BASE_CONFIGS.items()))])),
        entry("FRM-07", {}, hooks=("restart",)),
        entry("FRM-08", USUAL),
        entry("FRM-09", OFTEN, alone=True),
        entry("FRM-10", FORBIDDEN),
        entry("FRM-11", SMALL),
    ]
    groups = plan(entries)
    assert [ids(group) for group in groups] == [
        ["FRM-01", "FRM-06"],
        ["FRM-07"],
        ["FRM-02", "FRM-04", "FRM-08"],
        ["FRM-03"],
        ["FRM-05", "FRM-10"],
        ["FRM-11"],
        ["FRM-09"],
    ]
    assert groups[2].configs == BASE_CONFIGS | SOON | OFTEN | USUAL
    assert groups[-1].configs == BASE_CONFIGS | OFTEN


def foreign_settings() -> Iterator[tuple[str, str, str]]:
    """Each requirement of the catalogue, with each setting that only another one of its start asks for."""
    for group in plan(catalogue().values()):
        asked = {pair for each in group.entries for pair in each.requirement.needs.configs.items()}
        for each in group.entries:
            own = BASE_CONFIGS | each.requirement.needs.configs
            yield from ((each.requirement.id, name, value) for name, value in asked if own.get(name) != value)


def test_whatever_the_catalogues_requirements_share_is_declared_harmless() -> None:
    seen = list(foreign_settings())
    assert [each for each in seen if each[1] not in TIMES and HARMLESS.get(each[1]) != each[2]] == []
    assert {name for _, name, _ in seen} >= {"broker.session.timeout.ms", "offset.metadata.max.bytes"}, (
        "none was looked at"
    )


def test_no_two_values_of_a_setting_are_in_force_at_once() -> None:
    for group in plan(catalogue().values()):
        for each in group.entries:
            assert (each.requirement.needs.configs.items()) <= group.configs.items(), each.requirement.id


def test_topics_are_not_deleted_where_deletion_is_off() -> None:
    """TOP-22 deletes topics, on several nodes; TOP-15 asks that none is."""
    groups = plan(catalogue().values())
    of_deletion = [ids(group) for group in groups if "TOP-15" in ids(group)]
    assert of_deletion == [["TOP-15"]]


@pytest.mark.parametrize("name", sorted(KAFKAS_DEFAULTS))
def test_what_counts_as_a_default_is_one(name: str) -> None:
    assert BROKER[name].default == KAFKAS_DEFAULTS[name]


@pytest.mark.parametrize(
    ("wanted", "configs", "judged"),
    [
        ({}, {}, True),
        ({}, SOON, True),
        ({}, FORBIDDEN, False),
        (FORBIDDEN, FORBIDDEN | SOON, True),
        (FORBIDDEN, SOON, False),
        (SOON, LATE, False),
        ({}, {"auto.create.topics.enable": "false"}, False),
    ],
)
def test_a_prerequisite_is_judged_before_its_turn_only_where_it_would_be_judged_alike(
    wanted: dict[str, str], configs: dict[str, str], judged: bool
) -> None:
    assert fits(wanted, BASE_CONFIGS | configs) is judged
    host = Host("reference:1", Path(), TargetRecord(spec="reference:1"))
    assert not host.is_started_for(wanted)
    host.open_group = Group(BASE_CONFIGS | configs)
    assert host.is_started_for(wanted) is judged
