"""The matrix of Apache Kafka's releases: what is stored is true to its tests, small, and measured again where these change."""

import re

import pytest
from typer.testing import CliRunner

from conformance import releases
from conformance.commands import app
from conformance.levels import MUST
from conformance.releases import OWN_BUG, STORE, Cell, Keeper, Matrix, fingerprint, measure
from conformance.requirement import Needs, catalogue
from conformance.results import INTERRUPTED, Judgement, Run, TargetRecord, Verdict

ENTRIES = [catalogue()[id] for id in ("PRD-05", "PRD-06", "TOP-20")]


def test_no_must_fails_on_a_release_but_by_a_bug_that_is_written_down():
    cells = Matrix.read().cells
    assert cells, "no verdict is stored"
    for (version, id), cell in cells.items():
        entry = catalogue().get(id)
        if entry and entry.requirement.level == MUST:
            assert cell.verdict not in (Verdict.FAIL, Verdict.ENGINE_ERROR), f"{id} on {version}: {cell.reason}"
        if cell.verdict == OWN_BUG:
            assert re.match(rf"{OWN_BUG} (KAFKA-\d+|.*README\.md)", cell.reason), cell


def test_the_store_is_small():
    assert STORE.stat().st_size < 400_000


def test_what_is_written_is_read_again(tmp_path):
    matrix = Matrix(
        {
            ("1.1.0", "PRD-05"): Cell("12345678", "pass"),
            ("2.4.1", "PRD-05"): Cell("12345678", "pass"),
            ("2.4.1", "PRD-06"): Cell("12345678", "not judged", "owed since 4.0"),
            ("0.11.0.0", "PRD-05"): Cell("87654321", OWN_BUG, f"{OWN_BUG} KAFKA-1: why"),
        }
    )
    matrix.write(tmp_path / "releases.json")
    assert Matrix.read(tmp_path / "releases.json") == matrix
    assert matrix.versions() == ["0.11.0.0", "1.1.0", "2.4.1"]
    assert len((tmp_path / "releases.json").read_text().splitlines()) == 4
    assert Matrix.read(tmp_path / "none.json") == Matrix()


def test_a_release_with_a_zookeeper_is_another_row():
    assert releases.spec_of("3.9.2-zk", 3) == "kafka-zk:3.9.2:3" and releases.spec_of("3.9.2") == "kafka:3.9.2"
    unsorted = ["4.0.2", "3.9.2-zk", "3.9.2", "0.11.0.0"]
    assert sorted(unsorted, key=releases.order) == ["0.11.0.0", "3.9.2", "3.9.2-zk", "4.0.2"]
    of_kraft = next(entry for entry in catalogue().values() if entry.test and entry.requirement.kraft)
    assert Matrix().lacking("3.9.2", [of_kraft]) == [of_kraft] and Matrix().lacking("3.9.2-zk", [of_kraft]) == []


def test_a_signal_ends_the_releases_that_would_follow(monkeypatch):
    asked = []

    def run(plan):
        asked.append(plan.spec)
        unreached = [
            Judgement(requirement=entry.requirement, verdict=Verdict.NOT_JUDGED, reason=INTERRUPTED, unreached=True)
            for entry in plan.entries
        ]
        return Run(
            suite_version="1", target=TargetRecord(spec=plan.spec), selection="", started_at="", judgements=unreached
        )

    monkeypatch.setattr("conformance.runner.run", run)
    monkeypatch.setattr(releases.Matrix, "lacking", lambda *_, **__: ENTRIES)
    done = CliRunner().invoke(app, ["releases", "measure", "4.3.1", "4.4.0", "--only", "PRD-05"])
    assert asked == ["kafka:4.3.1"] and done.exit_code == 130


@pytest.fixture
def runs(monkeypatch):
    """A run that judges without a target; what it was asked to judge."""
    asked: list[list[str]] = []

    def run(plan):
        asked.append([entry.requirement.id for entry in plan.entries])
        for entry in plan.entries:
            verdict = Verdict.FAIL if entry.requirement.id == "PRD-06" else Verdict.PASS
            reason = "topic tg-prd-06-0a1b2c3d4e is  there" if verdict is Verdict.FAIL else ""
            plan.listener.judged(Judgement(requirement=entry.requirement, verdict=verdict, reason=reason))
        return Run(suite_version="1", target=TargetRecord(spec=plan.spec), selection="", started_at="")

    monkeypatch.setattr("conformance.runner.run", run)
    return asked


