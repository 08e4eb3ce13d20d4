-------------------------------- MODULE Log ---------------------------------
(***************************************************************************)
(* Chapter 1: one replica's log, and how two logs are compared.            *)
(*                                                                         *)
(* A log is a sequence of records. A record has the leader epoch in which  *)
(* it was appended, and the number that its producer gave it. Offsets      *)
(* count from 0: the record at offset o is log[o + 1], and the log end     *)
(* offset, the offset of the next record, is the length.                   *)
(*                                                                         *)
(* Epochs never decrease along a log. So leader and follower can compare   *)
(* the end offset of an epoch instead of records: KIP-101, KIP-279 and     *)
(* KIP-595 rest on the operators below.                                    *)
(*                                                                         *)
(* Steps that are checked in traces use logs through these operators only, *)
(* so that a configuration can replace them for another representation     *)
(* (RunLengthLog).                                                         *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

Min(a, b) == IF a < b THEN a ELSE b

\* The log end offset.
EndOffset(records) == Len(records)
Prefix(records, end) == SubSeq(records, 1, end)
IsPrefix(shorter, longer) ==
    /\ EndOffset(shorter) <= EndOffset(longer)
    /\ shorter = Prefix(longer, EndOffset(shorter))

Extend(records, epoch, number) == Append(records, [epoch |-> epoch, number |-> number])

\* The epoch of the last record; 0 for an empty log.
LastEpoch(records) == IF records = <<>> THEN 0 ELSE records[Len(records)].epoch

\* The number of records of earlier epochs: where the epoch starts, or would start if it had records.
StartOffsetOf(records, epoch) == Cardinality({i \in DOMAIN records : records[i].epoch < epoch})

\* OffsetForLeaderEpoch (KIP-101, KIP-279): the log's largest epoch that is at most the requested one, and its end
\* offset.
EndOffsetFor(records, epoch) ==
    LET end == StartOffsetOf(records, epoch + 1)
    IN [epoch |-> LastEpoch(Prefix(records, end)), end |-> end]

\* Whether a follower's log is no prefix of the leader's. A fetch carries what is known of it: its end offset and the
\* epoch of its last record (KIP-595).
Diverges(leaderRecords, end, lastEpoch) ==
    LET found == EndOffsetFor(leaderRecords, lastEpoch)
    IN found.epoch < lastEpoch \/ found.end < end

\* The offset to which the follower truncates, by the epoch and end offset that the leader found (KIP-279, KIP-595).
TruncationPoint(followerRecords, found) ==
    Min(found.end, EndOffsetFor(followerRecords, found.epoch).end)

\* The producer's numbers of the records.
Numbers(records) == {records[i].number : i \in DOMAIN records}
=============================================================================
