"""The engine: verdicts, order, broken targets, expected failures, configurations."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from conformance import requirement
from conformance.broker import Broker
from conformance.expectations import Expectation
from conformance.host import addresses, guess_kafka_version
from conformance.judging import judge, missing
from conformance.levels import MAY, MUST, SHOULD, Level
from conformance.report.html import run_page
from conformance.report.terminal import show, show_verdict
from conformance.requirement import WITHOUT_ZOOKEEPER, Entry, Needs, Requirement, select
from conformance.results import Judgement, Lack, Run, RunVerdict, TargetRecord, Verdict, root_causes
from conformance.runner import STREAM_NAME, Plan, run
from conformance.subject import LEADER_AND_ISR, Subject
from conformance.wire import Failed
from reference.protocol.apis import APIS
from tests.conformance.parrot import _produced, parrot, target_of


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each requirement be judged by itself: a wrong broker also fails requirements on which others build."""
    monkeypatch.setattr(requirement, "dependencies_of", lambda id: ())


def record(id: str = "FRM-01", **fields: Any) -> Requirement:
    return Requirement(**({"id": id, "level": MUST, "sentence": "A sentence.", "source": "a test"} | fields))


def judged(test: Any, subject: Subject | None = None, **fields: Any) -> Judgement:
    return judge(Entry(requirement=record(**fields), test=test), subject or Subject([("127.0.0.1", 1)], "4.3.1"))


def test_a_test_that_ends_is_a_pass_with_what_was_seen() -> None:
    judgement = judged(lambda broker: broker.expect_equal("the answer", 42, 42))
    assert (judgement.verdict, judgement.seen) == (Verdict.PASS, ["the answer is 42"])


def test_what_is_not_as_expected_is_a_failure() -> None:
    judgement = judged(lambda broker: broker.expect_equal("the answer", 41, 42))
    assert (judgement.verdict, judgement.reason) == (Verdict.FAIL, "the answer is 41, not 42")


def test_a_mistake_of_the_suite_is_an_engine_error_with_its_traceback() -> None:
    judgement = judged(lambda broker: broker.no_such_method())
    assert judgement.verdict is Verdict.ENGINE_ERROR
    assert "no_such_method" in judgement.traceback


def test_an_unreachable_target_is_a_failure_not_an_engine_error() -> None:
    assert judged(lambda broker: broker.connect()).verdict is Verdict.FAIL


def test_an_unadvertised_api_skips_and_says_which() -> None:
    judgement = judged(lambda broker: broker.topic())
    assert (judgement.verdict, judgement.reason) == (Verdict.NOT_JUDGED, "the target does not advertise CreateTopics")


def test_tolerated_errors_pass_with_a_note() -> None:
    from reference.protocol.errors import ErrorCode

    def test(broker: Broker) -> None:
        broker.expect_error(2, ErrorCode.INVALID_RECORD, tolerated={ErrorCode.CORRUPT_MESSAGE})

    judgement = judged(test)
    assert judgement.verdict is Verdict.TOLERATED
    assert judgement.reason == "CORRUPT_MESSAGE(2) instead of INVALID_RECORD(87)"


def cases(*outcomes: str) -> Any:
    def test(broker: Broker) -> None:
        for outcome in outcomes:
            with broker.case(outcome):
                if outcome == "fail":
                    broker.fail("it was bad")
                if outcome == "skip":
                    broker.skip("it was not there")
                if outcome == "tolerate":
                    broker.tolerate("it was odd")

    return test


@pytest.mark.parametrize(
    ("outcomes", "verdict"),
    [
        (("pass", "fail", "pass"), Verdict.FAIL),
        (("pass", "tolerate"), Verdict.TOLERATED),
        (("pass", "skip"), Verdict.PASS),
        (("skip", "skip"), Verdict.NOT_JUDGED),
        (("fail", "tolerate", "skip"), Verdict.FAIL),
    ],
)
def test_the_worst_case_counts(outcomes: tuple[str, ...], verdict: Verdict) -> None:
    judgement = judged(cases(*outcomes))
    assert judgement.verdict is verdict
    assert len(judgement.cases) == len(outcomes)