def test_only_what_is_lacking_or_has_changed_is_measured(runs, tmp_path):
    path = tmp_path / "releases.json"
    assert measure(Keeper("2.4.1", path), ENTRIES[:2], tmp_path) == 2
    assert measure(Keeper("2.4.1", path), ENTRIES, tmp_path) == 1
    assert measure(Keeper("2.4.1", path), ENTRIES, tmp_path) == 0
    assert measure(Keeper("2.8.2", path), ENTRIES[:1], tmp_path) == 1
    assert measure(Keeper("2.4.1", path), ENTRIES[:1], tmp_path, again=True) == 1
    assert runs == [["PRD-05", "PRD-06"], ["TOP-20"], ["PRD-05"], ["PRD-05"]]
    matrix = Matrix.read(path)
    assert matrix.current("2.4.1", ENTRIES[1]) == Cell(fingerprint(ENTRIES[1]), "fail", "topic … is there")
    needs = ENTRIES[0].requirement.needs.model_copy(update={"nodes": 2})
    changed = ENTRIES[0].model_copy(update={"requirement": ENTRIES[0].requirement.model_copy(update={"needs": needs})})
    assert matrix.current("2.4.1", changed) is None
    assert matrix.lacking("2.4.1", [changed, *ENTRIES[1:]]) == [changed]
    later = ENTRIES[0].model_copy(update={"requirement": ENTRIES[0].requirement.model_copy(update={"since": "2.5"})})
    assert matrix.lacking("2.4.1", [later]) == matrix.lacking("2.8.2", [later]) == []
    assert matrix.lacking("3.0.2", [later]) == [later]


def test_a_test_that_is_edited_meanwhile_is_stored_as_it_was_loaded(monkeypatch):
    def loaded(broker): ...

    record = ENTRIES[0].requirement.model_copy(update={"since": "3.3"})
    later = ENTRIES[0].model_copy(update={"requirement": record, "test": loaded})
    assert Matrix().lacking("2.4.1", [later]) == []
    monkeypatch.setattr(releases.inspect, "getsource", lambda _: "def edited(broker): ...")
    stored = fingerprint(later)
    monkeypatch.undo()
    releases._source.cache_clear()
    assert stored == fingerprint(later)


def test_what_was_not_reached_blocked_or_an_engine_error_is_measured_again(tmp_path):
    keeper, path = releases.Keeper("2.4.1", tmp_path / "releases.json", lambda _: None), tmp_path / "releases.json"
    verdicts = (Verdict.NOT_JUDGED, True), (Verdict.BLOCKED, False), (Verdict.ENGINE_ERROR, False)
    for entry, (verdict, unreached) in zip(ENTRIES, verdicts, strict=True):
        keeper.judged(Judgement(requirement=entry.requirement, verdict=verdict, unreached=unreached))
    assert Matrix.read(path).lacking("2.4.1", ENTRIES) == ENTRIES
    assert Matrix.read(path).current("2.4.1", ENTRIES[0]) is None
    keeper.judged(Judgement(requirement=ENTRIES[0].requirement, verdict=Verdict.NOT_JUDGED))
    assert Matrix.read(path).lacking("2.4.1", ENTRIES) == ENTRIES[1:]


def test_with_several_nodes_what_needs_them_is_measured_and_nothing_else(tmp_path):
    path = tmp_path / "releases.json"
    alone, *others = ENTRIES
    of_three = [
        entry.model_copy(
            update={"requirement": entry.requirement.model_copy(update={"needs": Needs(nodes=nodes), "id": id})}
        )
        for entry, nodes, id in zip(others, (2, 3), ("ACK-04", "ACK-05"), strict=True)
    ]
    judgement = Judgement(
        requirement=of_three[0].requirement, verdict=Verdict.NOT_JUDGED, reason="needs 2 nodes; it has 1"
    )
    matrix = Matrix.read(path)
    matrix.keep("2.4.1", of_three[0], judgement)
    assert matrix.lacking("2.4.1", [alone, *of_three], nodes=3) == of_three
    assert matrix.lacking("2.4.1", [alone, *of_three], nodes=2) == of_three[:1]
    assert matrix.lacking("2.4.1", [alone, *of_three]) == [alone, of_three[1]]


def test_the_command_shows_failures_and_exits_by_them(runs, tmp_path, monkeypatch):
    path = tmp_path / "releases.json"
    measure(Keeper("2.4.1", path), ENTRIES, tmp_path)
    stored = Matrix.read(path)
    monkeypatch.setattr(releases.Matrix, "read", classmethod(lambda cls, path=None: stored))
    shown = CliRunner().invoke(app, ["releases", "show", "2.4.1"])
    assert shown.exit_code == 1
    assert f"PRD-06 ({ENTRIES[1].requirement.level}) fail: topic … is there" in shown.output
    assert "2 pass" in shown.output
    stored.cells.pop(("2.4.1", "PRD-06"))
    assert CliRunner().invoke(app, ["releases", "show", "2.4.1", "--json"]).exit_code == 0
    assert CliRunner().invoke(app, ["releases", "measure", "2.4.1", "--only", "NOPE"]).exit_code == 2
