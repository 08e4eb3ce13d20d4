"""A Kafka topic of history lines as a PySpark data source: `spark.read` or `spark.readStream.format("tidegauge_history")`.

Columns: partition, offset, key (`RUN/FILE`), line. Each partition of the topic is one of Spark's.

| option | read | readStream | what it is |
| --- | --- | --- | --- |
| `topic` | needed | needed | `kafka:HOST:PORT/TOPIC` |
| `group` | refused | needed | the consumer group that the query's progress is committed to |
| `max_records` | refused | optional | the most offsets that a micro-batch moves on by; without it, all that there are |

A read ends where each partition ended when the reading was planned. A streaming query with a checkpoint goes on from there,
and sets the group to it; without one it goes on from the group's committed offsets, or, where there are none, from the
beginning. The group is one without members, and one query's alone: two would read the same records.

The group stands behind what the query has done, never ahead of it. Spark calls `commit` for a micro-batch only when it has
planned the next one, so for the last one of a query never. But Spark asks for the next end when a micro-batch is done, and
names that one's end: it is committed then. So a query that ends by `trigger(availableNow=True)` leaves the group at its
end; one with `trigger(once=True)`, one that is stopped, or one that dies may leave it one micro-batch behind, which a query
without the checkpoint reads again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from linearizability.history.topic import (
    HistoryTopic,
    Stretch,
    TopicError,
    read_stretch,
    stretches,
    write_files,
)
from linearizability.history.topic_group import Offsets, TopicGroup

SCHEMA = "partition int, offset long, key string, line binary"


@dataclass
class StretchPartition(InputPartition):
    stretch: Stretch


class HistorySource(DataSource):
    """Errors of both readers: ValueError for options that are wrong, missing or unknown."""

    @classmethod
    def name(cls) -> str:
        return "tidegauge_history"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        self._refuse_others("topic")
        return HistoryReader(self._topic())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        self._refuse_others("topic", "group", "max_records")
        return HistoryStreamReader(TopicGroup(self._topic(), self._needed("group")), self._max_records())

    def _topic(self) -> HistoryTopic:
        return HistoryTopic.parse(self._needed("topic"))

    def _max_records(self) -> int | None:
        text = self.options.get("max_records")
        if text is None:
            return None
        if not text.isdecimal() or int(text) == 0:
            raise ValueError(f"option max_records: {text!r} is not a number of records, 1 or more")
        return int(text)

    def _needed(self, name: str) -> str:
        if not (value := self.options.get(name, "")):
            raise ValueError(f"option {name} is missing")
        return value

    def _refuse_others(self, *known: str) -> None:
        if unknown := sorted(set(self.options) - set(known)):
            raise ValueError(f"unknown option {', '.join(unknown)}: there are {', '.join(known)}")


class HistoryReader(DataSourceReader):
    def __init__(self, topic: HistoryTopic) -> None:
        self.topic = topic

    def partitions(self) -> list[InputPartition]:
        return [StretchPartition(stretch) for stretch in stretches(self.topic)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, str, bytes]]:
        return rows(self.topic, partition)


class HistoryStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of the topic, committed to the group. Spark's offsets are {partition: offset}, partitions as text.

    Spark has two of it for a query: one plans and commits, the other is pickled for the workers and only reads.
    """

    def __init__(self, group: TopicGroup, max_records: int | None) -> None:
        self.group = group
        self.max_records = max_records
        self._first: Offsets | None = None
        self._last: Offsets | None = None
        self._committed: Offsets | None = None

    def initialOffset(self) -> dict[str, int]:
        """The offsets at which the group continues. Spark asks twice for the first micro-batch, and must get the same answer."""
        if self._first is None:
            self._first = self.group.place()
        return to_spark(self._first)

    def prepareForTriggerAvailableNow(self) -> None:
        """Keep the end for the rest of the query."""
        self._last = self.group.ends()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self.max_records is None else ReadMaxRows(self.max_records)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The next micro-batch's end. All before `start` is done, so it is committed.

        That holds for the first start too: if commits are refused, the error comes before anything is read.
        """
        begin = from_spark(start)
        self._commit(begin)
        ends = self.group.ends() if self._last is None else begin | self._last
        for partition, offset in begin.items():
            if offset > ends.get(partition, -1):
                raise TopicError(
                    f"{self.group}: the query stands at offset {offset} of partition {partition}, which ends at "
                    f"{ends.get(partition)}: some records are gone, or the topic is another"
                )
        whole = self._begins(begin, ends)
        return to_spark(limited(whole, ends, limit.max_rows) if isinstance(limit, ReadMaxRows) else ends)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """The offsets between; none of partitions without new records."""
        ends = from_spark(end)
        begins = self._begins(from_spark(start), ends)
        found = [Stretch(partition, begins[partition], ends[partition]) for partition in ends]
        return [StretchPartition(stretch) for stretch in found if stretch.start < stretch.end]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, str, bytes]]:
        return rows(self.group.topic, partition)

    def commit(self, end: dict[str, int]) -> None:
        self._commit(from_spark(end))

    def _begins(self, start: Offsets, end: Offsets) -> Offsets:
        """The start, and the beginning of each partition that was added to the topic since."""
        return start if end.keys() <= start.keys() else self.group.starts() | start

    def _commit(self, offsets: Offsets) -> None:
        if offsets != self._committed:
            self.group.commit(offsets)
            self._committed = offsets


def limited(begins: Offsets, ends: Offsets, max_records: int) -> Offsets:
    """Ends that are at most so many offsets on, shared out evenly; what one partition does not need goes to the others."""
    reached: Offsets = {}
    for partition in sorted(ends, key=lambda each: ends[each] - begins[each]):
        share = max_records // (len(ends) - len(reached))
        reached[partition] = min(ends[partition], begins[partition] + share)
        max_records -= reached[partition] - begins[partition]
    return reached


def to_spark(offsets: Offsets) -> dict[str, int]:
    """In the order of partitions, for Spark compares the text."""
    return {str(partition): offsets[partition] for partition in sorted(offsets)}


def from_spark(offsets: dict[str, int]) -> Offsets:
    return {int(partition): offset for partition, offset in offsets.items()}


def rows(topic: HistoryTopic, partition: InputPartition) -> Iterator[tuple[int, int, str, bytes]]:
    assert isinstance(partition, StretchPartition)
    for offset, key, line in read_stretch(topic, partition.stretch):
        yield partition.stretch.partition, offset, key, line


def files_of_topic(spark: SparkSession, topic: HistoryTopic, folder: Path) -> list[Path]:
    """The topic's histories as native files, written by Spark's workers, which all must see the folder; returns runs' folders.

    No worker holds more than a batch of lines.
    """
    spark.dataSource.register(HistorySource)
    target = folder.resolve()

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        records = (
            (offset, key, line)
            for batch in batches
            for offset, key, line in zip(
                *(batch.column(name).to_pylist() for name in ("offset", "key", "line")), strict=True
            )
        )
        homes = sorted(str(home) for home in write_files(records, target))
        yield pa.RecordBatch.from_arrays([pa.array(homes, pa.string())], ["folder"])

    lines = spark.read.format("tidegauge_history").option("topic", str(topic)).load()
    found = lines.mapInArrow(write, "folder string").distinct().toArrow()
    return sorted(Path(home) for home in found.column("folder").to_pylist())
