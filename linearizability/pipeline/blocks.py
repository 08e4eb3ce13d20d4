"""The form of facts within Spark: blocks, the facts of one partition in one row group of a file, as compressed Arrow.

The JVM only moves bytes; nothing is turned into rows and back, which would cost more than all the rules together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from linearizability.history.facts import COLUMNS, KEY_COLUMNS
from linearizability.pipeline.local import coded, groups_of


class Key(NamedTuple):
    """A partition of a run."""

    run: str
    topic: str
    partition: int


@dataclass(frozen=True)
class RowGroup:
    """One row group of a store's file."""

    path: str
    number: int
    rows: int
    bounds: tuple[Key, Key] | None
    """The least and the greatest of each column of the key, where its statistics say them."""

    @property
    def key(self) -> Key | None:
        """The partition of all its facts, where its statistics say that it is one."""
        return self.bounds[0] if self.bounds is not None and self.bounds[0] == self.bounds[1] else None

    def may_hold(self, key: Key) -> bool:
        """Whether a fact of this partition may be in it, by its statistics."""
        if self.bounds is None:
            return True
        least, most = self.bounds
        is_named = least.run <= key.run <= most.run and least.topic <= key.topic <= most.topic
        return is_named and least.partition <= key.partition <= most.partition

    def read(self) -> pa.Table:
        file = pq.ParquetFile(self.path, read_dictionary=["run", "topic"], page_checksum_verification=True)
        return file.read_row_group(self.number)

    def keys(self) -> Counter[Key]:
        """The number of its facts by partition."""
        if self.key is not None:
            return Counter({self.key: self.rows})
        file = pq.ParquetFile(self.path, read_dictionary=["run", "topic"])
        keys = file.read_row_group(self.number, columns=list(KEY_COLUMNS))
        counted = keys.cast(_PLAIN_KEYS).group_by(list(KEY_COLUMNS)).aggregate([([], "count_all")]).to_pylist()
        return Counter({Key(*(row[name] for name in KEY_COLUMNS)): row["count_all"] for row in counted})


BLOCK_DDL = "run string, topic string, partition int, block binary"
_PLAIN_KEYS = pa.schema([("run", pa.string()), ("topic", pa.string()), ("partition", pa.int32())])


def row_groups(files: Iterable[Path]) -> list[RowGroup]:
    """All row groups of files of facts, by their footers alone."""
    groups = []
    for file in files:
        footer = pq.ParquetFile(file).metadata
        places = [footer.schema.names.index(name) for name in KEY_COLUMNS]
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            known = [group.column(place).statistics for place in places]
            bounds = None
            if all(each is not None and each.has_min_max for each in known):
                bounds = Key(*(each.min for each in known)), Key(*(each.max for each in known))
            groups.append(RowGroup(str(file), number, group.num_rows, bounds))
    return groups


def apart(groups: Sequence[RowGroup]) -> dict[Key, list[RowGroup]]:
    """The partitions all of whose facts are in row groups of their own, the largest first."""
    own: dict[Key, list[RowGroup]] = {}
    for group in groups:
        if group.key is not None:
            own.setdefault(group.key, []).append(group)
    mixed = [group for group in groups if group.key is None]
    chosen = {key: theirs for key, theirs in own.items() if not any(group.may_hold(key) for group in mixed)}
    return dict(sorted(chosen.items(), key=lambda item: -sum(group.rows for group in item[1])))


def by_partition(facts: pa.Table) -> Iterator[tuple[str, str, int, pa.Table]]:
    """A table's facts by run, topic and partition."""
    (runs, run), (topics, topic) = (coded(facts.column(name)) for name in ("run", "topic"))
    numbers = facts.column("partition").to_numpy().astype(np.int64) + 1
    width = int(numbers.max(initial=0)) + 1
    columns = facts.select(list(COLUMNS))
    for code, index in groups_of((run * len(topics) + topic) * width + numbers):
        which, number = divmod(code, width)
        names = runs[which // len(topics)], topics[which % len(topics)]
        yield *names, number - 1, columns if index is None else columns.take(index)


def block(item: tuple[str, str, int, pa.Table]) -> pa.RecordBatch:
    """One row of BLOCK_DDL."""
    run, topic, partition, facts = item
    columns = [[run], [topic], pa.array([partition], pa.int32()), pa.array([packed(facts)], pa.binary())]
    return pa.RecordBatch.from_arrays([pa.array(column) for column in columns], ["run", "topic", "partition", "block"])


def packed(facts: pa.Table) -> bytes:
    """Facts as one block."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, facts.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(facts.combine_chunks())
    return sink.getvalue().to_pybytes()


def unpacked(table: pa.Table) -> pa.Table:
    """The facts in all blocks of a partition."""
    return pa.concat_tables(pa.ipc.open_stream(block.as_buffer()).read_all() for block in table.column("block"))


def columns_of(facts: pa.Table) -> dict[str, npt.NDArray[Any]]:
    return {name: facts.column(name).to_numpy() for name in COLUMNS}