@pytest.mark.timeout(120)
def test_a_test_cannot_wait_beyond_its_deadline() -> None:
    judgement = judged(lambda broker: broker.eventually(lambda: False, "never", within_s=3600), deadline_s=0.2)
    assert judgement.verdict is Verdict.FAIL


def test_what_the_target_lacks_skips_before_anything_is_said() -> None:
    subject = Subject([("127.0.0.1", 1)], "4.3.1", {1: (4, 11)}, SimpleNamespace(hooks=("kill",)))
    assert "3 nodes" in missing(record(needs=Needs(nodes=3)), subject)[0]
    assert "pause" in missing(record(needs=Needs(hooks=("kill", "pause"))), subject)[0]
    assert "Fetch v12" in missing(record(needs=Needs(apis={"Fetch": 12})), subject)[0]
    assert "needs Produce" in missing(record(needs=Needs(apis={"Produce": 3})), subject)[0]
    assert "until 3.9" in missing(record(until="3.9"), subject)[0]
    assert missing(record(since="4.3", until="4.3", needs=Needs(apis={"Fetch": 11})), subject)[0] == ""


def lacking(*hooks: str, known: str = "", nodes: int = 1, **configs: str) -> str:
    """The reason why a target that describes no configuration is not judged; it heeds at most the configuration `known`."""
    subject = Subject(
        [("127.0.0.1", 1)],
        "4.3.1",
        nodes=nodes,
        target=SimpleNamespace(hooks=hooks),
        honoured=frozenset({known} - {""}),
    )
    needs = Needs(hooks=hooks, configs={name.replace("_", "."): value for name, value in configs.items()})
    return missing(record(needs=needs), subject)[0]


def test_a_configuration_that_is_not_described_is_unknown_unless_the_target_heeds_it() -> None:
    assert "needs group.max.size=2, which the target does not describe" in lacking(group_max_size="2")
    assert lacking(group_max_size="2", known="group.max.size") == ""
    assert lacking(group_max_size="2", delete_topic_enable="false", known="group.max.size").startswith("needs delete")
    assert lacking(log_retention_check_interval_ms="300") == ""  # it removes the same, if later


def test_bounds_of_silent_nodes_are_needed_where_a_node_may_fall_silent() -> None:
    assert lacking(broker_session_timeout_ms="6000") == ""
    assert lacking("pause", broker_session_timeout_ms="6000") == "", "there is no other node that could give it up"
    assert "needs broker.session.timeout.ms" in lacking("pause", nodes=2, broker_session_timeout_ms="6000")


def test_what_comes_too_late_is_judged_only_where_it_is_known_how_soon_it_has_to_come() -> None:
    def late(broker: Broker) -> None:
        broker.eventually(lambda: False, "an old record is removed", within_s=0.1)

    def removed(broker: Broker) -> None:
        broker.expect_equal("the log start", 1, 0)

    needs = Needs(configs={"log.retention.check.interval.ms": "300"})
    heeding = Subject([("127.0.0.1", 1)], "4.3.1", honoured=frozenset(needs.configs))
    judgement = judged(late, needs=needs)
    assert (judgement.verdict, judgement.lacks) == (Verdict.NOT_JUDGED, Lack.CONFIGURATION)
    assert "needs log.retention.check.interval.ms=300" in judgement.reason and "old record" in judgement.reason
    assert judged(late, heeding, needs=needs).verdict is Verdict.FAIL
    assert judged(removed, needs=needs).verdict is Verdict.FAIL


