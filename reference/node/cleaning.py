"""The log cleaner's connection to this broker's settings and replicas."""

from __future__ import annotations

from collections.abc import Mapping

from reference.controller.configs import Configuration
from reference.protocol.primitives import FIRST_OFFSET, Offset, TopicName
from reference.replication.partition import Partition
from reference.storage.cleaner import Cleaner
from reference.storage.log_manager import LogManager

PREFIX = "log.cleaner."


class BrokersCleanerSettings:
    """The present values of the settings `log.cleaner.*`, which change while the broker runs (`CleanerSettings`)."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self.enable = configuration.broker(PREFIX + "enable") is True

    @property
    def backoff_ms(self) -> int:
        return self._configuration.integer(PREFIX + "backoff.ms")

    @property
    def dedupe_buffer_size(self) -> int:
        return self._configuration.integer(PREFIX + "dedupe.buffer.size")

    @property
    def io_buffer_load_factor(self) -> float:
        return self._number("io.buffer.load.factor")

    @property
    def io_max_bytes_per_second(self) -> float:
        return self._number("io.max.bytes.per.second")

    def _number(self, name: str) -> float:
        value = self._configuration.broker(PREFIX + name)
        assert isinstance(value, float | int)
        return float(value)


def set_up_cleaner(
    cleaner: Cleaner,
    configuration: Configuration,
    partitions: Mapping[tuple[TopicName, int], Partition],
    logs: LogManager,
) -> None:
    """Give the cleaner its settings, and the last stable offsets of this node's replicas.

    A log that moves to another directory is not compacted: the copy could keep records whose tombstone was removed before it
    was copied.
    """

    def stable_end(key: tuple[TopicName, int]) -> Offset:
        partition = partitions.get(key)
        return (
            FIRST_OFFSET if partition is None or logs.future_holder(key) is not None else partition.last_stable_offset()
        )

    cleaner.settings = BrokersCleanerSettings(configuration)
    cleaner.stable_end = stable_end
