-------------------------------- MODULE Log ---------------------------------
(***************************************************************************)
(* Chapter 1: one replica's log, and how two logs are compared.            *)
(*                                                                         *)
(* A log is a sequence of records.  A record carries the leader epoch in   *)
(* which it was appended, and the number that its producer gave it.        *)
(* Offsets count from 0, so the record at offset o is log[o + 1], and the  *)
(* log end offset, the offset of the next record, is the length.           *)
(*                                                                         *)
(* Epochs never decrease along a log.  Hence "the end offset of epoch e"   *)
(* is a number that leader and follower can compare without comparing      *)
(* records: KIP-101, KIP-279 and KIP-595 rest on the operators below.      *)
(*                                                                         *)
(* The other chapters touch logs by these operators only, so that a trace  *)
(* may be checked with another representation (RunLengthLog).              *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

Min(a, b) == IF a < b THEN a ELSE b

EndOffset(records) == Len(records)
Prefix(records, end) == SubSeq(records, 1, end)
IsPrefix(shorter, longer) ==
    /\ EndOffset(shorter) <= EndOffset(longer)
    /\ shorter = Prefix(longer, EndOffset(shorter))

Extend(records, epoch, number) == Append(records, [epoch |-> epoch, number |-> number])

LastEpoch(records) == IF records = <<>> THEN 0 ELSE records[Len(records)].epoch

\* Where the epoch begins, or would begin: the number of records before it.
StartOffsetOf(records, epoch) == Cardinality({i \in DOMAIN records : records[i].epoch < epoch})

\* OffsetForLeaderEpoch: the largest epoch of the log that is not above the
\* one asked for, and the offset at which it ends.
EndOffsetFor(records, epoch) ==
    LET end == StartOffsetOf(records, epoch + 1)
    IN [epoch |-> LastEpoch(Prefix(records, end)), end |-> end]

\* The leader's question about a fetch: is a log that ends at this offset
\* with this epoch a prefix of mine?
Diverges(leaderRecords, end, lastEpoch) ==
    LET found == EndOffsetFor(leaderRecords, lastEpoch)
    IN found.epoch < lastEpoch \/ found.end < end

\* The follower's conclusion from the leader's answer (KIP-279, KIP-595).
TruncationPoint(followerRecords, found) ==
    Min(found.end, EndOffsetFor(followerRecords, found.epoch).end)

Numbers(records) == {records[i].number : i \in DOMAIN records}
=============================================================================
