"""Which partition a record goes to, and what order that keeps."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from linearizability.workload.partitioning.murmur2 import murmur2, partition_of
from linearizability.workload.partitioning.partitioners import (
    Outgoing,
    RoundRobin,
    Sticky,
    Topic,
    by_key,
)
from tests.workload.kafka_decides import kafka_decides

ORDERS = Topic("orders", 6)


class TestKeyHash:
    @pytest.mark.java
    def test_kafkas_producer_chooses_alike(self) -> None:
        chance = random.Random(1)
        asked = [(chance.randbytes(length), chance.randint(1, 1000)) for length in [*range(64)] * 4]
        answers = kafka_decides({"key": key.hex(), "partitions": partitions} for key, partitions in asked)
        for (key, partitions), (digest, partition) in zip(asked, answers, strict=True):
            assert (murmur2(key), partition_of(key, partitions)) == (digest & 0xFFFFFFFF, partition)

    def test_more_partitions_move_keys(self) -> None:
        """So the records of such a key lie in two partitions, and their order is lost."""
        keys = [f"customer-{number}".encode() for number in range(600)]
        moved = [key for key in keys if partition_of(key, 4) != partition_of(key, 6)]
        assert len(keys) / 2 < len(moved) < len(keys)

    def test_an_empty_key_is_a_key(self) -> None:
        assert by_key(Outgoing(b""), ORDERS) == partition_of(b"", 6)


class TestRoundRobin:
    @drawn(partitions=st.integers(1, 9), records=st.integers(0, 40))
    def test_no_partition_gets_two_more_than_another(self, partitions: int, records: int) -> None:
        choose = RoundRobin()
        had = Counter(choose(Outgoing(b"the same key"), Topic("orders", partitions)) for _ in range(records))
        numbers = [had[partition] for partition in range(partitions)]
        assert max(numbers) - min(numbers) <= 1

    def test_each_topic_has_its_own_turn(self) -> None:
        choose = RoundRobin()
        other = Topic("payments", 6)
        assert [choose(Outgoing(), topic) for topic in (ORDERS, other, ORDERS, other)] == [0, 0, 1, 1]


class TestSticky:
    @drawn(sizes=st.lists(st.integers(1, 300), max_size=60), seed=st.integers(0, 1000))
    def test_it_changes_only_after_a_batchs_worth_of_bytes(self, sizes: list[int], seed: int) -> None:
        choose = Sticky(200, random.Random(seed))
        had, now = 0, None
        for size in sizes:
            partition = choose(Outgoing(size_bytes=size), ORDERS)
            if partition != now:
                assert now is None or had >= 200
                had, now = 0, partition
            had += size

    def test_all_partitions_get_their_share(self) -> None:
        choose = Sticky(500, random.Random(1))
        had = Counter(choose(Outgoing(size_bytes=100), ORDERS) for _ in range(30_000))
        assert set(had) == set(range(6))
        assert max(had.values()) < 1.25 * min(had.values())

    def test_one_seed_one_choice(self) -> None:
        def choices() -> list[int]:
            choose = Sticky(10, random.Random(7))
            return [choose(Outgoing(size_bytes=10), ORDERS) for _ in range(30)]

        assert choices() == choices()

    def test_a_batch_of_nothing(self) -> None:
        with pytest.raises(ValueError, match="batch_size_bytes is 0"):
            Sticky(0, random.Random(1))
