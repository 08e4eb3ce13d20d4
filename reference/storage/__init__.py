"""One partition on disk, and all partitions of a data folder, in Kafka's layout.

    log                one partition: append, read, truncate, retention; made of segments
    log_manager        all partitions of a data folder, checkpoints, clean shutdown
    segment            a log file and its three indexes
    offset_index       `.index`, sparse, searched by halving
    time_index         `.timeindex`
    transaction_index  `.txnindex`, aborted transactions
    epoch_cache        `leader-epoch-checkpoint`: which leader epoch wrote which offsets
    producer_state     idempotent and transactional producers, `.snapshot`
    recovery           what a start makes of the files that the last end left
    retention          which segments are due
    checkpoints        the small files of a data folder
    config             the topic configuration that a log follows
    disk               what all of this asks of a disk; POSIX and the simulation
    errors             what is raised

The rules that are pure arithmetic stand alone, each with a contract that CrossHair confirms: `index_search`,
`epoch_lookup`, `sequence_check`, `truncation_point`.
"""
