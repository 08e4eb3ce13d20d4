"""Answers that broke the suite: their requirements fail, or pass, and never end as an engine error."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any

import pytest

from conformance.host import addresses
from conformance.judging import judge
from conformance.plan import BASE_CONFIGS
from conformance.probing import probe
from conformance.quotas import ANY, CLIENT_ID, IP, PRODUCE, USER
from conformance.requirement import Entry, catalogue
from conformance.results import Judgement, Verdict
from conformance.subject import Subject
from linearizability.mutants.wire.proxy import Exchange, Proxy
from linearizability.mutants.wire.rewriting import Change, Liar, Lie, asks, fetched, put, sealed, when
from linearizability.targets import Target, open_target
from linearizability.targets.loop import Loop

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
