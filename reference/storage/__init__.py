"""One partition on disk, and all partitions of a data folder, in Kafka's layout.

    log                one partition: append and read; on top of `shortening` and `segment_list`
    shortening         truncation, the log's start, retention, and the swap that ends a compaction
    segment_list       the log's segments: opened, rolled, flushed, closed
    flushing           closed segments on their way to the disk
    answers            what a log answers
    log_manager        the log directories of a node, and which of them has a partition
    log_directory      all partitions of one directory, checkpoints, clean shutdown
    copying            a copy of a log in another directory
    segment            a log file and its three indexes
    index_file         what both indexes share: entries of one width in a file that is mapped
    offset_index       `.index`, sparse, searched by halving
    time_index         `.timeindex`
    transaction_index  `.txnindex`, aborted transactions
    epoch_cache        `leader-epoch-checkpoint`: which leader epoch wrote which offsets
    producer_state     idempotent and transactional producers, `.snapshot`
    cleaner            compaction: which log is next, how much in a tick, how far each has come
    cleaning           one compaction of one log, step by step
    cleanable          which part of a log may be compacted, and whether it is worth it
    offset_map         where each key was written last
    batch_filter       which batches and records stay, and what becomes of a batch that loses some
    cleaned_transactions   whose records were aborted, and whose marker is needed no more
    record_outline     where a batch's records lie in its bytes
    swaps              compactions whose last step a crash cut in two
    recovery           what a start makes of the files that the last end left
    retention          which segments are due
    checkpoints        the small files of a data folder
    config             the topic configuration that a log follows
    disk               what all of this asks of a disk; POSIX and the simulation
    errors             what is raised

How a log is compacted (cleanup.policy=compact): the cleaner takes the log with the greatest part of dirty bytes, reads the
keys of its dirty section into a map, and writes all segments up to the map's end again, neighbours together: a record stays
if it is its key's last, a tombstone or a marker for delete.retention.ms from the first compaction that meets it on, and of a
batch without records the header stays while it carries a producer's last sequence number. Offsets never change. All of it runs
in the node's ticks, MAX_BYTES_PER_TICK in each, and stops when the log is cut. A segment that is written ends in `.cleaned`,
one that is whole and durable in `.swap`: from then on the swap counts, and whatever comes in between, the next upkeep or the
next start completes it. Nothing is compacted from the last stable offset, the recovery point or the active segment on; the
recovery point is written down before, for a gap behind it would be a loss.

The rules that are pure arithmetic stand alone, each with a contract that CrossHair confirms: `index_search`,
`epoch_lookup`, `sequence_check`, `truncation_point`.
"""
