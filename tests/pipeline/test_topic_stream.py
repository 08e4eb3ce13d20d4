"""Spark as a consumer with a group: micro-batches of a topic, and offsets that other clients see.

What the group has committed is asked by kafka-python and by Kafka's own tool; the source itself uses confluent-kafka.
"""

from __future__ import annotations

import itertools
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kafka import KafkaConsumer
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from linearizability.history.topic import HistoryTopic, TopicError
from linearizability.history.topic_group import TopicGroup
from linearizability.pipeline.spark_session import session
from linearizability.pipeline.topic_source import HistorySource, HistoryStreamReader, limited
from linearizability.targets import Target, open_target
from linearizability.workload.cluster import create_topic
from tests.tools.jvm import shared_tools

pytestmark = pytest.mark.xdist_group("spark")
PARTITIONS = 3
PATIENCE_S = 300
LATE = "Python worker failed to connect back"
"""Spark's error for a Python process that has not started within ten seconds, a limit that no setting changes."""
SCHEMA = StructType()
"""The columns that Spark passes to the source, which does not need them."""
STARTS = 12
"""How often a query is started on a machine that is too busy for this limit."""
NONE_KEPT = -1
_numbers = itertools.count(1)


REFERENCE = "reference:1"
KAFKA = pytest.param("kafka:4.3.1", marks=[pytest.mark.kafka, pytest.mark.sampled(days=6, together=True)])
BESIDE_KAFKA = pytest.mark.parametrize("broker", [REFERENCE, KAFKA], indirect=True)


@pytest.fixture(scope="module", params=[REFERENCE])
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with open_target(request.param, folder=tmp_path_factory.mktemp("broker")) as target:
        yield target


@dataclass
class Followed:
    """A topic, a group that follows it, and what has been written so far."""

    broker: Target
    name: str
    written: int = 0

    @property
    def group(self) -> str:
        return f"group-{self.name}"

    @property
    def topic(self) -> HistoryTopic:
        return HistoryTopic(self.broker.bootstrap, self.name)

    def write(self, count: int, **settings: str) -> Counter[bytes]:
        """That many new records over all partitions."""
        lines = [b"line %d" % number for number in range(self.written, self.written + count)]
        self.written += count
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "acks": "all", **settings})
        if settings:
            producer.init_transactions(PATIENCE_S)
            producer.begin_transaction()
        for number, line in enumerate(lines):
            producer.produce(self.name, line, b"run/file", partition=number % PARTITIONS)
        if settings:
            producer.commit_transaction(PATIENCE_S)
        assert producer.flush(PATIENCE_S) == 0
        return Counter(lines)

    def ends(self) -> dict[int, int]:
        consumer = KafkaConsumer(bootstrap_servers=self.broker.bootstrap)
        try:
            places = [TopicPartition(self.name, partition) for partition in range(PARTITIONS)]
            return {place.partition: end for place, end in consumer.end_offsets(places).items()}
        finally:
            consumer.close()

    def committed(self) -> dict[int, int]:
        kept = self._asked(lambda admin: admin.list_group_offsets(self.group))[self.group]
        return {place.partition: each.offset for place, each in kept.items() if each.offset != NONE_KEPT}

    def set_back(self, offsets: Mapping[int, int]) -> None:
        places = {
            TopicPartition(self.name, partition): OffsetAndMetadata(offset, "", -1)
            for partition, offset in offsets.items()
        }
        self._asked(lambda admin: admin.alter_group_offsets(self.group, places))

    def _asked(self, ask: Callable[[Any], Any]) -> Any:
        """The answer, once the group's coordinator is ready: kafka-python's admin does not wait for it.

        pyright's declarations of KafkaAdminClient are of kafka-python 2, which has no such methods.
        """
        until = time.monotonic() + PATIENCE_S
        admin = KafkaAdminClient(bootstrap_servers=self.broker.bootstrap)
        try:
            while True:
                try:
                    return ask(admin)
                except KafkaError as error:
                    if not error.retriable or time.monotonic() > until:
                        raise
                    time.sleep(0.2)
        finally:
            admin.close()

    def options(self, **others: object) -> dict[str, str]:
        return {"topic": str(self.topic), "group": self.group, **{name: str(value) for name, value in others.items()}}

    def reader(self, **others: object) -> HistoryStreamReader:
        """The stream reader without Spark, as it comes out of a pickle."""
        options: Any = self.options(**others)
        reader = pickle.loads(pickle.dumps(HistorySource(options).streamReader(SCHEMA)))
        assert isinstance(reader, HistoryStreamReader)
        return reader


