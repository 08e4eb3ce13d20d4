"""A fenced producer asks for the end of a transaction, after a session of an older client has ended one.

The fenced one speaks the protocol of KIP-890, in which each end raises the epoch; the newer session that of before, in which
the epoch stays. A simulated run found what follows. `python -m pytest -m slow -s tests/targets/test_late_end_of_a_zombie.py`
reports what Apache Kafka does.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.answers import error_name
from conformance.batches import values
from conformance.broker import Broker
from conformance.host import addresses
from conformance.levels import MUST
from conformance.requirement import Requirement
from conformance.subject import Subject
from conformance.transaction_client import CLASSIC, IMPLICIT, TransactionalClient
from linearizability.targets import open_target
from linearizability.targets.wire import Wire
from reference.protocol.errors import ErrorCode

RECORD = Requirement(
    id="TXN-00", level=MUST, sentence="A fenced producer stays fenced.", source="KIP-890", deadline_s=120
)


def story(broker: Broker) -> tuple[Any, int, list[bytes | None]]:
    """The answer to the zombie's end, the offset that its record is acknowledged with (-1: none), and what is in the log."""
    topic = broker.topic()
    zombie = TransactionalClient(broker, IMPLICIT)
    zombie.write(topic, b"of the zombie, while it was none")
    zombie.finish(committed=True)
    session = TransactionalClient(broker, CLASSIC, zombie.name)
    session.write(topic, b"of the newer session")
    session.finish(committed=True)
    print(f"the zombie has epoch {zombie.epoch}, the newer session {session.epoch}, and has committed")
    answer = zombie.end(committed=True)
    print(f"the zombie's EndTxn v5: {error_name(answer.error_code)}, epoch {answer.producer_epoch}")
    offset = -1
    if answer.error_code == ErrorCode.NONE:
        result = zombie.produce(topic, b"of the zombie")
        offset = result.base_offset
        end = error_name(zombie.end(committed=True).error_code)
        print(f"its next record: {error_name(result.error_code)}, offset {offset}; its commit: {end}")
    kept = values(broker.log(topic))
    print(f"the log holds {kept}")
    return answer, offset, kept


def reported(spec: str, folder: Path) -> tuple[Any, int, list[bytes | None]]:
    with open_target(spec, folder=folder) as target:
        with Wire.connect(target.nodes[0].host, target.nodes[0].port) as wire:
            versions = wire.versions()
        with Broker(Subject(addresses(target.bootstrap), "", versions, target, nodes=1), RECORD) as broker:
            return story(broker)


def test_the_reference_fences_it(tmp_path: Path) -> None:
    answer, _, _ = reported("reference:1", tmp_path)
    assert answer.error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.parametrize("version", ["4.3.1", "4.4.0"])
def test_kafka_gives_it_the_newer_sessions_epoch_and_loses_what_it_then_acknowledges(
    version: str, tmp_path: Path
) -> None:
    answer, offset, kept = reported(f"kafka:{version}:1", tmp_path)
    assert answer.error_code == ErrorCode.NONE
    assert offset >= 0 and b"of the zombie" not in kept, "it is taken for a repetition of the newer session's batch"
