"""Record batches: what producers send, logs store, and consumers read.

A partition's log is a sequence of batches. A batch of magic 2 is a header of 61 bytes and the records behind it, which a
codec may have packed; messages of magic 0 and 1 came before (`legacy`). Offsets and timestamps of records are deltas to
the header's, so a broker places a batch in the log by writing fields of the header (`batch.assign`).

    batch        the header, iteration, building, assignment in place
    record       one record, and the walk that proves a batch's records well-formed
    validate     a leader's validation of a producer's batch, and the rewriting that a topic's configuration requires
    compression  the four codecs, with a bound on decompressed bytes
    control      the markers that end transactions, and the quorum's control records
    legacy       message sets of magic 0 and 1
    varint       zigzag variable-length integers
    errors       the exceptions, with Kafka's error codes

Sources: Kafka documentation, "Message Format"; KIP-32, KIP-98, KIP-534.
"""
