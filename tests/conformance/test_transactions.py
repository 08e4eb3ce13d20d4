"""The transactional client and the read_committed reader: what they wait out, what they remember, what they leave out."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from conformance.batches import CONTROL, TRANSACTIONAL, Record, batch, batches, patched
from conformance.broker import Broker
from conformance.host import addresses
from conformance.levels import MAY
from conformance.markers import ABORT, COMMIT, marker_of, markers
from conformance.read_committed import committed_values, counting_records
from conformance.requirement import Requirement
from conformance.spent_epochs import raise_epoch
from conformance.subject import Subject
from conformance.transaction_client import CLASSIC, IMPLICIT, NO_ID, TransactionalClient
from conformance.wire import Failed
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import NO_UUID
from tests.conformance.parrot import Parrot, parrot

TOPIC = Topic("t", NO_UUID, 1)


class Coordinator:
    """Answers each API with its codes in turn, the last one for ever, and records the requests."""

    def __init__(self, **codes: list[ErrorCode]) -> None:
        self.codes = codes
        self.asked: list[tuple[str, Any]] = []
        self.epoch = -1

    def code(self, api: str) -> int:
        left = self.codes.get(api, [ErrorCode.NONE])
        return left.pop(0) if len(left) > 1 else left[0]

    def init(self, request: Any, response: Any, version: int) -> None:
        self.asked.append(("init", request))
        response.error_code = self.code("init")
        if response.error_code == ErrorCode.NONE:
            self.epoch += 1
            response.producer_id, response.producer_epoch = 7, self.epoch

    def end(self, request: Any, response: Any, version: int) -> None:
        self.asked.append(("end", request))
        response.error_code = self.code("end")
        response.producer_id, response.producer_epoch = 7, request.producer_epoch + 1

    def add(self, request: Any, response: Any, version: int) -> None:
        self.asked.append(("add", request))
        table = type(response)
        response.results_by_topic_v3_and_below = [
            table.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    table.AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=self.code("add")
                    )
                    for index in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]

    def produce(self, request: Any, response: Any, version: int) -> None:
        self.asked.append(("produce", request))
        table = type(response)
        response.responses = [
            table.TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    table.PartitionProduceResponse(index=one.index, error_code=self.code("produce"), base_offset=40)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]

    def count(self, api: str) -> int:
        return sum(name == api for name, _ in self.asked)

    def sequences(self) -> list[int]:
        """The base sequence of each batch that was produced."""
        sent = [
            bytes(request.topic_data[0].partition_data[0].records) for name, request in self.asked if name == "produce"
        ]
        return [struct.unpack_from(">i", data, 53)[0] for data in sent]


@pytest.fixture
def flock() -> Iterator[list[Parrot]]:
    made: list[Parrot] = []
    yield made
    for bird in made:
        bird.close()


def client_of(coordinator: Coordinator, flock: list[Parrot], protocol: Any = CLASSIC) -> TransactionalClient:
    answers = {
        "InitProducerId": coordinator.init,
        "EndTxn": coordinator.end,
        "AddPartitionsToTxn": coordinator.add,
        "Produce": coordinator.produce,
    }
    bird = Parrot(answers)
    flock.append(bird)
    record = Requirement(id="TXN-99", level=MAY, sentence="A sentence.", source="a test", deadline_s=5)
    broker = Broker(Subject(addresses(bird.bootstrap), "4.3.1", bird.ranges()), record)
    bird.answers["FindCoordinator"] = lambda _, response, __: located(response, bird)
    return TransactionalClient(broker, protocol, "txn")


def located(response: Any, bird: Parrot) -> None:
    response.coordinators = [type(response).Coordinator(key="txn", host="127.0.0.1", port=bird.port)]


def test_a_loading_coordinator_is_asked_again(flock: list[Parrot]) -> None:
    loading = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]
    coordinator = Coordinator(init=loading)
    assert client_of(coordinator, flock).identity == (7, 0)
    assert coordinator.count("init") == 3


def test_a_transaction_that_is_being_completed_is_waited_for_by_who_is_patient(flock: list[Parrot]) -> None:
    busy = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NONE]
    coordinator = Coordinator(add=busy)
    client = client_of(coordinator, flock)
    assert client.add(TOPIC, patient=False) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert client.add(TOPIC) == ErrorCode.NONE
    assert coordinator.count("add") == 3


def test_a_broker_that_is_asked_instead_is_taken_at_its_word(flock: list[Parrot]) -> None:
    coordinator = Coordinator(end=[ErrorCode.NOT_COORDINATOR])
    client = client_of(coordinator, flock)
    client.asked = client.broker.address
    assert client.end(committed=True).error_code == ErrorCode.NOT_COORDINATOR
    assert coordinator.count("end") == 1


def test_a_classic_client_adds_once_a_transaction_and_its_sequences_go_on(flock: list[Parrot]) -> None:
    coordinator = Coordinator()
    client = client_of(coordinator, flock)
    for _ in range(2):
        assert client.write(TOPIC, b"a", b"b") == 40
        client.write(TOPIC, b"c")
        client.end(committed=True)
    assert coordinator.count("add") == 2
    assert coordinator.sequences() == [0, 2, 3, 5]
    assert client.identity == (7, 0)


def test_since_kip_890_nothing_is_added_and_each_end_gives_a_new_identity(flock: list[Parrot]) -> None:
    coordinator = Coordinator()
    client = client_of(coordinator, flock, IMPLICIT)
    for epoch in range(2):
        assert client.identity == (7, epoch)
        client.write(TOPIC, b"a")
        client.write(TOPIC, b"b")
        client.end(committed=False)
    assert coordinator.count("add") == 0
    assert coordinator.sequences() == [0, 1, 0, 1]


def test_a_refused_batch_does_not_move_the_sequence(flock: list[Parrot]) -> None:
    coordinator = Coordinator(produce=[ErrorCode.INVALID_TXN_STATE, ErrorCode.NONE])
    client = client_of(coordinator, flock, IMPLICIT)
    assert client.produce(TOPIC, b"a").error_code == ErrorCode.INVALID_TXN_STATE
    with pytest.raises(Failed, match="Produce in a transaction"):
        coordinator.codes["produce"] = [ErrorCode.INVALID_TXN_STATE]
        client.write(TOPIC, b"a")
    coordinator.codes["produce"] = [ErrorCode.NONE]
    client.write(TOPIC, b"a")
    assert coordinator.sequences() == [0, 0, 0]


def test_an_epoch_is_raised_one_by_one(flock: list[Parrot]) -> None:
    coordinator = Coordinator()
    client = client_of(coordinator, flock)
    raise_epoch(client, 250)
    assert client.identity == (7, 250)
    coordinator.epoch += 1
    with pytest.raises(Failed, match=r"after \(7, 250\) comes \(7, 252\)"):
        raise_epoch(client, 260)


def test_an_epoch_is_raised_in_any_order(flock: list[Parrot]) -> None:
    class Concurrent(Coordinator):
        def init(self, request: Any, response: Any, version: int) -> None:
            super().init(request, response, version)
            if self.epoch > 0:
                response.producer_epoch = self.epoch + 1 if self.epoch % 2 else self.epoch - 1

    client = client_of(Concurrent(), flock)
    raise_epoch(client, 250)
    assert client.identity == (7, 250)


# ---- reading


def written(offset: int, producer_id: int, *records: bytes) -> bytes:
    data = batch(*records, attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    return patched(data, base_offset=offset)


def ended(offset: int, producer_id: int, kind: int, key: bytes | None = None, value: bytes | None = None) -> bytes:
    value = struct.pack(">hi", 0, 3) if value is None else value
    record = Record(value, struct.pack(">hh", 0, kind) if key is None else key)
    data = batch(record, attributes=TRANSACTIONAL | CONTROL, producer_id=producer_id, producer_epoch=5)
    return patched(data, base_offset=offset)


def plain(offset: int, *records: bytes) -> bytes:
    return patched(batch(*records), base_offset=offset)


LOG = [
    written(0, 1, b"one"), written(1, 2, b"two"), plain(2, b"plain"), written(3, 1, b"one again"),
    ended(4, 1, ABORT), written(5, 1, b"one at last"), ended(6, 2, COMMIT), ended(7, 1, COMMIT),
]  # fmt: skip


def values_of(data: bytes, aborted: list[tuple[int, int]]) -> list[bytes | None]:
    return [record.value for record in counting_records(data, aborted)]


def test_a_transaction_is_left_out_up_to_its_abort_marker_and_not_beyond() -> None:
    assert values_of(b"".join(LOG), [(1, 0)]) == [b"two", b"plain", b"one at last"]


def test_what_is_not_listed_counts() -> None:
    assert values_of(b"".join(LOG), []) == [b"one", b"two", b"plain", b"one again", b"one at last"]


def test_a_transaction_that_began_before_the_piece_is_left_out() -> None:
    assert values_of(b"".join(LOG[2:4]), [(1, 0)]) == [b"plain"]


def test_a_transaction_that_begins_later_is_not_left_out_before() -> None:
    assert values_of(LOG[0] + LOG[3], [(1, 3)]) == [b"one"]


def test_plain_records_of_an_aborting_producer_count() -> None:
    own = patched(batch(b"own", producer_id=1, producer_epoch=0, base_sequence=0), base_offset=1)
    assert values_of(LOG[0] + own, [(1, 0)]) == [b"own"]


def test_a_marker_is_traced_in_full() -> None:
    (marker,) = markers(plain(0, b"x") + ended(1, 9, COMMIT))
    assert (marker.offset, marker.kind, marker.producer_id, marker.producer_epoch) == (1, COMMIT, 9, 5)
    assert (marker.key_version, marker.value_version, marker.coordinator_epoch) == (0, 0, 3)


def test_a_control_batch_of_another_form_fails() -> None:
    with pytest.raises(Failed, match="the control record at 4 has key 00 01"):
        marker_of(batches(ended(4, 1, COMMIT, key=b"\x00\x01"))[0])


def test_a_marker_without_a_value_is_one_for_clients() -> None:
    marker = marker_of(batches(ended(4, 1, ABORT, value=b""))[0])
    assert (marker.kind, marker.value_version) == (ABORT, None)


def test_pieces_are_fetched_from_the_offset_after_the_last() -> None:
    asked: list[tuple[int, int]] = []

    def fetch(request: Any, response: Any, version: int) -> None:
        (one,) = request.topics[0].partitions
        asked.append((one.fetch_offset, request.isolation_level))
        table = type(response)
        part = table.PartitionData(
            partition_index=0,
            records=LOG[one.fetch_offset] if one.fetch_offset < len(LOG) else b"",
            aborted_transactions=[table.AbortedTransaction(producer_id=1, first_offset=0)]
            if one.fetch_offset <= 4
            else [],
        )
        response.responses = [table.FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[part])]

    record = Requirement(id="TXV-99", level=MAY, sentence="A sentence.", source="a test", deadline_s=5)
    with (
        parrot({"Fetch": fetch}) as bird,
        Broker(Subject(addresses(bird.bootstrap), "4.3.1", bird.ranges()), record) as broker,
    ):
        assert committed_values(broker, TOPIC) == [b"two", b"plain", b"one at last"]
        assert asked == [(offset, 1) for offset in range(9)]
        assert committed_values(broker, TOPIC, offset=5) == [b"one at last"]


def test_a_producer_that_was_never_initialised_is_unknown(flock: list[Parrot]) -> None:
    client = client_of(Coordinator(), flock)
    stranger = TransactionalClient(client.broker, CLASSIC, "txn", initialised=False)
    assert stranger.identity == (NO_ID, NO_ID)
