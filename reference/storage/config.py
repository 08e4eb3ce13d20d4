"""The part of a topic's configuration that its logs follow, as one value; names and defaults are Kafka 4's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

from reference.protocol.records.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Codec
from reference.protocol.records.validate import HOUR_MS, MAX_LONG, ProduceRules

MAX_INT = 2**31 - 1
DAY_MS = 24 * HOUR_MS

CODEC_OF_CONFIG: dict[str, Codec | None] = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
"""The values of `compression.type`; `producer` keeps the codec of each batch."""


@dataclass(frozen=True)
class LogConfig:
    """A topic's configuration: each field is the topic config of the same name with dots."""

    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = MAX_LONG
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1024 * 1024 * 1024
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS
    max_decompressed_message_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
    may_lack_offsets: bool = True
    """Not a topic config: whether compaction, now or before, may have removed offsets. False for the metadata log."""

    @classmethod
    def from_topic_config(cls, values: Mapping[str, str], defaults: LogConfig | None = None) -> LogConfig:
        """The configuration with these (already validated) values of topic configs; others keep their defaults.

        Configs that no log uses (min.insync.replicas, unclean.leader.election.enable ...) are ignored.
        """
        base = defaults or cls()
        known: dict[str, object] = {field.name: getattr(base, field.name) for field in fields(cls)}
        for name, text in values.items():
            label = name.replace(".", "_")
            if label in known:
                known[label] = _PARSERS[type(known[label])](text)
        return cls(**known)  # type: ignore[arg-type]

    @property
    def compacts(self) -> bool:
        """Whether cleanup.policy has `compact`: only the newest record of each key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether old segments are deleted by time and size."""
        return "delete" in self.cleanup_policy

    @cached_property
    def max_segment_ms(self) -> int:
        """The age of its records at which a segment is closed: at most max.compaction.lag.ms for compacted topics."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compacts else self.segment_ms

    @cached_property
    def produce_rules(self) -> ProduceRules:
        """The topic's rules for a producer's batch."""
        return ProduceRules(
            max_message_bytes=self.max_message_bytes,
            compacted=self.compacts,
            log_append_time=self.message_timestamp_type == "LogAppendTime",
            before_max_ms=self.message_timestamp_before_max_ms,
            after_max_ms=self.message_timestamp_after_max_ms,
            codec=CODEC_OF_CONFIG[self.compression_type],
            max_decompressed_bytes=self.max_decompressed_message_bytes,
        )


def _flag(text: str) -> bool:
    return text.strip().lower() == "true"


_PARSERS: dict[type, Callable[[str], object]] = {int: int, float: float, str: str, bool: _flag}