@pytest.fixture
def followed(broker: Target) -> Followed:
    name = f"lines-{next(_numbers)}"
    create_topic(broker.nodes, name, partitions=PARTITIONS, replication_factor=1, configs={})
    return Followed(broker, name)


class Queries:
    """Streaming queries on a topic, which write what they read to Parquet files in a folder of their own."""

    def __init__(self, followed: Followed, folder: Path) -> None:
        self.followed = followed
        self.folder = folder
        self.spark = session("local[2]")
        self.spark.dataSource.register(HistorySource)

    def start(
        self, name: str, checkpoint: str = "", trigger: Mapping[str, Any] | None = None, **options: object
    ) -> Any:
        source = self.spark.readStream.format("tidegauge_history").options(**self.followed.options(**options)).load()
        sink = source.writeStream.format("parquet").option("path", str(self.folder / name))
        sink = sink.option("checkpointLocation", str(self.folder / f"checkpoint-{checkpoint or name}"))
        return sink.trigger(**(trigger or {"availableNow": True})).start()

    def finish(self, name: str, checkpoint: str = "", **options: object) -> Counter[bytes]:
        """Run a query over all present records; the lines that it read."""
        for attempt in range(1, STARTS + 1):
            query = self.start(name, checkpoint, None, **options)
            try:
                assert query.awaitTermination(PATIENCE_S)
                break
            except StreamingQueryException as error:
                if attempt == STARTS or LATE not in str(error):
                    raise
            finally:
                query.stop()
        return self.came(name)

    def came(self, name: str) -> Counter[bytes]:
        rows = self.spark.read.schema(HistorySource({}).schema()).parquet(str(self.folder / name)).collect()
        assert {row["key"] for row in rows} <= {"run/file"}
        return Counter(bytes(row["line"]) for row in rows)


@pytest.fixture
def queries(followed: Followed, tmp_path: Path) -> Queries:
    return Queries(followed, tmp_path)


@pytest.mark.spark
@BESIDE_KAFKA
def test_a_query_without_the_checkpoint_goes_on_where_the_group_is(followed: Followed, queries: Queries) -> None:
    first = followed.write(100)
    assert queries.finish("first", max_records=40) == first
    assert followed.committed() == followed.ends() == {0: 34, 1: 33, 2: 33}
    second = followed.write(20)
    assert queries.finish("second") == second
    assert followed.committed() == followed.ends() == {0: 41, 1: 40, 2: 39}
    assert queries.finish("third") == Counter()
    assert followed.committed() == followed.ends()


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_a_checkpoint_comes_before_the_group(followed: Followed, queries: Queries) -> None:
    """The group is set to where the checkpoint is, even when there is nothing new."""
    first = followed.write(30)
    assert queries.finish("out", "kept") == first
    followed.set_back({0: 0, 1: 3})
    assert followed.committed() == {0: 0, 1: 3, 2: 10}
    assert queries.finish("out", "kept") == first
    assert followed.committed() == followed.ends()
    assert queries.finish("out", "kept") == first
    second = followed.write(10)
    assert queries.finish("out", "kept") == first + second
    assert followed.committed() == followed.ends()


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_the_group_follows_a_query_that_runs(followed: Followed, queries: Queries) -> None:
    trigger = {"processingTime": "100 milliseconds"}
    query = queries.start("out", trigger=trigger)
    try:
        written: Counter[bytes] = Counter()
        for count in (9, 1, 30):
            written += followed.write(count)
            until = time.monotonic() + PATIENCE_S
            while followed.committed() != followed.ends():
                if (error := query.exception()) is not None:
                    assert LATE in str(error), error
                    query = queries.start("out", trigger=trigger)
                assert time.monotonic() < until
                time.sleep(0.2)
            assert queries.came("out") == written
    finally:
        query.stop()


