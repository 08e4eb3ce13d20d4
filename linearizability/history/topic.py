"""Native histories in a Kafka topic: each line of each file is one record, under the key `RUN/FILE`. So is the list of the files.

So a client on another machine leaves its history where the analysis finds it, and the lines of a file stay in order, for
records with one key are in one partition. A topic is named `kafka:HOST:PORT/TOPIC`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from linearizability.history.files import HistoryError, numbered_lines
from linearizability.history.native import NativeFile, history_files
from linearizability.history.recorder import LISTED

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError

PREFIX = "kafka:"
ANSWERS_WITHIN_S = 30.0
POLL_S = 1.0
BATCH = 1_000


class TopicError(Exception):
    """The topic cannot be read or written; the text says why."""


@dataclass(frozen=True, slots=True)
class HistoryTopic:
    """A topic's brokers and its name."""

    brokers: str
    name: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Errors: ValueError for a text that is not `kafka:HOST:PORT/TOPIC`."""
        brokers, _, name = text.removeprefix(PREFIX).partition("/")
        if not text.startswith(PREFIX) or ":" not in brokers or not name or "/" in name:
            raise ValueError(f"{text!r} is not kafka:HOST:PORT/TOPIC")
        return cls(brokers, name)

    def __str__(self) -> str:
        return f"{PREFIX}{self.brokers}/{self.name}"


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets of one partition; `end` is not included."""

    partition: int
    start: int
    end: int


def is_topic(path: object) -> bool:
    """Whether a path is the name of a topic."""
    return str(path).startswith(PREFIX)


def publish(folder: Path, topic: HistoryTopic) -> int:
    """Write a native history's files to the topic; returns the number of records. Errors: TopicError, HistoryError."""
    from confluent_kafka import KafkaException, Producer

    failures: list[str] = []
    producer = Producer(
        {"bootstrap.servers": topic.brokers, "acks": "all", "enable.idempotence": True, "compression.type": "lz4"}
    )
    files = history_files(folder)
    if not files:
        raise HistoryError(folder, 0, "no files of a native history")
    count = 0
    try:
        run = NativeFile(files[0]).summary.run or folder.name
        list_ = files[0].with_name(LISTED)
        for path in [*files, *([list_] if list_.exists() else [])]:
            name = path.name.removesuffix(".gz")
            key = f"{run if path == list_ else NativeFile(path).summary.run or folder.name}/{name}"
            for _, line, _ in numbered_lines(path):
                while True:
                    try:
                        producer.produce(topic.name, line, key.encode(), on_delivery=_collector(failures))
                        break
                    except BufferError:
                        producer.poll(POLL_S)
                count += 1
                producer.poll(0)
        left = producer.flush(ANSWERS_WITHIN_S)
    except KafkaException as error:
        raise TopicError(f"{topic}: {error.args[0].str()}") from error
    if failures or left:
        raise TopicError(
            f"{topic}: {left + len(failures)} of {count} lines were not written: {(failures or ['no answer'])[0]}"
        )
    return count


def _collector(failures: list[str]) -> Callable[[object, object], None]:
    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(str(error))

    return delivered


def stretches(topic: HistoryTopic) -> list[Stretch]:
    """The offsets of each partition's records now. Errors: TopicError."""
    from confluent_kafka import KafkaException, TopicPartition

    with closing(_consumer(topic)) as consumer:
        try:
            known = consumer.list_topics(topic.name, timeout=ANSWERS_WITHIN_S).topics[topic.name]
            if known.error is not None:
                raise TopicError(f"{topic}: {known.error.str()}")
            found = []
            for partition in sorted(known.partitions):
                where = TopicPartition(topic.name, partition)
                start, end = consumer.get_watermark_offsets(where, timeout=ANSWERS_WITHIN_S)
                found.append(Stretch(partition, start, end))
            return found
        except KafkaException as error:
            raise TopicError(f"{topic}: {error.args[0].str()}") from error


def read_stretch(topic: HistoryTopic, stretch: Stretch) -> Iterator[tuple[int, str, bytes]]:
    """Offset, key and line of each record. Errors: TopicError when the partition's end is not reached."""
    from confluent_kafka import TopicPartition

    position = stretch.start
    if position >= stretch.end:
        return
    with closing(_consumer(topic)) as consumer:
        consumer.assign([TopicPartition(topic.name, stretch.partition, position)])
        silent = 0.0
        while position < stretch.end:
            records = consumer.consume(BATCH, timeout=POLL_S)
            silent = 0.0 if records else silent + POLL_S
            if silent >= ANSWERS_WITHIN_S:
                raise TopicError(
                    f"{topic}: no record of partition {stretch.partition} arrives at offset {position} of {stretch.end}"
                )
            for record in records:
                if (error := record.error()) is not None:
                    position = _position_after(error, topic, position, consumer, stretch)
                    continue
                offset = record.offset()
                assert offset is not None
                position = offset + 1
                if offset >= stretch.end:
                    return
                yield offset, (record.key() or b"").decode(errors="replace"), bytes(record.value() or b"")


def _position_after(error: KafkaError, topic: HistoryTopic, position: int, consumer: Consumer, stretch: Stretch) -> int:
    """The consumer's position at the partition's end, which may lie behind offsets without records. Errors: TopicError."""
    from confluent_kafka import KafkaError, TopicPartition

    if error.code() != KafkaError._PARTITION_EOF:
        raise TopicError(f"{topic}: {error.str()}")
    (where,) = consumer.position([TopicPartition(topic.name, stretch.partition)])
    return max(position, where.offset)


def write_files(records: Iterable[tuple[int, str, bytes]], folder: Path) -> set[Path]:
    """Write lines to files, `folder/RUN/FILE`; returns the runs' folders."""
    files: dict[str, Path] = {}
    with _Open() as opened:
        for _, key, line in records:
            if key not in files:
                files[key] = folder / _inside(key)
            opened.write(files[key], line)
    return {path.parent for path in files.values()}


class _Open:
    """Files that are written to by turns, of which only so many are open."""

    LIMIT = 100

    def __init__(self) -> None:
        self._streams: dict[Path, IO[bytes]] = {}
        self._begun: set[Path] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def write(self, path: Path, line: bytes) -> None:
        stream = self._streams.get(path)
        if stream is None:
            if len(self._streams) >= self.LIMIT:
                self._close()
            path.parent.mkdir(parents=True, exist_ok=True)
            stream = self._streams[path] = path.open("ab" if path in self._begun else "wb")
            self._begun.add(path)
        stream.write(line)

    def _close(self) -> None:
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()


def _inside(key: str) -> Path:
    """A key as a path that stays in its folder. A record that is no line of a history becomes a file that is none."""
    run, _, name = key.rpartition("/")
    clean = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in run).strip(".") or "run"
    file = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in name)
    known = name == LISTED or (file.startswith("history-") and file.endswith(".jsonl"))
    return Path(clean) / (file if known else f"history-{file}.jsonl")


def _consumer(topic: HistoryTopic) -> Consumer:
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": topic.brokers,
            "group.id": "tidegauge-history",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "log_level": 2,  # one error says that a broker is not there
        }
    )
