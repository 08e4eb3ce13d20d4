"""The log cleaner as this broker's settings and replicas want it."""

from __future__ import annotations

from collections.abc import Mapping

from reference.controller.configs import Configuration
from reference.protocol.primitives import FIRST_OFFSET, Offset, TopicName
from reference.replication.partition import Partition
from reference.storage.cleaner import Cleaner, CleanerSettings
from reference.storage.log_manager import LogManager

PREFIX = "log.cleaner."


def cleaner_settings(configuration: Configuration) -> CleanerSettings:
    """The settings `log.cleaner.*`."""
    return CleanerSettings(
        enable=configuration.broker(PREFIX + "enable") is True,
        backoff_ms=configuration.integer(PREFIX + "backoff.ms"),
        dedupe_buffer_size=configuration.integer(PREFIX + "dedupe.buffer.size"),
        io_buffer_load_factor=_number(configuration, "io.buffer.load.factor"),
        io_max_bytes_per_second=_number(configuration, "io.max.bytes.per.second"),
    )


def _number(configuration: Configuration, name: str) -> float:
    value = configuration.broker(PREFIX + name)
    assert isinstance(value, float | int)
    return float(value)


def set_up_cleaner(
    cleaner: Cleaner,
    configuration: Configuration,
    partitions: Mapping[tuple[TopicName, int], Partition],
    logs: LogManager,
) -> None:
    """Give the cleaner its settings, and the last stable offsets of the replicas that this node has taken up.

    A log that moves is not compacted: its copy would keep what a tombstone deletes that is gone before it is copied.
    """

    def stable_end(key: tuple[TopicName, int]) -> Offset:
        partition = partitions.get(key)
        return (
            FIRST_OFFSET if partition is None or logs.future_holder(key) is not None else partition.last_stable_offset()
        )

    cleaner.settings = cleaner_settings(configuration)
    cleaner.stable_end = stable_end