def test_what_came_with_kraft_is_not_asked_of_a_cluster_with_zookeeper() -> None:
    """Kafka 3.3 to 3.9 can be coordinated by either; the APIs that it advertises show by which."""

    def behaves(broker: Broker) -> None:
        broker.expect_equal("whether KRaft coordinates", broker.by_kraft(), True)

    def of(release: str, listener: str) -> Subject:
        served = {key: api.releases[release] for key, api in APIS.items() if release in api.releases}
        ranges = {key: row[:2] for key, row in served.items() if listener in row[3]}
        return Subject([("127.0.0.1", 1)], release, ranges)

    owed = record(since=WITHOUT_ZOOKEEPER, kraft=True)
    for release, listener, by_kraft in (
        ("3.9.2", "zkBroker", False),
        ("3.9.2", "broker", True),
        ("4.3.1", "broker", True),
    ):
        subject = of(release, listener)
        assert (judged(behaves, subject).verdict is Verdict.PASS) is by_kraft
        assert (missing(owed, subject)[0] == "") is by_kraft
    assert judged(behaves, Subject([("127.0.0.1", 1)], "2.8.2")).verdict is Verdict.FAIL
    reason, lack = missing(owed, of("3.9.2", "zkBroker"))
    assert lack is Lack.RELEASE
    assert reason == "owed since 3.3 with KRaft; the target is judged as Kafka 3.9.2 with ZooKeeper"


@pytest.mark.parametrize(("by_zookeeper", "verdict"), [(True, Verdict.PASS), (False, Verdict.FAIL)])
def test_the_name_of_a_deleted_topic_is_free_after_a_while_with_zookeeper(by_zookeeper: bool, verdict: Verdict) -> None:
    asked: list[Any] = []

    def marked_for_deletion(request: Any, response: Any, version: int) -> None:
        asked.append(request)
        response.topics = [
            type(response).CreatableTopicResult(name=one.name, error_code=36 * (len(asked) < 3))
            for one in request.topics
        ]

    with parrot({"CreateTopics": marked_for_deletion}) as bird:
        ranges = bird.ranges() | ({LEADER_AND_ISR: (0, 7)} if by_zookeeper else {})
        subject = Subject(addresses(bird.bootstrap), "3.9.2", ranges)
        made = judged(lambda broker: broker.topic(name="again"), subject)
    assert made.verdict is verdict, made.reason
    assert len(asked) == (3 if by_zookeeper else 1)


def test_the_version_is_found_out_from_what_is_advertised() -> None:
    for release in ("3.9.2", "4.3.1", "4.4.0"):
        ranges = {key: api.releases[release][:2] for key, api in APIS.items() if release in api.releases}
        assert guess_kafka_version(ranges) == (release, False)
        assert guess_kafka_version(dict.fromkeys(ranges, (0, 0)))[1]


def test_one_that_has_no_range_of_a_release_is_taken_for_the_nearest() -> None:
    """strikemq was taken for the newest release, and serves what Kafka served in 2017."""
    assert guess_kafka_version({0: (0, 5), 1: (0, 4), 3: (0, 0), 18: (0, 3)}) == ("3.9.2", True)


def test_what_no_report_could_hold_is_escaped() -> None:
    """Texts of answers may have bytes that are no UTF-8; the codec keeps them as surrogates."""

    def test(broker: Broker) -> None:
        broker.saw("bytes \udcff")
        with broker.case("case \udcff"):
            broker.fail("member \udcad")

    judgement = judge(Entry(requirement=record("PRD-01"), test=test), Subject([("127.0.0.1", 1)], "4.3.1"))
    assert judgement.verdict is Verdict.FAIL
    assert "udcad" in judgement.model_dump_json()


# ---- whole runs


def run_on(answers: Any, *patterns: str, folder: Path, **options: Any) -> Run:
    with parrot(answers) as bird:
        return run(Plan("addr:parrot", select(patterns), folder, open_target=target_of(bird.bootstrap), **options))


