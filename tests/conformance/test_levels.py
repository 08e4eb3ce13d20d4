"""Levels: each follows from the party that notices a breach, which every requirement names; profiles count only the musts."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from conformance.commands import app
from conformance.levels import LEVEL_OF, LONGEST, Kind, Level, kind_of
from conformance.profiles import EXCEPTIONS, PROFILE_OF_AREA, ConformanceProfile, profile_of
from conformance.requirement import AREAS, Requirement, catalogue, select
from conformance.results import Judgement, Verdict, profile_tallies

MUST_KINDS = {Kind.DATA, Kind.MISREAD, Kind.STUCK, Kind.SECURITY}


def record(id: str, notices: str, since: str = "") -> Requirement:
    return Requirement(
        id=id, level=LEVEL_OF[kind_of(notices)], notices=notices, sentence="A sentence.", source="a test", since=since
    )


def judged(
    id: str, verdict: Verdict, notices: str = "data: every consumer loses a record", since: str = ""
) -> Judgement:
    return Judgement(requirement=record(id, notices, since), verdict=verdict)


def test_kinds_give_the_levels() -> None:
    assert {kind for kind, level in LEVEL_OF.items() if level is Level.MUST} == MUST_KINDS
    assert [kind for kind, level in LEVEL_OF.items() if level is Level.MAY] == [Kind.NONE_SEEN]
    assert set(LEVEL_OF) == set(Kind)


@pytest.mark.parametrize(
    "notices", ["", "data", "pride: a vendor's engineers do not like it", "data: lost", f"data: {'x' * LONGEST}"]
)
def test_a_line_without_a_kind_or_of_a_wrong_length_is_refused(notices: str) -> None:
    with pytest.raises(ValueError, match=r"begins with none of|characters"):
        kind_of(notices)


def test_a_level_that_does_not_follow_is_refused() -> None:
    with pytest.raises(ValidationError, match="makes no must"):
        Requirement(
            id="FRM-01",
            level=Level.MUST,
            notices="none seen: clients ignore this field",
            sentence="A sentence.",
            source="a test",
        )


def test_profiles_count_the_musts_that_the_target_owes() -> None:
    judgements = [
        judged("PRD-01", Verdict.PASS), judged("PRD-02", Verdict.FAIL), judged("PRD-03", Verdict.TOLERATED),
        judged("PRD-04", Verdict.NOT_JUDGED), judged("PRD-05", Verdict.ENGINE_ERROR), judged("PRD-06", Verdict.UNTESTABLE),
        judged("PRD-07", Verdict.FAIL, "client: tries again for nothing"),
        judged("PRD-08", Verdict.NOT_JUDGED, since="4.0"), judged("HIS-01", Verdict.PASS),
    ]  # fmt: skip
    assert [tally.line for tally in profile_tallies(judgements, "3.9.2")] == [
        "core: 3 of 5 musts judged, 1 fails",
        "history: 1 of 1 musts judged, 0 fail",
    ]
    assert profile_tallies(judgements)[0].musts == 6
    assert profile_tallies(judgements)[0].failed == ["PRD-02"]


def test_every_area_has_a_profile_and_exceptions_are_some() -> None:
    assert set(PROFILE_OF_AREA) == set(AREAS)
    assert {id for id, profile in EXCEPTIONS.items() if profile is PROFILE_OF_AREA[id[:3]]} == set()
    assert set(EXCEPTIONS) <= set(catalogue())
    assert {entry.requirement.profile for entry in catalogue().values()} == set(ConformanceProfile)


def test_a_selection_by_profile() -> None:
    chosen = select(["IDM"], profiles=[ConformanceProfile.TRANSACTIONS])
    assert [entry.requirement.id for entry in chosen] == ["IDM-17"]
    result = CliRunner().invoke(app, ["list", "--profile", "history", "--json"])
    last = json.loads(result.stdout.splitlines()[-1])
    assert last["profiles"] == {"history": last["requirements"]}
    assert profile_of("COO-09") is ConformanceProfile.TRANSACTIONS


def test_every_requirement_says_who_notices_and_musts_say_what_harm() -> None:
    wrong: list[str] = []
    for id, entry in catalogue().items():
        record = entry.requirement
        text = record.notices.partition(": ")[2].lower()
        if record.level is not LEVEL_OF[kind_of(record.notices)] or (
            record.level is not Level.MAY and "none seen" in text
        ):
            wrong.append(f"{id}: {record.level}, {record.notices}")
    assert not wrong


def test_the_share_of_each_level_is_sane() -> None:
    """Where nearly all is a must, a must says nothing; where little is, a run's pass says nothing."""
    last = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout.splitlines()[-1])
    share = {level: count / last["requirements"] for level, count in last["levels"].items()}
    assert 0.4 < share["must"] < 0.65
    assert 0.2 < share["should"] < 0.45
    assert 0.05 < share["may"] < 0.25
