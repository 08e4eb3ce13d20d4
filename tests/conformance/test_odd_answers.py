"""Answers that broke the suite: their requirements fail, or pass, and never end as an engine error.

Unusual answers of sound brokers are no failures: a marker that is sent again, no DescribeTransactions (before Kafka 3.0), and
partitions that a cluster places as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from conformance.broker import Broker
from conformance.host import addresses
from conformance.judging import judge
from conformance.plan import BASE_CONFIGS
from conformance.probing import probe
from conformance.quotas import ANY, CLIENT_ID, IP, PRODUCE, USER
from conformance.requirement import Entry, catalogue, select
from conformance.requirements.transaction_completion import Held, end_of, expect_completed
from conformance.requirements.transaction_descriptions import write_markers
from conformance.results import Judgement, Verdict
from conformance.runner import Plan, run
from conformance.subject import Subject
from conformance.transaction_client import CLASSIC, TransactionalClient
from conformance.wire import Failed
from linearizability.mutants.wire.proxy import Exchange, Proxy
from linearizability.mutants.wire.rewriting import Change, Liar, Lie, asks, fetched, put, sealed, when
from linearizability.targets import Target, open_target
from linearizability.targets.loop import Loop
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from tests.conformance.mortal import verdicts

COUNT_AT = 57
"""The place of the record count in a batch; only the records come after it."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Loop, Target, Subject]]:
    """A sound broker, and what the suite's probe found out about it."""
    folder = tmp_path_factory.mktemp("sound")
    with Loop() as loop, open_target("reference:1", folder=folder, config=BASE_CONFIGS) as target:
        known = Subject(addresses(target.bootstrap), "4.3.1", target=target)
        probe(known, lambda: True)
        yield loop, target, known


def another_rack(exchange: Exchange, message: Any) -> None:
    """A broker is listed twice: once without a rack."""
    other = copy(message.brokers[0])
    other.rack = "a rack"
    message.brokers.append(other)


def of_no_user(exchange: Exchange, message: Any) -> None:
    """The quota of the default client id is described where those of users were asked for."""
    if USER in {each.entity_type for each in exchange.request.components}:
        table = type(message)
        default = table.EntityData(entity_type=CLIENT_ID, entity_name=None)
        message.entries = [table.EntryData(entity=[default], values=[table.ValueData(key=PRODUCE, value=1000.0)])]


def of_any_address(request: Any) -> bool:
    return [(each.entity_type, each.match_type) for each in request.components] == [(IP, ANY)]


def without_records(batches: list[Any]) -> list[bytes]:
    return [sealed(bytes(data[:COUNT_AT]) + bytes(4)) for _, data in batches]


ODD: dict[str, tuple[str, Change]] = {
    "MET-14": ("DescribeCluster", another_rack),
    "PRD-15": ("Fetch", fetched(without_records)),
    "QTA-19": ("DescribeClientQuotas", asks(of_any_address, put("entries", None))),
    "QTA-20": ("DescribeClientQuotas", of_no_user),
}


@pytest.mark.parametrize("id", ODD)
def test_an_odd_answer_breaks_nothing_of_the_suite(id: str, sound: tuple[Loop, Target, Subject]) -> None:
    api, answer = ODD[id]
    judgement = judged(id, sound, Lie("odd", api, "an odd answer", "", answer=answer))
    assert judgement.verdict is not Verdict.ENGINE_ERROR, judgement.traceback


def judged(id: str, sound: tuple[Loop, Target, Subject], lie: Lie) -> Judgement:
    loop, target, known = sound
    entry = catalogue()[id]
    hurried = Entry(requirement=entry.requirement.model_copy(update={"deadline_s": 6.0}), test=entry.test)
    with Proxy(loop, target.nodes, Liar(lie)) as proxy:
        places = [(node.host, node.port) for node in proxy.nodes]
        return judge(hurried, Subject(places, "4.3.1", known.api_versions, target, profile=known.profile))


def test_members_that_name_no_assignor_get_the_brokers_first(sound: tuple[Loop, Target, Subject]) -> None:
    ranged = when(lambda _, request: request.member_epoch == 0, put("server_assignor", lambda name: name or "range"))
    lie = Lie("range-by-default", "ConsumerGroupHeartbeat", "range where none is named", "CGH-20", ask=ranged)
    assert judged("CGH-20", sound, lie).verdict is Verdict.FAIL


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    """A sound broker, with what the suite's probe found out about it."""
    with Loop(), open_target("reference:1", folder=tmp_path_factory.mktemp("sound"), config=BASE_CONFIGS) as target:
        found = Subject(addresses(target.bootstrap), "4.3.1", target=target)
        probe(found, lambda: True)
        yield found