@pytest.mark.spark
@pytest.mark.sampled(days=5)
@pytest.mark.java
def test_kafkas_own_tool_sees_the_lag(followed: Followed, queries: Queries) -> None:
    followed.write(30, **{"transactional.id": followed.name})
    queries.finish("out")
    followed.write(2)
    reported = shared_tools().run(
        "kafka-consumer-groups",
        "--bootstrap-server",
        followed.broker.bootstrap,
        "--describe",
        "--group",
        followed.group,
    )
    lines = [
        line.split() for line in reported.well().splitlines() if line.split()[:2] == [followed.group, followed.name]
    ]
    assert sorted(line[2:6] for line in lines) == [
        ["0", "11", "12", "1"],
        ["1", "11", "12", "1"],
        ["2", "11", "11", "0"],
    ]


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_a_group_with_members_is_refused_before_anything_is_read(followed: Followed, queries: Queries) -> None:
    followed.write(3)
    member = Consumer({"bootstrap.servers": followed.broker.bootstrap, "group.id": followed.group})
    try:
        member.subscribe([followed.name])
        until = time.monotonic() + PATIENCE_S
        while not member.assignment():
            assert time.monotonic() < until
            member.poll(0.2)
        with pytest.raises(StreamingQueryException, match="only a group without members"):
            queries.finish("out")
        assert not queries.came("out")
    finally:
        member.close()


@BESIDE_KAFKA
def test_the_first_offset_is_kept(followed: Followed) -> None:
    """Spark asks for it twice; what is committed in between by another must not move it."""
    followed.write(9)
    followed.set_back({1: 2})
    reader = followed.reader()
    assert reader.initialOffset() == {"0": 0, "1": 2, "2": 0}
    followed.set_back({1: 3})
    assert reader.initialOffset() == {"0": 0, "1": 2, "2": 0}


@BESIDE_KAFKA
def test_what_is_done_is_committed_and_no_more(followed: Followed) -> None:
    followed.write(9)
    reader = followed.reader()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(5))
    assert sum(end.values()) == 5
    assert sum(followed.committed().values()) == 0
    reader.commit(end)
    assert followed.committed() == {int(partition): offset for partition, offset in end.items()}
    last = reader.latestOffset(end, ReadAllAvailable())
    assert last == {"0": 3, "1": 3, "2": 3} and sum(followed.committed().values()) == 5
    assert reader.latestOffset(last, ReadAllAvailable()) == last
    assert followed.committed() == followed.ends()


@BESIDE_KAFKA
def test_what_comes_later_is_left_to_the_next_query(followed: Followed) -> None:
    followed.write(9)
    reader = followed.reader()
    reader.prepareForTriggerAvailableNow()
    followed.write(9)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert end == reader.latestOffset(end, ReadAllAvailable()) == {"0": 3, "1": 3, "2": 3}


