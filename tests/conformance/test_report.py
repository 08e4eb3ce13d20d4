"""Reports: JSON by its schema, JUnit, HTML with exchanges taken apart, the matrix."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from conformance import report
from conformance.batches import batch
from conformance.judging import keep
from conformance.levels import MUST, SHOULD
from conformance.report import anatomy
from conformance.report.html import matrix_page, run_page
from conformance.report.junit import junit
from conformance.report.markdown import summary
from conformance.report.matrix import matrix, show
from conformance.report.terminal import show as show_run
from conformance.requirement import Requirement, select
from conformance.results import Case, Judgement, RecordedExchange, Run, RunVerdict, TargetRecord, Verdict
from conformance.wire import frame, request_header
from reference.protocol.apis import APIS
from reference.protocol.codec import encode
from reference.protocol.messages.fetch import FetchResponse
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from reference.protocol.schema import Message


def exchange(
    request: Message | bytes = b"", response: Message | None = None, version: int = 0, *, cut: int = 0
) -> RecordedExchange:
    """An exchange as the raw client would have recorded it."""
    if isinstance(request, bytes):
        key, sent = -1, request
    else:
        key = type(request).KEY
        flexible = version in type(request).FLEXIBLE
        sent = frame(request_header(key, version, 7, "me", flexible=flexible) + encode(request, version))
    received = b""
    if response is not None:
        key = type(response).KEY
        tags = version in type(response).FLEXIBLE and APIS[key].name != "ApiVersions"
        header = b"\x00\x00\x00\x07" + b"\x00" * tags
        received = frame(header + encode(response, version))
    kept = received[: len(received) - cut] if cut else received
    return RecordedExchange(
        connection=1,
        at_s=0.5,
        elapsed_ms=1.5,
        api=APIS[key].name if key in APIS else "",
        api_key=key,
        version=version,
        response_version=version,
        outcome="answered",
        request_hex=sent.hex(),
        request_bytes=len(sent),
        response_hex=kept.hex(),
        response_bytes=len(received),
    )


def a_run(spec: str = "addr:a", **verdicts: Verdict) -> Run:
    verdicts = verdicts or {"FRM_01": Verdict.PASS, "FRM_02": Verdict.FAIL, "PRD_05": Verdict.NOT_JUDGED}
    run = Run(suite_version="0", target=TargetRecord(spec=spec), selection="", started_at="2026-01-01T00:00:00+00:00")
    for name, verdict in verdicts.items():
        record = Requirement(
            id=name.replace("_", "-"),
            level=MUST if verdict is not Verdict.NOT_JUDGED else SHOULD,
            sentence="A <b>sentence</b>.",
            source="a test",
            accepted="this & that",
        )
        request, response = MetadataRequest(topics=[]), MetadataResponse(cluster_id="</script>")
        run.judgements.append(
            Judgement(
                requirement=record,
                verdict=verdict,
                reason="because of \x00 and [brackets]",
                seen=["one", "two"],
                cases=[Case(name="v1", verdict=verdict, reason="so")],
                exchanges=[exchange(request, response, 9)],
            )
        )
    run.sum_up()
    return run


def test_json_reads_back_equal_and_has_the_names_of_the_summary(tmp_path: Path) -> None:
    run = a_run()
    report.write(run, tmp_path)
    assert report.read(tmp_path) == run
    held = json.loads((tmp_path / "report.json").read_text())
    assert held["must"] == {"pass": 1, "fail": 1, "tolerated": 0, "blocked": 0, "not_judged": 0}
    assert held["verdict"] == "fail"


def test_a_whole_run_of_passes_stays_small(tmp_path: Path) -> None:
    """Every requirement passes and each sent more, in larger messages, than is kept; what was sent cannot be compressed."""
    drawn = random.Random(7)
    run = a_run()
    run.judgements = [
        Judgement(requirement=record, verdict=Verdict.PASS, seconds=0.1)
        for record in (each.requirement for each in select([]))
    ]
    assert len(run.judgements) > 600
    for judgement in run.judgements:
        sent = [exchange(drawn.randbytes(4_000), MetadataResponse(cluster_id="x" * 10_000), 9) for _ in range(12)]
        keep(judgement, sent, 0)
    run.sum_up()
    report.write(run, tmp_path)
    sizes = {name: (tmp_path / name).stat().st_size for name in ("report.html", "report.json", "junit.xml")}
    assert sizes["report.html"] < 2_000_000, sizes
    assert sizes["report.json"] < 8_000_000, sizes
    assert sizes["junit.xml"] < 1_000_000, sizes


def test_junit_counts_failures_and_skips() -> None:
    root = ElementTree.fromstring(junit(a_run()))
    suites = {suite.get("name", "")[:3]: suite for suite in root}
    assert (suites["FRM"].get("tests"), suites["FRM"].get("failures")) == ("2", "1")
    assert suites["PRD"].get("skipped") == "1"
    failure = suites["FRM"].find("./testcase[@name='FRM-02']/failure")
    assert failure is not None
    assert "this & that" in (failure.text or "")


def test_what_is_blocked_is_no_pass_in_junit_and_stands_under_its_cause() -> None:
    run = a_run(PRD_05=Verdict.FAIL, FET_01=Verdict.BLOCKED, FET_02=Verdict.PASS)
    run.judgements[1].blocked_by = "PRD-05"
    (suite,) = [suite for suite in ElementTree.fromstring(junit(run)) if suite.get("name", "").startswith("FET")]
    assert (suite.get("tests"), suite.get("skipped")) == ("2", "1")
    console = Console(record=True, width=100, file=StringIO())
    show_run(run, console)
    assert "blocks FET-01" in console.export_text()
    assert 'href="#FET-01"' in run_page(run)


def test_a_run_with_hundreds_of_failures_stays_readable() -> None:
    verdicts = {f"PRD_{n:03}": Verdict.FAIL for n in range(200)} | {f"FET_{n:03}": Verdict.PASS for n in range(250)}
    run = a_run("addr:a", **verdicts)
    for judgement in run.judgements:
        judgement.exchanges = judgement.exchanges * 20
    console = Console(record=True, width=120, file=StringIO())
    show_run(run, console)
    assert len(console.export_text().splitlines()) < 100
    assert len(run_page(run)) < 2 << 20


def test_a_target_that_did_not_start_is_one_line() -> None:
    run = a_run(FRM_01=Verdict.NOT_JUDGED, FRM_02=Verdict.NOT_JUDGED)
    run.verdict, run.reason = RunVerdict.UNKNOWN, run.judgements[0].reason
    console = Console(record=True, width=100, file=StringIO())
    show_run(run, console)
    assert console.export_text().splitlines() == [f"unknown  {run.reason}"]
    run.judgements[1].reason = "something else"
    show_run(run, console)
    assert "FRM-02" in console.export_text()


def test_html_is_one_file_and_escapes_what_was_seen() -> None:
    page = run_page(a_run())
    assert not re.search(r"(src|href)=\"?(https?:)?//", page)
    assert "<b>sentence</b>" not in page
    assert page.count("</script>") == 2
    embedded = re.search(r'id="exchanges">(.*?)</script>', page, re.S)
    assert embedded
    exchanges = json.loads(gzip.decompress(base64.b64decode(embedded[1])))
    assert set(exchanges) == {"FRM-02/0"}, "the exchanges of what passes stay in report.json"


def test_the_terminal_shows_failures_with_what_was_accepted_and_seen() -> None:
    console = Console(record=True, width=100, file=StringIO())
    show_run(a_run(), console)
    shown = console.export_text()
    for words in ("FRM-02", "this & that", "[brackets]", "not judged PRD-05", "fail"):
        assert words in shown


def test_the_software_that_an_adapter_names_is_shown() -> None:
    run = a_run("exec:./mine")
    run.target.name, run.target.kafka_version = "acme 0.9", "4.3.1"
    console = Console(record=True, width=100, file=StringIO())
    show_run(run, console)
    assert "exec:./mine (acme 0.9) as Kafka 4.3.1" in console.export_text()
    assert "exec:./mine (acme 0.9) as Kafka 4.3.1: fail" in summary(run)
    assert "<li>acme 0.9</li>" in run_page(run)


def test_verdicts_head_their_columns_in_whole_words_on_a_narrow_terminal() -> None:
    verdicts = ("PASS", "FAIL", "TOLERATED", "BLOCKED", "NOT_JUDGED", "UNTESTABLE")
    run = a_run("addr:a", **{f"ACK_{number:02}": Verdict[name] for number, name in enumerate(verdicts)})
    console = Console(record=True, width=80, file=StringIO())
    show_run(run, console)
    head = next(line for line in console.export_text().splitlines() if line.startswith("area"))
    assert [str(Verdict[name]) for name in verdicts] == re.split(r"\s{2,}", head.strip())[1:]


def test_the_matrix_finds_what_differs() -> None:
    one = a_run("addr:a", FRM_01=Verdict.PASS, FRM_02=Verdict.PASS)
    two = a_run("addr:b", FRM_01=Verdict.PASS, FRM_02=Verdict.FAIL, FRM_03=Verdict.PASS)
    found = matrix([one, two])
    assert found.labels == ["addr:a", "addr:b"]
    assert {row.requirement.id: row.differs for row in found.rows} == {"FRM-01": False, "FRM-02": True, "FRM-03": False}
    console = Console(record=True, width=100, file=StringIO())
    show(found, console)
    assert "FRM-02" in console.export_text()
    assert "FRM-01" not in console.export_text()
    assert matrix_page(found).count('data-differs="yes"') == 1


def test_runs_on_one_target_are_distinguished_by_their_start() -> None:
    assert len(set(matrix([a_run("x"), a_run("x").model_copy(update={"started_at": "later"})]).labels)) == 2


# ---- anatomy


def values(rows: list[anatomy.Row]) -> dict[str, str]:
    return {row.name: row.value for row in rows}


def covered(rows: list[anatomy.Row], size: int) -> bool:
    """Whether the rows lie within the bytes and together touch each of them."""
    touched = {place for row in rows for place in range(row.start, row.end)}
    return touched == set(range(size))


@pytest.mark.parametrize("version", [1, 8, 9, 13])
def test_a_request_is_taken_apart_to_the_last_byte(version: int) -> None:
    topics = [MetadataRequest.MetadataRequestTopic(name="abc"), MetadataRequest.MetadataRequestTopic(name="d")]
    made = exchange(MetadataRequest(topics=topics), version=version)
    rows = anatomy.of_request(made)
    assert values(rows)["client_id"] == "'me'"
    assert [row.value for row in rows if row.name == "name"] == ["'abc'", "'d'"]
    assert covered(rows, made.request_bytes)
    assert not any(row.name == "…" for row in rows)


def test_records_are_taken_apart_too() -> None:
    partition = FetchResponse.PartitionData(error_code=2, records=batch(b"x") + batch(b"y"), aborted_transactions=None)
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=[partition])])
    made = exchange(b"", response, 12)
    rows = anatomy.of_response(made)
    assert covered(rows, made.response_bytes)
    assert [row.value for row in rows if row.name == "error_code"] == ["0  NONE", "2  CORRUPT_MESSAGE"]
    assert len([row for row in rows if row.name == "base_offset"]) == 2


def test_what_was_cut_off_is_shown_as_far_as_it_goes() -> None:
    made = exchange(b"", MetadataResponse(cluster_id="a long name of a cluster"), 9, cut=8)
    rows = anatomy.of_response(made)
    assert rows[-1].name == "…"
    assert "cut off" in rows[-1].value


def test_garbage_does_not_break_it() -> None:
    for data in (b"", b"\x00", b"\xff" * 40, frame(b"\x00\x03\x00\x09" + b"\xff" * 30)):
        made = exchange(b"", MetadataResponse(), 9).model_copy(
            update={"request_hex": data.hex(), "response_hex": data.hex(), "request_bytes": len(data)}
        )
        for rows in (anatomy.of_request(made), anatomy.of_response(made)):
            assert all(0 <= row.start <= row.end <= len(data) for row in rows)


def test_every_message_of_the_table_is_walked_like_the_codec_writes_it() -> None:
    for api in APIS.values():
        for table, take in ((api.request, anatomy.of_request), (api.response, anatomy.of_response)):
            for version in table.VERSIONS:
                made = exchange(**_defaults(table), version=version)
                rows = take(made)
                assert not any(row.name == "…" for row in rows), f"{table.__name__} v{version}: {rows[-1]}"


def _defaults(table: type[Message]) -> dict[str, Any]:
    return {"request": table()} if table.KIND == "request" else {"request": b"", "response": table()}


def test_a_run_verdict_is_shown_in_its_words() -> None:
    assert [str(verdict) for verdict in RunVerdict] == ["pass", "fail", "unknown"]
