"""A coordinator may send a marker again: the requirements about a transaction's end accuse no partition that has it twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.broker import Broker
from conformance.host import addresses
from conformance.plan import BASE_CONFIGS
from conformance.probing import probe
from conformance.requirement import catalogue
from conformance.requirements.transaction_completion import Held, end_of, expect_completed
from conformance.requirements.transaction_descriptions import write_markers
from conformance.subject import Subject
from conformance.transaction_client import CLASSIC, TransactionalClient
from conformance.wire import Failed
from linearizability.targets import open_target
from linearizability.targets.loop import Loop


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
