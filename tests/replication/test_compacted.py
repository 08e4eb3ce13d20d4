"""Replicas of a compacted partition: the gaps in their offsets differ, and their records still agree."""

from hypothesis import given, settings
from hypothesis import strategies as st

from reference.protocol.primitives import Offset
from reference.protocol.records.batch import build, read_batches, records_of
from reference.protocol.records.record import Record
from reference.replication.partition import Partition
from reference.storage.config import LogConfig
from reference.storage.log import Log
from reference.storage.simulated_disk import SimulatedDisk
from tests.replication.replicas import NOW, bytes_of, fetch, follower, leader, open_log, replica, state
from tests.storage.test_cleaning import compact

COMPACT = LogConfig(cleanup_policy="compact", segment_bytes=400, segment_index_bytes=4096, index_interval_bytes=0)
PAIR = (1, 2)


def put(leading: Partition, key: int, value: bytes) -> None:
    leading.produce(build([Record(Offset(0), NOW, b"%d" % key, value)]), NOW, required_acks=1)


def copy_all(leading: Partition, following: Partition, limit: int = 200) -> int:
    """Fetch until the follower has the leader's log and high watermark; return the number of its truncations."""
    cuts = 0
    for _ in range(limit):
        at = following.log.log_end_offset
        read = fetch(leading, following.node, at, last_epoch=following.last_fetched_epoch, max_bytes=150)
        if read.diverging is not None:
            following.require_follower_of(leading.node).truncate(*read.diverging)
            cuts += 1
            continue
        following.require_follower_of(leading.node).append_fetched(
            at, bytes_of(read.records), read.high_watermark, Offset(0), NOW
        )
        done = following.log.log_end_offset == leading.log.log_end_offset
        if done and following.high_watermark == leading.high_watermark == leading.log.log_end_offset:
            return cuts
    raise AssertionError("the follower does not catch up")


def compact_committed(partition: Partition) -> None:
    """Compact all closed segments below the high watermark."""
    log = partition.log
    end = min(partition.high_watermark, log.log_end_offset)
    if end == log.log_end_offset:
        compact(log)


def batches(log: Log) -> dict[int, tuple[int, int, list[tuple[int, bytes, bytes | None]]]]:
    """Base offset -> next offset, epoch, and the records' offsets, keys and values."""
    at, found = log.log_start_offset, {}
    while at < log.log_end_offset:
        for batch in read_batches(bytes_of(log.read(at, 1 << 20).records)):
            rows = [
                (one.offset, bytes(one.key or b""), one.value and bytes(one.value)) for one in records_of(batch.data)
            ]
            at = batch.header.next_offset
            found[batch.header.base_offset] = at, batch.header.leader_epoch, rows
    return found


def latest(log: Log) -> dict[bytes, tuple[int, bytes | None]]:
    return {key: (offset, value) for _, _, rows in batches(log).values() for offset, key, value in rows}


def test_a_new_follower_copies_the_gaps_and_ends_where_the_leader_ends() -> None:
    leading = leader(isr=(1,), log=open_log(config=COMPACT))
    for number in range(30):
        put(leading, number % 3, b"v%d" % number)
    compact_committed(leading)
    assert leading.log.active_base == 30
    assert len(batches(leading.log)) == 3
    new = follower(log=open_log(config=COMPACT))
    copy_all(leading, new)
    assert batches(new.log) == batches(leading.log)
    assert new.log.log_end_offset == 30


def test_a_follower_within_a_compacted_range_fetches_the_remaining_records() -> None:
    leading = leader(isr=(1,), log=open_log(config=COMPACT))
    behind = follower(log=open_log(config=COMPACT))
    for number in range(5):
        put(leading, 0, b"v%d" % number)
    copy_all(leading, behind)
    for number in range(5, 30):
        put(leading, 0, b"v%d" % number)
    compact_committed(leading)
    copy_all(leading, behind)
    assert latest(behind.log) == latest(leading.log) == {b"0": (29, b"v29")}
    assert [*batches(behind.log)] == [0, 1, 2, 3, 4, 29]


def test_an_epoch_of_which_nothing_is_left_does_not_part_the_logs() -> None:
    """The follower never learns of epoch 6; the leader's end offset of epoch 5 is one that the follower lacks."""
    leading = leader(isr=(1,), log=open_log(config=COMPACT))
    put(leading, 0, b"of epoch 5")
    put(leading, 9, b"stays")
    for epoch in (6, 7):
        leading.take_up(state(1, epoch, 10 + epoch, isr=(1,)), NOW)
        for number in range(3):
            put(leading, 0, b"%d of epoch %d" % (number, epoch))
    compact_committed(leading)
    assert [epoch for _, epoch, _ in batches(leading.log).values()] == [5, 7]
    new = follower(log=open_log(config=COMPACT))
    new.take_up(state(1, 7, 17, isr=(1,)), NOW)
    assert copy_all(leading, new) == 0
    assert batches(new.log) == batches(leading.log)
    # Now the follower leads, and the leader of before follows it with its longer memory.
    leading.take_up(state(2, 8, 30, isr=PAIR), NOW)
    new.take_up(state(2, 8, 30, isr=PAIR), NOW)
    put(new, 1, b"of epoch 8")
    copy_all(new, leading)
    assert latest(leading.log) == latest(new.log)
    assert leading.log.log_end_offset == new.log.log_end_offset == 9


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3)),
        st.tuples(st.just("copy"), st.just(0)),
        st.tuples(st.just("compact"), st.sampled_from([0, 1])),
        st.tuples(st.just("lead"), st.sampled_from([0, 1])),
        st.tuples(st.just("restart"), st.sampled_from([0, 1])),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_two_replicas_agree_however_often_they_compact_and_change_places(steps: list[tuple[str, int]]) -> None:
    """The last committed record of each key is kept on both, at its offset or replaced by a later one."""
    replicas = [replica(node, log=open_log(SimulatedDisk(), COMPACT)) for node in PAIR]
    epoch, leads = 5, 0

    def all_follow() -> None:
        for each in (replicas[leads], replicas[1 - leads]):
            each.take_up(state(PAIR[leads], epoch, epoch + 10, isr=PAIR, replicas=PAIR), NOW)

    all_follow()
    committed: dict[bytes, tuple[int, bytes | None]] = {}
    for number, (step, which) in enumerate(steps):
        if step == "put":
            put(replicas[leads], which, b"%d" % number)
        elif step == "copy":
            copy_all(replicas[leads], replicas[1 - leads])
            committed = latest(replicas[leads].log)
            assert latest(replicas[1 - leads].log) == committed
        elif step == "compact":
            compact_committed(replicas[which])
        elif step == "lead":
            leads, epoch = which, epoch + 1
            all_follow()
        else:
            old = replicas[which]
            disk = old.log._disk
            old.log.flush()
            again = replica(old.node, log=open_log(disk, COMPACT, recovery_point=old.log.recovery_point))
            again.restart(old.high_watermark)
            replicas[which], epoch = again, epoch + 1
            all_follow()
    copy_all(replicas[leads], replicas[1 - leads])
    one, other = (each.log for each in replicas)
    assert latest(one) == latest(other)
    for key, (offset, _) in committed.items():
        assert latest(one)[key][0] >= offset
    shared = batches(one).keys() & batches(other).keys()
    for base in shared:
        assert batches(one)[base][:2] == batches(other)[base][:2]
        assert one.epoch_at(Offset(base)) == other.epoch_at(Offset(base)) == batches(one)[base][1]