@BESIDE_KAFKA
def test_an_open_transaction_is_not_passed(followed: Followed) -> None:
    followed.write(9)
    producer = Producer({"bootstrap.servers": followed.broker.bootstrap, "transactional.id": followed.name})
    producer.init_transactions(PATIENCE_S)
    producer.begin_transaction()
    producer.produce(followed.name, b"open", partition=1)
    producer.flush(PATIENCE_S)
    followed.write(9)
    reader = followed.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == {"0": 6, "1": 3, "2": 6}
    producer.abort_transaction(PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while (later := reader.latestOffset(end, ReadAllAvailable())) == end:
        assert time.monotonic() < until
    assert later == {"0": 6, "1": 8, "2": 6}
    (partition,) = reader.partitions(end, later)
    assert [offset for _, offset, _, _ in reader.read(partition)] == [4, 5, 6]


@BESIDE_KAFKA
def test_new_partitions_are_read_from_their_beginning(followed: Followed) -> None:
    followed.write(3)
    reader = followed.reader()
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    admin = AdminClient({"bootstrap.servers": followed.broker.bootstrap})
    admin.create_partitions([NewPartitions(followed.name, PARTITIONS + 1)])[followed.name].result(PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while "3" not in reader.latestOffset(start, ReadAllAvailable()):
        assert time.monotonic() < until
    producer = Producer({"bootstrap.servers": followed.broker.bootstrap})
    producer.produce(followed.name, b"new", b"run/file", partition=PARTITIONS)
    assert producer.flush(PATIENCE_S) == 0
    end = reader.latestOffset(start, ReadAllAvailable())
    assert end == start | {"3": 1}
    (partition,) = reader.partitions(start, end)
    assert list(reader.read(partition)) == [(3, 0, "run/file", b"new")]


@BESIDE_KAFKA
def test_offsets_outside_of_the_records_are_refused(followed: Followed) -> None:
    followed.write(9)
    followed.set_back({2: 4})
    with pytest.raises(TopicError, match=r"committed offset 4 of partition 2 is not within the records, 0 to 3"):
        followed.reader().initialOffset()
    with pytest.raises(TopicError, match=r"at offset 7 of partition 1, which ends at 3"):
        followed.reader().latestOffset({"0": 0, "1": 7, "2": 0}, ReadAllAvailable())


@BESIDE_KAFKA
def test_a_topic_that_is_not_there_is_named(broker: Target) -> None:
    with pytest.raises(TopicError, match=r"/nowhere, group .*Unknown topic or partition"):
        Followed(broker, "nowhere").reader().initialOffset()


@pytest.mark.spark
@pytest.mark.sampled(days=5)
def test_wrong_options_end_the_query(followed: Followed, queries: Queries) -> None:
    with pytest.raises(StreamingQueryException, match="max_records: '0' is not a number of records"):
        queries.finish("out", max_records=0)


TOPIC = "kafka:127.0.0.1:1/t"


def test_a_broker_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linearizability.history.topic_group.ANSWERS_WITHIN_S", 1)
    with pytest.raises(TopicError, match="group g: its topic cannot be found"):
        TopicGroup(HistoryTopic.parse(TOPIC), "g").place()


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"group": "g"}, "option topic is missing"),
        ({"topic": TOPIC}, "option group is missing"),
        ({"topic": TOPIC, "group": ""}, "option group is missing"),
        ({"topic": "127.0.0.1:1/t", "group": "g"}, "is not kafka:HOST:PORT/TOPIC"),
        ({"topic": TOPIC, "group": "g", "max_records": "-1"}, "'-1' is not a number of records"),
        ({"topic": TOPIC, "group": "g", "max_records": "many"}, "'many' is not a number of records"),
        ({"topic": TOPIC, "group": "g", "path": "/"}, "unknown option path: there are topic, group, max_records"),
    ],
)
def test_wrong_options_are_named(options: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        HistorySource(options).streamReader(SCHEMA)


@pytest.mark.parametrize(
    ("options", "error"),
    [({}, "option topic is missing"), ({"topic": TOPIC, "group": "g"}, "unknown option group: there are topic")],
)
def test_a_read_takes_no_group(options: Any, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        HistorySource(options).reader(SCHEMA)


@pytest.mark.parametrize(
    ("ends", "max_records", "reached"),
    [
        ({0: 10, 1: 10}, 4, {0: 2, 1: 2}),
        ({0: 1, 1: 10, 2: 0}, 6, {0: 1, 1: 5, 2: 0}),
        ({0: 10, 1: 11}, 1, {0: 0, 1: 1}),
        ({0: 10, 1: 10}, 100, {0: 10, 1: 10}),
    ],
)
def test_a_limit_is_shared_out(ends: dict[int, int], max_records: int, reached: dict[int, int]) -> None:
    assert limited(dict.fromkeys(ends, 0), ends, max_records) == reached
