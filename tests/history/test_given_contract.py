"""A given contract supplies the terms that a history does not declare itself, and changes no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.core import TyperGroup, TyperOption
from typer.main import get_command

from linearizability.history.commands import app
from linearizability.history.contract import SETTINGS, Contract
from linearizability.history.notation import parse
from linearizability.history.operations import poll, send
from linearizability.history.recorder import Recorder
from linearizability.pipeline import engine
from linearizability.pipeline.engine import check
from linearizability.rules import RULES
from linearizability.rules.rule import Rule
from tests.history.judged_histories import neutral, record
from tests.history.test_commands import run
from tests.history.test_importers import acked, consumed, events_of_tool
from tests.pipeline.test_engines import MASTER, reported

pytestmark = pytest.mark.xdist_group("spark")
LOST = """{:type :invoke, :f :send, :value [[:send 3 10]], :process 0, :time 1, :index 0}
{:type :ok, :f :send, :value [[:send 3 [0 10]]], :process 0, :time 2, :index 1}
{:type :invoke, :f :send, :value [[:send 3 11]], :process 0, :time 3, :index 2}
{:type :ok, :f :send, :value [[:send 3 [1 11]]], :process 0, :time 4, :index 3}
{:type :invoke, :f :poll, :value [[:poll]], :process 1, :time 6, :index 4}
{:type :ok, :f :poll, :value [[:poll {3 [[1 11]]}]], :process 1, :time 7, :index 5}
"""
ACKS_1 = Contract.from_terms(["acks=1"])


def edn(folder: Path) -> Path:
    path = folder / "history.edn"
    path.write_text(LOST)
    return path


def tools(folder: Path) -> Path:
    ended = {"at": 90, "name": "shutdown_complete"}
    return events_of_tool(
        folder / "tools",
        producer=[acked(10, 0), acked(11, 1), acked(12, 2), ended],
        consumer=[consumed(50, 0), consumed(51, 2), ended],
    )


@pytest.mark.parametrize(("write", "form"), [(edn, "auto"), (tools, "verifiable")])
def test_what_acks_1_loses_is_permitted(tmp_path: Path, write: Callable[[Path], Path], form: str) -> None:
    (invalid,), (permitted,) = (check([write(tmp_path / name)], form, given=given) for name, given in cases(tmp_path))
    assert invalid.verdict == "invalid" and invalid.anomalies["lost-write"] == 1 and not invalid.permitted
    assert permitted.verdict == "valid" and permitted.permitted["lost-write"], permitted.to_json()
    assert (invalid.given, permitted.given) == ({}, {"acks": "1"})


def cases(folder: Path) -> list[tuple[str, Contract]]:
    given = [("nothing", Contract()), ("acks", ACKS_1)]
    for name, _ in given:
        (folder / name).mkdir()
    return given


def test_the_command_prints_what_was_given(tmp_path: Path) -> None:
    path = edn(tmp_path)
    assert run("check", path).return_value == 1
    result = run("check", path, "--contract", "acks=1", "--contract", "min.insync.replicas=1", "--json")
    assert result.return_value == 0
    assert json.loads(result.stdout.splitlines()[0])["contract_given"] == {"acks": "1", "min_isr": 1}
    assert "contract given: acks=1" in run("check", path, "--contract", "acks=1").stdout
    run("check", path, "--contract", "acks=1", "--output", tmp_path / "out")
    (summary,) = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["contract_given"] == {"acks": "1"}


def test_an_exported_run_is_judged_by_its_contract_again(tmp_path: Path) -> None:
    """EDN has no contract; an imported history declares the given one from then on."""
    with Recorder.open(tmp_path / "run", run="r", contract=Contract(acks="1", idempotence=False)) as recorder:
        for value in (10, 11):
            recorder.ok(recorder.invoke("send", [send("3", value)]), [send("3", value, offset=value - 10)])
        recorder.ok(recorder.invoke("poll", [poll()]), [poll({"3": [(1, 11)]})])
    (original,) = check([tmp_path / "run"])
    assert run("export", tmp_path / "run", tmp_path / "h.edn", "--to", "edn").return_value == 0
    terms = ("--contract", "acks=1", "--contract", "idempotence=false")
    assert run("import", tmp_path / "h.edn", tmp_path / "h.jsonl", *terms).return_value == 0
    (unsaid,), (imported,) = check([tmp_path / "h.edn"]), check([tmp_path / "h.jsonl"])
    assert (original.verdict, unsaid.verdict, imported.verdict) == ("valid", "invalid", "valid")
    assert imported.permitted == original.permitted and "lost-write" in original.permitted
    assert run("check", tmp_path / "h.jsonl", "--contract", "acks=all").return_value == 2


@pytest.mark.parametrize("rule", [rule for rule in RULES.values() if rule.optional], ids=lambda rule: rule.id)
def test_strict_recency(tmp_path: Path, rule: Rule) -> None:
    path = neutral(tmp_path / "n.jsonl.gz", {"id": "x", "history": parse(rule.example)})
    (lenient,) = check([path])
    (strict,) = check([path], given=Contract.from_terms(["strict_recency=true"]))
    assert rule.id not in lenient.anomalies and rule.id in strict.anomalies


def native(folder: Path, *contracts: dict[str, object] | None) -> Path:
    """The good run, whose headers declare these contracts."""
    for file, contract in zip(record(folder), contracts, strict=True):
        header, *lines = file.read_text().splitlines(keepends=True)
        declared = {name: value for name, value in json.loads(header).items() if name != "contract"}
        declared |= {} if contract is None else {"contract": contract}
        file.write_text("".join([json.dumps(declared) + "\n", *lines]))
    return folder


def test_what_a_native_header_declares_stands(tmp_path: Path) -> None:
    """One file that declares another contract makes the whole run unknown: the other files alone are no whole run."""
    agreeing = native(tmp_path / "agreeing", {"acks": "1"}, None)
    (judgement,) = check([agreeing], given=ACKS_1)
    assert judgement.verdict == "valid" and judgement.history is not None and judgement.history.contract.acks == "1"
    differing = native(tmp_path / "differing", None, {"acks": "all"})
    for paths in ([differing], sorted(differing.glob("*.jsonl"))):
        (judgement,) = check(paths, given=ACKS_1)
        assert (judgement.verdict, judgement.facts) == ("unknown", 0)
        assert judgement.reasons == [
            f"{differing / 'history-00002.jsonl'}:1: the history declares acks=all, not 1 as --contract says"
        ]


def test_a_neutral_history_that_declares_another_is_refused_alone(tmp_path: Path) -> None:
    events = parse("0 send t-0:1@0\n0 poll t-0:1@0")
    declared = [{"options": {"contract": {"acks": "all"}}}, {"options": {"contract": {"isolation": "read_committed"}}}]
    path = neutral(
        tmp_path / "n.jsonl.gz", *({"id": str(n), "history": events} | each for n, each in enumerate(declared))
    )
    refused, judged = check([path], given=ACKS_1)
    assert refused.verdict == "unknown" and f"{path}:1: the history declares acks=all" in refused.reasons[0]
    assert (judged.id, judged.verdict) == ("1", "valid")
    assert run("import", path, tmp_path / "out.jsonl", "--contract", "acks=1").return_value == 2


def test_a_store_declares_all(tmp_path: Path) -> None:
    run("export", "--to", "parquet", record(tmp_path / "run")[0].parent, tmp_path / "store")
    (agreed,), (refused,) = (
        check([tmp_path / "store"], given=Contract.from_terms([f"acks={acks}"])) for acks in ("all", "1")
    )
    assert (agreed.verdict, refused.verdict) == ("valid", "unknown") and "declares acks=all" in refused.reasons[0]


@pytest.mark.spark
def test_both_engines_take_it_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By way of a store, too."""
    paths = [edn(tmp_path), native(tmp_path / "undeclared", None, {}), native(tmp_path / "other", {}, {"acks": "0"})]
    local = [reported(judgement) for judgement in check(paths, engine="local", given=ACKS_1)]
    assert [verdict for _, verdict, *_ in local] == ["valid", "valid", "unknown"]
    for limit in (0, engine.FOREIGN_SPARK_FROM_BYTES):
        monkeypatch.setattr(engine, "FOREIGN_SPARK_FROM_BYTES", limit)
        judged = list(check(paths, engine="spark", master=MASTER, given=ACKS_1))
        assert sorted(map(reported, judged), key=str) == sorted(local, key=str)
        assert all(judgement.given == {"acks": "1"} for judgement in judged)


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        (["ack=1"], "'ack' is none of acks, idempotence"),
        (["acks=2"], "acks: Input should be '0', '1' or 'all'"),
        (["acks"], "acks: Input should be '0', '1' or 'all'"),
        (["idempotence=perhaps"], "idempotence: Input should be a valid boolean"),
        (["min_isr=0"], "min_isr: Input should be greater than or equal to 1"),
        (["replicas_losing_unflushed_data=-1"], "greater than or equal to 0"),
        (["min_isr=1", "min.insync.replicas=2"], "min_isr is given twice, as 1 and as 2"),
    ],
)
def test_terms_that_are_none(tmp_path: Path, terms: list[str], reason: str) -> None:
    options = [option for term in terms for option in ("--contract", term)]
    for arguments in (["check", edn(tmp_path)], ["import", edn(tmp_path), tmp_path / "out"]):
        result = run(*arguments, *options)
        assert type(result.exception).__name__ == "BadParameter" and reason in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_the_terms_are_named() -> None:
    """In the help, all of them; and Kafka's own names are those of terms."""
    assert set(SETTINGS.values()) <= set(Contract.model_fields)
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    for command in ("check", "import"):
        (option,) = [each for each in group.commands[command].params if each.name == "contract"]
        assert isinstance(option, TyperOption) and option.help
        named, _, _ = option.help.partition(";")
        assert named.partition(": ")[2].split(", ") == list(Contract.model_fields)
