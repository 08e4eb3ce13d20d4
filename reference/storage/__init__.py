"""One partition on disk, and all partitions of a data folder, in Kafka's layout.

    log                one partition: append and read; on top of `shortening` and `segment_list`
    shortening         truncation, the log's start, retention, and the swap that ends a compaction
    segment_list       the log's segments: opened, rolled, flushed, closed
    flushing           flushes whose wait another thread may do
    answers            results of a log's operations
    log_manager        the log directories of a node, and which of them has a partition
    log_directory      all partitions of one directory, checkpoints, clean shutdown
    copying            a copy of a log in another directory
    segment            a log file and its three indexes
    index_file         base of both indexes: entries of one width in a mapped file
    offset_index       `.index`, sparse, searched by halving
    time_index         `.timeindex`
    transaction_index  `.txnindex`, aborted transactions
    epoch_cache        `leader-epoch-checkpoint`: which leader epoch wrote which offsets
    producer_state     idempotent and transactional producers, `.snapshot`
    cleaner            compaction: the choice of the next log, the bytes per tick, the checkpoint
    cleaning           one compaction of one log, step by step
    cleanable          which part of a log may be compacted, and whether it is worth it
    offset_map         the keys of the dirty section, and which records are superseded
    batch_filter       which batches and records a compaction keeps; rewrites batches that lose records
    cleaned_transactions   aborted records and old markers, which a compaction may drop
    record_outline     positions of a batch's records in its bytes
    swaps              completes segment swaps that a crash interrupted
    recovery           opens a log's folder after a clean shutdown or a crash
    retention          which segments are due for deletion
    checkpoints        the small files of a data folder
    config             the topic configuration that a log follows
    disk               the interface of a disk; `posix_disk` and `simulated_disk` implement it
    errors             the exceptions

How a log is compacted (cleanup.policy=compact): the cleaner takes the log with the highest dirty ratio and reads the keys of
its dirty section into a map. Then it rewrites all segments up to the map's end, and merges small neighbours. It keeps the last
record of each key, and tombstones and markers for delete.retention.ms after the first compaction that reads them. It keeps the
header of an empty batch while that holds a producer's last sequence number. Offsets never change. Compaction runs in the node's
ticks, MAX_BYTES_PER_TICK in each, and stops when the log is truncated. A segment that is being written ends in `.cleaned`, a
complete and durable one in `.swap`: the next upkeep or the next start completes such a swap in any case. Compaction stays
below the last stable offset, the recovery point and the active segment. The recovery point is stored before, because recovery
treats a gap above it as lost records.

The rules of pure arithmetic have their own modules, each with a contract that CrossHair confirms: `index_search`,
`epoch_lookup`, `sequence_check`, `truncation_point`.
"""
