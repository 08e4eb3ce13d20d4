"""Models, switches, names and generated pages agree with each other and with the stored results."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linearizability.targets.artifacts import tlc_jar
from linearizability.targets.java import java
from spec.actions import ACTIONS
from spec.catalogue import MODELS, all_cases
from spec.checker import Outcome, Verdict
from spec.commands import app
from spec.models import COUNTEREXAMPLES, SPEC, Case, checked, only_property, without_comments
from spec.results import Result, exit_code, load, result_of
from spec.tables import has_file, pages
from tests.spec.counterexamples import NAMES, digest_of, found_by_tlc, records

CHAPTERS = ("Controller", "Replica", "Client")


def test_actions_are_those_of_the_chapters() -> None:
    in_modules = [
        (name, chapter)
        for chapter in CHAPTERS
        for name in re.findall(r'Step\("(\w+)"', (SPEC / "replication" / f"{chapter}.tla").read_text())
    ]
    assert sorted(in_modules) == sorted((action.name, action.chapter) for action in ACTIONS)


def test_actions_carry_the_arguments_that_the_chapters_record() -> None:
    for action in ACTIONS:
        text = (SPEC / "replication" / f"{action.chapter}.tla").read_text()
        recorded = re.search(rf'Step\("{action.name}", \[(.*?)\]\)', text, re.S)
        assert recorded, action.name
        assert set(re.findall(r"(\w+) +\|->", recorded[1])) >= set(action.arguments), action.name


def test_every_action_is_in_the_next_step_and_in_the_trace_checker() -> None:
    for module in ("Replication", "TraceReplication"):
        text = (SPEC / "replication" / f"{module}.tla").read_text()
        assert [action.name for action in ACTIONS if not re.search(rf"\b{action.name}\b", text)] == []


FOLDERS = sorted({model.folder for model in MODELS})


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_known_bug_is_a_switch_and_the_other_way_round(folder: str) -> None:
    texts = [path.read_text() for path in (SPEC / folder).glob("*.tla")]
    reported = [
        found
        for text in texts
        for found in re.findall(r"^KnownBugs == \{(.*?)\}$", without_comments(text), re.M | re.S)
    ]
    known = {bug for listed in reported for bug in re.findall(r'"(\w+)"', listed)}
    assert known == {
        switch.name for model in MODELS if model.folder == folder for switch in model.switches if not switch.edit
    }


KNOWN = {
    "followers cut their logs to the high watermark (KIP-101)": "TruncateToHighWatermark",
    "an epoch's end is answered without its epoch (KIP-279)": "TruncateByRequestedEpoch",
    "the truncation point is asked of a leader of another epoch (KIP-320)": "TruncateWithoutFencing",
    "fetches do not name the leader epoch (KIP-320)": "FetchWithoutFencing",
    "the high watermark passes without the proposed ISR": "IgnoreProposedIsr",
    "a pending ISR is rolled back that may be committed": "RollBackCommittedIsr",
    "a fenced broker is admitted to the ISR": "AdmitFencedBroker",
    "a stale broker epoch is admitted to the ISR": "AdmitStaleBrokerEpoch",
    "the last replica standing leads without its tail, where there is no ELR": "LastReplicaStanding",
    "a broker serves before it has replayed the metadata": "ServeBeforeReplay",
    "acks=all is answered before the high watermark": "AcknowledgeBeforeHighWatermark",
    "an unclean election while it is off": "ElectOutsideIsr",
    "min.insync.replicas is ignored": "IgnoreMinIsr",
    "a transaction hangs (before KIP-890)": "BeforeKip890",
    "a partition is assigned twice in a group": "AssignBeforeRevocation",
    "two controllers decide at once (before KRaft)": "WriteWithoutControllerEpoch",
}
"""Well-known bugs, and the switch of each."""


def test_the_well_known_switches_exist() -> None:
    switches = {switch.name for model in MODELS for switch in model.switches}
    assert len(switches) >= 20
    assert {*KNOWN.values()} - switches == set()


def test_modules_are_short() -> None:
    assert {path.name: n for path in SPEC.rglob("*.tla") if (n := len(path.read_text().splitlines())) >= 300} == {}


@pytest.mark.parametrize("name", list(all_cases()))
def test_a_case_differs_from_its_clean_model_in_the_switch_only(name: str) -> None:
    case = all_cases()[name]
    text = case.configuration()
    if not case.switch:
        assert "Bugs = {}" in text
        return
    assert set(checked(text)) == {case.switch.violates}
    constants = re.compile(r"^  (\w+) (?:=|<-) (.+)$", re.M)
    clean, switched = dict(constants.findall(case.model.text)), dict(constants.findall(text))
    assert {key for key in clean if clean[key] != switched[key]} == (set() if case.switch.edit else {"Bugs"})
    assert bool(case.job().modules) == bool(case.switch.edit)


def test_a_promise_that_the_clean_model_does_not_keep_cannot_be_expected_to_break() -> None:
    with pytest.raises(ValueError, match="not checked by the clean configuration"):
        only_property(MODELS[0].text, "NoSuchPromise")


def test_every_case_was_run_as_it_stands_and_came_out_as_expected() -> None:
    """The stored results have the digest of the present text; `tidegauge spec check --all --resume --record` renews them."""
    stored = load()
    stale = [name for name, case in all_cases().items() if name not in stored or stored[name].digest != case.digest()]
    assert stale == []
    assert [name for name in all_cases() if not stored[name].as_expected] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_action_is_taken_in_some_clean_model(folder: str) -> None:
    cases = all_cases()
    taken = {
        name
        for result in load().values()
        if result.name in cases and cases[result.name].model.folder == folder and not result.switch
        for name, count in result.coverage.items()
        if count > 0
    }
    named = {step for path in (SPEC / folder).glob("*.tla") for step in re.findall(r'Step\("(\w+)"', path.read_text())}
    assert named
    assert named - taken == set()


def test_the_steps_of_messages_are_among_them() -> None:
    """They are no steps of the atomic grain, so the list of actions lacks them."""
    text = (SPEC / "replication" / "Messages.tla").read_text()
    named = re.findall(r'MessageStep\("(\w+)"', text)
    assert {"SendFetch", "TakeFetch", "TakeDivergence", "TakeRecords", "TakeHighWatermark"} <= {*named}
    assert {"TakeProposal", "RefuseProposal"} <= {*named}


def test_a_comment_does_not_make_a_result_stale_and_a_rule_does() -> None:
    text = "A ==\n    /\\ x\n    /\\ y"
    commented = "\\* why\n(* a box *)\nA ==   \\* here, too\n\n    /\\ x\n    /\\ y"
    assert without_comments(commented) == text
    assert without_comments(text.replace("    /\\ y", "        /\\ y")) != text


def test_each_clean_model_is_done_within_five_minutes() -> None:
    assert [name for name, result in load().items() if not result.switch and result.seconds > 300] == []


def test_what_a_switch_breaks_first_was_found_too() -> None:
    cases = all_cases()
    found = {name: result for name, result in load().items() if result.switch and not cases[name].is_live}
    assert found
    assert [name for name, result in found.items() if not result.first_violated] == []
    assert [name for name, result in found.items() if not 0 < result.first_depth <= result.depth] == []


def test_every_step_of_a_counterexample_has_a_name() -> None:
    """The states of a model with switches name their step."""
    found = {name: result for name, result in load().items() if result.switch}
    assert [name for name, result in found.items() if len(result.steps) != result.depth - 1] == []
    assert [name for name, result in found.items() if "Init" in result.steps] == []


def test_a_result_is_stale_when_it_was_run_otherwise() -> None:
    drawn, large = all_cases()["SIMReplication"], all_cases()["MCLarge"]
    assert drawn.digest() != replace(drawn, model=replace(drawn.model, behaviours=1)).digest()
    assert drawn.digest() != replace(drawn, model=replace(drawn.model, length=1)).digest()
    assert large.digest() != replace(large, model=replace(large.model, workers=1)).digest()
    assert large.digest() == replace(large, model=replace(large.model, budget_s=1)).digest()


def test_several_workers_record_no_switch() -> None:
    arguments = ["spec", "check", "TruncateToHighWatermark", "--workers", "2", "--record"]
    refused = CliRunner().invoke(app, arguments)
    assert refused.exit_code != 0
    assert "shortest" in refused.output
    assert all(case.job().workers == 1 for case in all_cases().values() if case.switch)


def test_the_largest_clean_model_has_a_million_states() -> None:
    clean = [result for result in load().values() if not result.switch and result.actual == Verdict.HOLDS]
    assert max(result.distinct for result in clean) >= 1_000_000


def test_generated_pages_are_current() -> None:
    assert [path.name for path, text in pages().items() if path.read_text() != text] == []


def test_the_configurations_that_expect_a_counterexample_are_those_of_the_switches() -> None:
    kept = {path for model in MODELS for path in (SPEC / model.folder / COUNTEREXAMPLES).glob("*")}
    assert kept == {case.path for case in all_cases().values() if has_file(case)}


def test_such_a_configuration_can_be_given_to_tlc_by_hand(tmp_path: Path) -> None:
    case = all_cases()["TruncateToHighWatermark"]
    config = case.path.relative_to(SPEC / "replication")
    command = [str(java()), "-cp", str(tlc_jar()), "tlc2.TLC", "-metadir", str(tmp_path), "-config", str(config)]
    ended = subprocess.run(
        [*command, case.model.module],
        cwd=SPEC / "replication",
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert f"Error: Invariant {case.expected_property} is violated." in ended.stdout
    assert ended.returncode == 12, "TLC's code of a broken invariant"


@pytest.mark.parametrize(
    ("switched", "verdict", "code"),
    [
        (False, Verdict.HOLDS, 0),
        (False, Verdict.VIOLATED, 1),
        (False, Verdict.OUT_OF_TIME, 2),
        (False, Verdict.OUT_OF_MEMORY, 2),
        (False, Verdict.WRONG_MODEL, 3),
        (False, Verdict.NO_CHECKER, 3),
        (True, Verdict.VIOLATED, 0),
        (True, Verdict.HOLDS, 1),
        (True, Verdict.OUT_OF_TIME, 1),
        (True, Verdict.BROKEN, 3),
    ],
)
def test_a_switch_that_is_not_caught_fails_and_nothing_unknown_passes(
    switched: bool, verdict: Verdict, code: int
) -> None:
    model = MODELS[0]
    case = Case(model, model.switches[0] if switched else None)
    assert exit_code([result_of(case, Outcome(verdict))]) == code


def test_a_checker_that_is_missing_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = Outcome(Verdict.NO_CHECKER, reason="tlc could not be fetched")
    monkeypatch.setattr("spec.running.run_case", lambda case, *_, **__: result_of(case, missing))
    said = CliRunner().invoke(app, ["spec", "check", "--all"])
    assert (said.exit_code, said.output.count("tlc could not be fetched")) == (3, 1)


def test_an_interrupted_check_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_one(case: Case, *_: object, **__: object) -> Result:
        if case.name != "MCFailover":
            raise KeyboardInterrupt
        return result_of(case, Outcome(Verdict.HOLDS))

    monkeypatch.setattr("spec.running.run_case", run_one)
    said = CliRunner().invoke(app, ["spec", "check", "MCFailover", "MCIsr", "--json"])
    assert said.exit_code == 2 and '"verdict": "unknown"' in said.stdout
    assert "interrupted: 1 of 2 are checked" in said.stderr


def test_another_promise_than_the_expected_one_is_not_as_expected() -> None:
    case = Case(MODELS[0], MODELS[0].switches[0])
    assert exit_code([result_of(case, Outcome(Verdict.VIOLATED, violated="TypeOK"))]) == 1


def test_nothing_run_is_unknown() -> None:
    assert exit_code([]) == 2


def test_every_record_is_of_todays_text() -> None:
    """If this fails: `python -m tests.spec.counterexamples`."""
    assert {name: row["digest"] for name, row in records().items()} == {name: digest_of(name) for name in NAMES}


@pytest.mark.java
@pytest.mark.sampled(days=7)
@pytest.mark.parametrize("name", NAMES)
def test_tlc_finds_what_is_recorded(name: str) -> None:
    assert found_by_tlc(name) == records()[name]["schedule"]
