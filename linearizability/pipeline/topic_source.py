"""A Kafka topic of history lines as a PySpark data source: `spark.read.format("tidegauge_history")`.

Options: `topic` (`kafka:HOST:PORT/TOPIC`). Columns: partition, offset, key (`RUN/FILE`), line. Each partition of the topic is
one of Spark's, read up to the end that it had when the reading was planned.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from linearizability.history.topic import HistoryTopic, Stretch, read_stretch, stretches, write_files

SCHEMA = "partition int, offset long, key string, line binary"


@dataclass
class StretchPartition(InputPartition):
    stretch: Stretch


class HistorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "tidegauge_history"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return HistoryReader(HistoryTopic.parse(self.options["topic"]))


class HistoryReader(DataSourceReader):
    def __init__(self, topic: HistoryTopic) -> None:
        self.topic = topic

    def partitions(self) -> list[InputPartition]:
        return [StretchPartition(stretch) for stretch in stretches(self.topic)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int, int, str, bytes]]:
        assert isinstance(partition, StretchPartition)
        for offset, key, line in read_stretch(self.topic, partition.stretch):
            yield partition.stretch.partition, offset, key, line


def files_of_topic(spark: SparkSession, topic: HistoryTopic, folder: Path) -> list[Path]:
    """The topic's histories as native files, written by Spark's workers, who must all see the folder; gives the runs' folders.

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