def kept(request: Any, response: Any, version: int) -> None:
    """A fetch that returns one record to each client that asks from the start."""
    from conformance.batches import batch

    table = type(response)
    response.responses = [
        table.FetchableTopicResponse(
            topic=topic.topic,
            topic_id=topic.topic_id,
            partitions=[
                table.PartitionData(partition_index=0, records=b"" if one.fetch_offset else batch(b"kept"))
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]


def test_a_run_judges_all_that_was_asked_for(tmp_path: Path) -> None:
    report = run_on({"Fetch": kept}, "API-01", "PRD-05", "API-07", folder=tmp_path)
    verdicts = {judgement.requirement.id: judgement.verdict for judgement in report.judgements}
    assert verdicts == {"API-01": Verdict.PASS, "API-07": Verdict.PASS, "PRD-05": Verdict.FAIL}
    assert (report.verdict, report.must.fail, report.must.pass_ + report.should.pass_ + report.may.pass_) == (
        RunVerdict.FAIL,
        1,
        2,
    )
    assert report.target.kafka_version == "4.3.1"
    assert report.target.profile.topics_by == "CreateTopics"


def refused(request: Any, response: Any, version: int) -> None:
    """Produce refuses every batch."""
    _produced(request, response, version)
    for topic in response.responses:
        for partition in topic.partition_responses:
            partition.error_code = 87


def test_what_fails_in_a_basic_step_is_blocked_by_it(tmp_path: Path) -> None:
    """No batch is accepted: that is one cause, and not one failure of each requirement that writes first."""
    report = run_on({"Produce": refused}, "API-01", "PRD-05", "FET-01", "FET-08", folder=tmp_path)
    by_id = {judgement.requirement.id: judgement for judgement in report.judgements}
    assert by_id["API-01"].verdict is Verdict.PASS
    assert by_id["BAS-03"].verdict is Verdict.FAIL, "it was judged because others failed in its step"
    assert {by_id[id].verdict for id in ("FET-01", "FET-08")} == {Verdict.BLOCKED}
    causes = {cause.judgement.requirement.id: cause.blocks for cause in root_causes(report.judgements)}
    assert causes["BAS-03"] == ["FET-01", "FET-08"]
    assert "PRD-05" in causes, "what it refuses wrongly is its own failure"


@pytest.mark.parametrize(
    ("known", "starts", "passed"),
    [
        ({"a"}, ["a=1", "a=2", "b=1"], ["FRM-01", "FRM-02"]),
        ({"b"}, ["a=1", "b=1"], ["FRM-03"]),
        (set[str](), ["a=1", "b=1"], []),
    ],
)
def test_a_target_is_started_again_with_configurations_that_it_may_heed(
    known: set[str], starts: list[str], passed: list[str], tmp_path: Path
) -> None:
    given: list[str] = []
    needed = {"FRM-01": {"a": "1"}, "FRM-02": {"a": "2"}, "FRM-03": {"b": "1"}}
    entries = [
        Entry(requirement=record(id, needs=Needs(configs=configs)), test=lambda broker: None)
        for id, configs in needed.items()
    ]
    with parrot({}) as bird:

        @contextmanager
        def open_target(spec: str, *, folder: Path, config: dict[str, str]) -> Iterator[SimpleNamespace]:
            given.extend(f"{name}={value}" for name, value in config.items() if name in ("a", "b"))
            yield SimpleNamespace(bootstrap=bird.bootstrap, hooks=(), unknown_config=config.keys() - known)

        report = run(Plan("exec:parrot", entries, tmp_path, open_target=open_target))
    assert [one.requirement.id for one in report.judgements if str(one.verdict) == "pass"] == passed
    assert given == starts


def test_a_target_that_does_not_start_says_why_once(tmp_path: Path) -> None:
    """The end of the target's log is shown once, for the run; the reason of each skipped requirement is one line."""

    def open_target(spec: str, **given: Any) -> Any:
        raise RuntimeError(
            "node 1 ended; its log ends:\nTraceback (most recent call last):\n  File x\nOSError: no room\n"
        )

    entries = [entry for entry in select(["FRM"]) if entry.test is not None]
    assert len(entries) > 2
    report = run(Plan(spec="reference:1", entries=entries, folder=tmp_path, open_target=open_target))
    reasons = {judgement.reason for judgement in report.judgements}
    assert reasons == {"the target reference:1 did not start: node 1 ended; its log ends: OSError: no room"}
    assert "Traceback" in report.model_dump_json()
    for print_it in (show, show_verdict):
        with Console(record=True, width=100, file=io.StringIO()) as console:
            print_it(report, console)
        assert console.export_text().count("OSError: no room") == 1
    assert "OSError: no room" in run_page(report).partition("</header>")[0]


def test_a_target_that_does_not_start_is_unknown(tmp_path: Path) -> None:
    def open_target(spec: str, **_: Any) -> Any:
        raise OSError("no such thing")

    report = run(Plan("exec:nothing", select(["API-01"]), tmp_path, open_target=open_target))
    assert report.broken
    assert "no such thing" in report.reason


def expectation(id: str, days: int = 1) -> Expectation:
    return Expectation(id, datetime.now(UTC).date() + timedelta(days=days), "a parrot")


def test_an_expectation_that_has_expired_excuses_nothing(tmp_path: Path) -> None:
    report = run_on({"Fetch": kept}, "PRD-05", folder=tmp_path, expected_failures=[expectation("PRD-05", -1)])
    assert report.verdict is RunVerdict.FAIL
    assert "(that day has passed)" in report.judgements[0].reason


def test_a_failure_of_the_baseline_is_excused_and_what_is_worse_is_not(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    before = run_on({"Fetch": kept}, "API-01", "PRD-05", folder=tmp_path / "a")
    assert before.verdict is RunVerdict.FAIL
    again = run_on({"Fetch": kept}, "API-01", "PRD-05", folder=tmp_path, baseline=before)
    assert (again.verdict, again.worse, again.better) == (RunVerdict.PASS, [], [])
    for judgement in before.judgements:
        judgement.verdict = Verdict.PASS
    worse = run_on({"Fetch": kept}, "API-01", "PRD-05", folder=tmp_path, baseline=before)
    assert (worse.verdict, [one.id for one in worse.worse]) == (RunVerdict.FAIL, ["PRD-05"])
    assert worse.reason == "worse than the baseline: PRD-05 (pass, now fail)"


def test_expected_failures_may_fail_and_must_not_pass(tmp_path: Path) -> None:
    report = run_on({"Fetch": kept}, "API-01", "PRD-05", folder=tmp_path, expected_failures=[expectation("PRD-05")])
    assert report.verdict is RunVerdict.PASS
    report = run_on({"Fetch": kept}, "API-01", folder=tmp_path, expected_failures=[expectation("API-01")])
    assert (report.verdict, report.unexpected_passes) == (RunVerdict.FAIL, ["API-01"])


def summed(*judgements: tuple[Level, Verdict]) -> Run:
    report = Run(suite_version="0", target=TargetRecord(spec="x"), selection="", started_at="now")
    for number, (level, verdict) in enumerate(judgements):
        report.judgements.append(Judgement(requirement=record(f"FRM-{number:02}", level=level), verdict=verdict))
    report.sum_up()
    return report


def test_only_must_requirements_fail_a_run() -> None:
    assert summed((MUST, Verdict.PASS), (SHOULD, Verdict.FAIL), (MAY, Verdict.FAIL)).verdict is RunVerdict.PASS
    assert summed((MUST, Verdict.FAIL), (MUST, Verdict.ENGINE_ERROR)).verdict is RunVerdict.FAIL


def test_nothing_but_skips_is_unknown_and_not_broken() -> None:
    report = summed((MUST, Verdict.NOT_JUDGED), (MUST, Verdict.UNTESTABLE))
    assert (report.verdict, report.broken, report.untestable) == (RunVerdict.UNKNOWN, False, 1)


def test_an_engine_error_keeps_the_verdict_unknown() -> None:
    report = summed((MUST, Verdict.PASS), (SHOULD, Verdict.ENGINE_ERROR))
    assert (report.verdict, report.broken, report.engine_errors) == (RunVerdict.UNKNOWN, True, 1)


def test_failures_are_reported_with_what_was_seen() -> None:
    with pytest.raises(Failed, match="3 instead of one topic"):
        from conformance.answers import only

        only([1, 2, 3], "topic")


def test_failures_of_a_target_whose_data_fill_the_disk_are_none_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / STREAM_NAME).symlink_to("/dev/full")
    with parrot({}) as wrong:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=0))
        for spec, verdict in (("reference:1", Verdict.ENGINE_ERROR), (f"addr:{wrong.bootstrap}", Verdict.FAIL)):
            (one,) = run(Plan(spec, select(["PRD-05"]), tmp_path, open_target=target_of(wrong.bootstrap))).judgements
            assert one.verdict is verdict, one.reason
            assert ("the disk of" in one.reason) == (verdict is Verdict.ENGINE_ERROR)
