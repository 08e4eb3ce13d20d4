"""Both engines report the same findings, witnesses and verdicts. One Spark session serves the whole test run."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from linearizability.history.facts import COLUMNS, SCHEMA
from linearizability.history.files import PACKED, HistoryError, size_of
from linearizability.history.native import history_files, read_run
from linearizability.history.notation import history
from linearizability.history.operations import poll, send
from linearizability.history.paired import derive_events
from linearizability.history.reader import read_histories, sources_of
from linearizability.history.recorder import FILE_PATTERN, Recorder
from linearizability.history.store import read_store, run_folder, summed_up, write_histories, write_runs, write_stream
from linearizability.history.streams import FileSummary, History, unify
from linearizability.pipeline import engine
from linearizability.pipeline.blocks import Key, apart, row_groups
from linearizability.pipeline.engine import check, judge_history
from linearizability.pipeline.output import write_output
from linearizability.pipeline.series import series_of
from linearizability.pipeline.verdict import Judgement
from linearizability.rules import RULES
from tests.history.judged_histories import Clock, record
from tests.history.test_importers import JEPSEN, acked, consumed, events_of_tool
from tests.pipeline.test_parts import random_facts
from tests.rules.random_histories import random_history
from tests.rules.retained_histories import play
from tests.rules.test_excuses import excuse
from tests.rules.test_labelled import LABELLED
from tests.rules.test_progress import HEALED

pytestmark = pytest.mark.xdist_group("spark")
MASTER = "local[2]"


def reported(judgement: Judgement) -> tuple:
    """A judgement without its engine."""
    return judgement.id, judgement.verdict, judgement.reasons, judgement.facts, judgement.findings


def histories() -> list[History | HistoryError]:
    """Each rule's example, labelled histories, and random ones that read several partitions and leave transactions open; some
    under retention, some with excuses."""
    examples = [history(rule.example, {"strict_recency": rule.optional}, rule.id) for rule in RULES.values()]
    labelled = list(read_histories([LABELLED]))[::40]
    randoms = [derive_events(f"random-{seed}", random_history(Random(seed), lies=0.3)) for seed in range(6)]
    waited = history(f"{HEALED}0 [2000000000 -] send t-0:2\n1 [500000000000 500000000005] poll", identifier="waited")
    retained = [history(play(seed, loses=True).text, {"cleanup": "delete"}, f"retained-{seed}") for seed in range(4)]
    excused = [
        history(excuse() + RULES[name].example, None, f"excused {name}")
        for name in ("lost-write", "exactly-once", "G1a")
    ]
    return [*examples, *labelled, *randoms, waited, *retained, *excused]


@pytest.mark.spark
def test_every_history_is_judged_alike() -> None:
    from linearizability.pipeline.spark import check_histories

    judged = list(check_histories(histories(), MASTER))
    expected = [judge_history(item) for item in histories()]
    assert {rule for judgement in expected for rule in judgement.anomalies} == {r.id for r in RULES.values()}
    for ours, theirs in zip(judged, expected, strict=True):
        assert reported(ours) == reported(theirs)
        assert (ours.engine, theirs.engine) == ("spark", "local")


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_files_and_stores_are_judged_alike(tmp_path: Path) -> None:
    files = record(tmp_path / "run")
    lines = files[1].read_text().replace("[[4,4],[5,5]]", "[[5,5],[4,4]]")
    files[1].write_text(lines)
    (local,) = check([tmp_path / "run"], engine="local")
    assert local.verdict == "invalid"
    (spark,) = check([tmp_path / "run"], engine="spark", master=MASTER)
    assert reported(spark) == reported(local)

    write_histories(tmp_path / "store", [read_run(files)])
    for name in ("local", "spark"):
        (stored,) = check([tmp_path / "store"], engine=name, master=MASTER)
        assert reported(stored) == reported(local)


def hurt_run(folder: Path) -> None:
    """A run with sends of every outcome, many of them slow, a fault in the middle, and a wrong poll."""
    record(folder / "run")
    clock, chance = Clock(), Random(5)
    with Recorder(folder / "run" / "history-00007.jsonl", process=7, run="r", clock=clock) as recorder:
        for value in range(400):
            if value in (100, 160):
                recorder.mark("fault" if value == 100 else "heal", name="pause", node=2)
            operation = recorder.invoke("send", [send("u-0", value)])
            clock.now += chance.randrange(1_000_000, 50_000_000)
            if chance.random() < 0.8:
                recorder.ok(operation, [send("u-0", value, offset=value)])
            elif chance.random() < 0.5:
                recorder.fail(operation)
        recorder.ok(recorder.invoke("poll", [poll()]), [poll({"u-0": [(0, 999)]})])


def assert_same_series(one: Path, other: Path) -> None:
    ours, theirs = (pq.read_table(folder / "series-0000.parquet") for folder in (one, other))
    assert ours.schema == theirs.schema
    for name in ours.column_names:
        np.testing.assert_array_equal(ours[name].to_numpy(), theirs[name].to_numpy(), err_msg=name)


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_both_draw_the_same(tmp_path: Path) -> None:
    """Series, pictures and the operations in the report, from a folder and from a store; a store outlives its sources."""
    hurt_run(tmp_path)
    (local,) = check([tmp_path / "run"], engine="local", over_time=True)
    (spark,) = check([tmp_path / "run"], engine="spark", master=MASTER, over_time=True)
    assert local.verdict == "invalid"
    for name, judgement in (("local", local), ("spark", spark)):
        write_output(tmp_path / name, [judgement])
        assert {path.name for path in (tmp_path / name).iterdir()} == {
            "summary.json",
            "anomalies.parquet",
            "series-0000.parquet",
            "series-0000.svg",
            "report.html",
        }
        html = (tmp_path / name / "report.html").read_text()
        assert "poll u-0:999@0" in html and html.count("<svg") >= 2
        legend = re.findall("<!-- (.*) -->", (tmp_path / name / "series-0000.svg").read_text())
        assert "a fault" in legend and "unknown" in legend
    assert_same_series(tmp_path / "spark", tmp_path / "local")
    drawn, plain = series_of(spark), series_of(local)
    assert drawn is not None and plain is not None
    assert drawn.faults == plain.faults and len(drawn.faults) == 1

    write_histories(tmp_path / "store", [read_run(history_files(tmp_path / "run"))])
    for path in (tmp_path / "run").iterdir():
        path.unlink()
    (stored,) = check([tmp_path / "store"], engine="spark", master=MASTER, over_time=True)
    write_output(tmp_path / "stored", [stored])
    assert_same_series(tmp_path / "stored", tmp_path / "local")
    assert "poll u-0:999@0" not in (tmp_path / "stored" / "report.html").read_text()


def table_of(topic: str, columns: dict[str, np.ndarray]) -> pa.Table:
    """Facts of partition 0 of a topic, in a run of one name."""
    rows = len(columns["kind"])
    names = [
        pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([name])) for name in ("run", topic)
    ]
    numbers = pa.array(np.zeros(rows, np.int32))
    return pa.Table.from_arrays([*names, numbers, *(pa.array(columns[name]) for name in COLUMNS)], schema=SCHEMA)


@pytest.mark.spark
def test_partitions_with_row_groups_of_their_own_are_judged_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Partition a is read where it is judged; b, whose facts lie apart in one batch only, and c are shuffled."""
    monkeypatch.setattr("linearizability.history.store.ROWS_TOGETHER", 100)
    monkeypatch.setattr("linearizability.history.store.ROWS_APART", 20)
    a, b, c = (
        table_of(topic, random_facts(Random(seed), operations=number))
        for topic, seed, number in (("a", 11, 120), ("b", 12, 40), ("c", 13, 12))
    )
    order = [a[:60], b[:35], c[:5], a[60:100], b[35:45], c[5:15], a[100:140], b[45:], c[15:], a[140:]]
    batches = unify([batch for facts in order for batch in facts.to_batches()])

    class Batches:
        summary = FileSummary("facts")

        def __iter__(self) -> Iterator[pa.RecordBatch]:
            return iter(batches.to_batches(max_chunksize=20))

    written = write_stream(Batches(), run_folder(tmp_path, 0) / "part-0000.parquet", "0")
    write_runs(tmp_path, [summed_up([written], "run")])
    groups = row_groups([run_folder(tmp_path, 0) / written.part])
    key = Key("0", "b", 0)
    assert [each.topic for each in apart(groups)] == ["a"]
    assert {group.key for group in groups if group.may_hold(key)} == {key, None}
    (local,) = check([tmp_path], engine="local")
    (spark,) = check([tmp_path], engine="spark", master=MASTER)
    assert reported(spark) == reported(local)
    assert {anomaly.topic for found in local.findings for anomaly in found.anomalies} >= {"a", "b", "c"}
    (stored,) = read_store(tmp_path)
    everything = stored.facts
    assert [
        everything.filter(pc.call_function("equal", [everything["topic"], name])).drop(["run"]) for name in "abc"
    ] == [batches.filter(pc.call_function("equal", [batches["topic"], name])).drop(["run"]) for name in "abc"]


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_a_hot_partition_is_judged_alike(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Cut into parts of some twenty facts: every anomaly and its witness is that of the whole. Too small a limit leaves it
    whole."""
    from linearizability.pipeline.spark import check_histories

    monkeypatch.setattr("linearizability.pipeline.spark_parts.HOT_FACTS", 40)
    monkeypatch.setattr("linearizability.pipeline.spark_parts.FACTS_A_PART", 20)
    faulty = History("hot", facts=table_of("t", random_facts(Random(11), operations=40)))
    whole = judge_history(faulty)
    assert len(whole.anomalies) > 10
    (cut,) = check_histories([faulty], MASTER)
    assert reported(cut) == reported(whole) and "uncut" not in capsys.readouterr().err
    monkeypatch.setattr("linearizability.pipeline.parts.MAX_RUNS", 0)
    (uncut,) = check_histories([faulty], MASTER)
    assert reported(uncut) == reported(whole) and "t-0 of run 0 is judged uncut" in capsys.readouterr().err


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_a_damaged_file_is_named_by_both(tmp_path: Path) -> None:
    files = record(tmp_path / "run")
    files[0].write_text(files[0].read_text()[:-30])
    (tmp_path / "run" / "history-00007.jsonl").write_text(files[1].read_text())
    (local,) = check([tmp_path / "run"], engine="local")
    (spark,) = check([tmp_path / "run"], engine="spark", master=MASTER)
    assert local.verdict == "unknown" and len(local.reasons) >= 2
    assert reported(spark) == reported(local)


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_large_files_of_other_tools_are_judged_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers read them into a store, file by file; neither lines nor facts come together in one place."""
    folder, text = tmp_path / "tools", tmp_path / "history.edn"
    ended = {"at": 90, "name": "shutdown_complete"}
    read = [consumed(50, 0), consumed(51, 2), ended]
    events_of_tool(folder, producer=[*(acked(10 + n, n) for n in range(3)), ended], consumer=read)
    text.write_text(JEPSEN + "{:type :in")
    local = [judgement for path, form in ((folder, "verifiable"), (text, "auto")) for judgement in check([path], form)]
    assert [judgement.verdict for judgement in local] == ["invalid", "unknown"]
    monkeypatch.setattr(engine, "FOREIGN_SPARK_FROM_BYTES", 0)
    (tools,) = check([folder], "verifiable", "auto", MASTER)
    (torn,) = check([text], "auto", "spark", MASTER)
    assert [reported(tools), reported(torn)] == [reported(judgement) for judgement in local]
    assert (tools.engine, torn.engine) == ("spark", "spark")


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_native_files_that_are_named_one_by_one_are_judged_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large files are brought into a store as folders are, those of a run together; files without a history are named."""
    wrong = record(tmp_path / "wrong")
    wrong[1].write_text(wrong[1].read_text().replace("[[4,4],[5,5]]", "[[5,5],[4,4]]"))
    with Recorder.open(tmp_path / "other", run="other") as other:
        other.ok(other.invoke("send", [send("t-0", 1)]), [send("t-0", 1, offset=0)])
    (tmp_path / "empty").touch()
    headless = tmp_path / "headless" / "history-00001.jsonl"
    headless.parent.mkdir()
    headless.write_text("{}\n")
    named = [wrong[0], tmp_path / "empty", *(tmp_path / "other").glob("*.jsonl"), wrong[1], headless.parent]
    local = {reported(judgement)[:2]: reported(judgement) for judgement in check(named, engine="local")}
    assert list(local) == [("empty", "unknown"), ("r", "invalid"), ("other", "unknown"), (headless.name, "unknown")]
    monkeypatch.setattr(engine, "SPARK_FROM_BYTES", 0)
    large = list(check(named, master=MASTER))
    assert {reported(judgement)[:2]: reported(judgement) for judgement in large} == local
    stored = [judgement for judgement in large if judgement.engine == "spark"]
    assert [judgement.id for judgement in stored] == ["r", "other"]
    assert all(judgement.history is not None and not judgement.history.facts.num_rows for judgement in stored)


def test_what_is_large_is_brought_into_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packed files count for what they hold, and all native files together, however they are named."""
    run, text = record(tmp_path / "run"), tmp_path / "history.edn"
    text.write_text(JEPSEN)
    size = sum(map(size_of, run))
    assert size == sum(file.stat().st_size for file in run)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for file in (*run, text):
            (tmp_path / folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    packed = tmp_path / "two" / "history.edn.gz"
    assert size_of(packed) == PACKED * packed.stat().st_size
    runs = [tmp_path / "one", *sorted((tmp_path / "two").glob(FILE_PATTERN + ".gz"))]
    native = sum(size_of(file) for folder in ("one", "two") for file in (tmp_path / folder).glob("history-*"))
    for limit, stored in ((native - 1, 2), (native, 0)):
        monkeypatch.setattr(engine, "SPARK_FROM_BYTES", limit)
        large, rest = engine.apart(sources_of(runs), "auto")
        assert [len(unread.sources) for unread in large] == [2] * stored and len(rest.runs) == 2 - stored
    for limit, stored in ((size_of(packed) - 1, 1), (size_of(packed), 0)):
        monkeypatch.setattr(engine, "FOREIGN_SPARK_FROM_BYTES", limit)
        large, rest = engine.apart(sources_of([packed]), "auto")
        assert (len(large), len(rest.others)) == (stored, 1 - stored)
    assert engine.apart(sources_of([packed, *runs]), "local")[0] == []


def test_a_run_that_is_named_like_a_folder(tmp_path: Path) -> None:
    """A run whose name is the path of another run's folder is not mixed with that run."""
    record(tmp_path / "run")
    with Recorder.open(tmp_path / "other", run=str(tmp_path / "run")):
        pass
    named = [*(tmp_path / "other").glob("*.jsonl"), tmp_path / "run"]
    assert [judgement.verdict for judgement in check(named)] == ["unknown", "valid"]


def test_partition_numbers_may_be_anything() -> None:
    """A number of a thousand million costs no memory, and names that are no partition's are partitions of their own."""
    odd = history(
        """
        0 send t-999999999:1@0 t-0:2@0 topic:3@0
        1 poll t-999999999:1@0 t-0:9@0 topic:3@0
        """
    )
    judgement = judge_history(odd)
    assert {(anomaly.topic, anomaly.partition) for anomaly in judgement.witnesses()} == {("t", 0)}


def test_a_damaged_store_is_no_history(tmp_path: Path) -> None:
    write_histories(tmp_path, [history("0 send t-0:1@0")])
    (tmp_path / "runs.json").write_text("{")
    (judgement,) = check([tmp_path])
    assert judgement.verdict == "unknown" and "runs.json" in judgement.reasons[0]


def cut(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-20])


def without_a_column(part: Path) -> None:
    pq.write_table(pq.read_table(part).drop_columns(["epoch"]), part)


def without_a_row(part: Path) -> None:
    table = pq.read_table(part)
    pq.write_table(table.slice(1), part)


def flipped(part: Path) -> None:
    """A bit of the values, in the last byte of their page."""
    place = pq.read_metadata(part).row_group(0).column(SCHEMA.names.index("value"))
    data = bytearray(part.read_bytes())
    begin = place.data_page_offset if place.dictionary_page_offset is None else place.dictionary_page_offset
    data[begin + place.total_compressed_size - 1] ^= 1
    part.write_bytes(data)


DAMAGES = {"gone": Path.unlink, "cut": cut, "another schema": without_a_column, "a row less": without_a_row}


@pytest.mark.spark
@pytest.mark.sampled(days=5)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_store_that_lacks_facts_is_not_valid(tmp_path: Path, damage: str) -> None:
    """Both engines name the file, and no anomaly that rests on what is missing makes it invalid."""
    write_histories(tmp_path, [history("0 send t-0:1@0\n0 poll t-0:1@0", identifier=name) for name in ("a", "b")])
    assert [judgement.verdict for judgement in check([tmp_path])] == ["valid", "valid"]
    part = tmp_path / "facts" / "run-0001" / "part-0000.parquet"
    DAMAGES[damage](part)
    local, spark = (list(check([tmp_path], engine=name, master=MASTER)) for name in ("local", "spark"))
    assert [judgement.verdict for judgement in local] == ["valid", "unknown"]
    assert str(part) in local[1].reasons[0]
    assert [reported(judgement) for judgement in spark] == [reported(judgement) for judgement in local]


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_a_flipped_bit_in_a_store_costs_its_run_and_no_other(tmp_path: Path) -> None:
    """The damaged run is unknown and has no facts; the other runs are judged as before."""
    texts = {"a": "0 send t-0:1@0\n0 poll t-0:1@0", "b": "0 send t-0:1@0\n1 poll t-0:7@0", "c": "0 send t-0:1@0"}
    write_histories(tmp_path, [history(text, identifier=name) for name, text in texts.items()])
    part = tmp_path / "facts" / "run-0001" / "part-0000.parquet"
    flipped(part)
    local, spark = (list(check([tmp_path], engine=name, master=MASTER)) for name in ("local", "spark"))
    assert [judgement.verdict for judgement in local] == ["valid", "unknown", "unknown"]
    assert local[1].facts == 0 and str(part) in local[1].reasons[0]
    assert [reported(judgement) for judgement in spark] == [reported(judgement) for judgement in local]


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_many_runs_are_judged_some_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first results come when the first job has ended, from a store as from files."""
    from linearizability.pipeline import spark

    monkeypatch.setattr(spark, "RUNS_OF_THE_FIRST_JOB", 2)
    monkeypatch.setattr(spark, "RUNS_A_JOB", 3)
    assert [len(batch) for batch in spark.in_jobs(range(9))] == [2, 3, 3, 1]
    texts = [f"0 send t-0:1@0\n1 poll t-0:{1 if number % 2 else 7}@0" for number in range(6)]
    write_histories(tmp_path, [history(text, identifier=str(number)) for number, text in enumerate(texts)])
    expected = [reported(judgement) for judgement in check([tmp_path])]
    judged = check([tmp_path], engine="spark", master=MASTER)
    first = [reported(next(judged)) for _ in range(2)]
    (tmp_path / "facts" / "run-0002" / "part-0000.parquet").unlink()  # not looked at yet
    others = [reported(judgement) for judgement in judged]
    assert first == expected[:2] and others[1:] == expected[3:]
    assert others[0][1] == "unknown"


def test_parts_of_a_store_that_names_none_are_counted(tmp_path: Path) -> None:
    """Stores were once written without their parts' names; the number of facts was always there."""
    write_histories(tmp_path, [history("0 send t-0:1@0\n0 poll t-0:1@0")])
    runs = json.loads((tmp_path / "runs.json").read_text())
    del runs["runs"][0]["parts"]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    assert [judgement.verdict for judgement in check([tmp_path])] == ["valid"]
    (tmp_path / "facts" / "run-0000" / "part-0000.parquet").unlink()
    (judgement,) = check([tmp_path])
    assert judgement.verdict == "unknown" and "0 facts, of 2" in judgement.reasons[0]


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    program = (
        "import sys; import linearizability.history.commands, linearizability.history.recorder\n"
        "print([name for name in ('numpy', 'pandas', 'pyspark', 'pyarrow', 'matplotlib') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