def ended(broker: Broker, *, committed: bool) -> Held:
    """A transaction over two partitions, in each of which a marker of a commit follows its own marker."""
    client = TransactionalClient(broker, CLASSIC)
    case = Held(client, client.identity, committed, broker.topic(), broker.topic(), "")
    client.write(case.held, b"held")
    client.write(case.free, b"free")
    end_of(broker, case)
    for topic in (case.held, case.free):
        assert not write_markers(broker, topic, case.began, 1)[0]
    return case


def test_a_repeated_marker_is_no_failure(known: Subject) -> None:
    with Broker(known, catalogue()["TXN-10"].requirement) as broker:
        case = ended(broker, committed=True)
        assert broker.end_offset(case.held) == broker.end_offset(case.free) == 3
        end_of(broker, case)  # asked again, it finds a marker more
        expect_completed(broker, case)


def test_a_marker_of_the_other_outcome_is_a_failure(known: Subject) -> None:
    with Broker(known, catalogue()["TXN-10"].requirement) as broker:
        case = ended(broker, committed=False)
        with pytest.raises(Failed, match="the kinds of its markers"):
            expect_completed(broker, case)


ACROSS_NODES = ["TXN-47", "TXV-19"]


@pytest.mark.process
def test_they_are_judged_by_what_the_coordinator_and_the_partitions_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TransactionalClient, "is_described", property(lambda client: False))
    monkeypatch.delattr(TransactionalClient, "described")
    report = run(Plan("reference:3", select(ACROSS_NODES), tmp_path, starts=1))
    reasons = {one.requirement.id: one.reason for one in report.judgements}
    seen = {id: verdict for id, verdict in verdicts(report).items() if id in ACROSS_NODES}
    assert seen == dict.fromkeys(ACROSS_NODES, Verdict.PASS), [reasons[id] for id in ACROSS_NODES]


SESSIONS = ["FSS-01", "FSS-05", "FSS-11"]


@pytest.mark.process
@pytest.mark.parametrize(("heeds", "verdict"), [(True, Verdict.PASS), (False, Verdict.NOT_JUDGED)])
def test_fetch_sessions_ask_one_broker_of_its_own_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heeds: bool, verdict: Verdict
) -> None:
    if not heeds:
        monkeypatch.setattr(Broker, "_on_one_broker", lambda broker, partitions: None)
    report = run(Plan("reference:3", select(SESSIONS), tmp_path, starts=1))
    reasons = {one.requirement.id: one.reason for one in report.judgements}
    assert verdicts(report) == dict.fromkeys(SESSIONS, verdict), reasons
    assert heeds or all("needs partitions that one broker leads" in reason for reason in reasons.values())


@pytest.mark.process
def test_what_needs_its_replicas_in_a_place_moves_them_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster refuses assignments in CreateTopics, as crabka does."""
    asked = Broker.call

    def call(broker: Broker, request: Any, *arguments: Any, **options: Any) -> Any:
        if isinstance(request, CreateTopicsRequest) and any(topic.assignments for topic in request.topics):
            code = int(ErrorCode.INVALID_PARTITIONS)
            refused = [
                CreateTopicsResponse.CreatableTopicResult(name=one.name, error_code=code) for one in request.topics
            ]
            return CreateTopicsResponse(topics=refused)
        return asked(broker, request, *arguments, **options)

    monkeypatch.setattr(Broker, "call", call)
    report = run(Plan("reference:3", select(["RET-06"]), tmp_path, starts=1))
    found = {one.requirement.id: (one.verdict, one.reason) for one in report.judgements}
    assert found["RET-06"] == (Verdict.PASS, ""), found


@pytest.mark.slow
@pytest.mark.process
def test_no_requirement_accuses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Broker, "_on_one_broker", lambda broker, partitions: None)
    needs = {id: entry.requirement.needs for id, entry in catalogue().items() if entry.test}
    chosen = [id for id, one in needs.items() if not (one.hooks or one.configs or id.startswith("HIS"))]
    report = run(Plan("reference:3", select(chosen), tmp_path, starts=1))
    wrong = {
        one.requirement.id: one.reason
        for one in report.judgements
        if one.verdict not in (Verdict.PASS, Verdict.NOT_JUDGED)
    }
    assert not wrong
    assert sum(one.verdict is Verdict.PASS for one in report.judgements) > 300
