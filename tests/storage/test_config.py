"""The configuration that a log follows, from topic configs."""

from reference.protocol.records.compression import Codec
from reference.protocol.records.validate import ProduceRules
from reference.storage.config import LogConfig


def test_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert (config.segment_bytes, config.segment_ms, config.retention_ms) == (1 << 30, 604_800_000, 604_800_000)
    assert (config.retention_bytes, config.index_interval_bytes, config.segment_index_bytes) == (-1, 4096, 10 << 20)
    assert config.produce_rules == ProduceRules()
    assert config.deletes
    assert not config.compacts


def test_values_of_topic_configs() -> None:
    config = LogConfig.from_topic_config(
        {
            "cleanup.policy": "compact,delete",
            "compression.type": "zstd",
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": "500",
            "retention.ms": "-1",
            "min.cleanable.dirty.ratio": "0.25",
            "preallocate": "true",
            "min.insync.replicas": "2",
        }
    )
    assert config.compacts
    assert config.deletes
    assert (config.retention_ms, config.min_cleanable_dirty_ratio, config.preallocate) == (-1, 0.25, True)
    rules = config.produce_rules
    assert (rules.codec, rules.log_append_time, rules.compacted, rules.max_message_bytes) == (
        Codec.ZSTD,
        True,
        True,
        500,
    )
    assert LogConfig.from_topic_config({"compression.type": "uncompressed"}).produce_rules.codec is Codec.NONE


def test_other_values_keep_the_defaults_given() -> None:
    base = LogConfig(segment_bytes=77)
    assert LogConfig.from_topic_config({"retention.ms": "5"}, base) == LogConfig(segment_bytes=77, retention_ms=5)
