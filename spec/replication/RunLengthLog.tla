---------------------------- MODULE RunLengthLog ----------------------------
(***************************************************************************)
(* Logs as runs: one entry for each epoch, with the end offset of its      *)
(* records. A trace's logs are long and have few epochs; leader epoch and  *)
(* offset identify a record. A configuration replaces the operators of Log *)
(* by these.                                                               *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

LOCAL Lesser(a, b) == IF a < b THEN a ELSE b

RunEndOffset(runs) == IF runs = <<>> THEN 0 ELSE runs[Len(runs)].end

RunLastEpoch(runs) == IF runs = <<>> THEN 0 ELSE runs[Len(runs)].epoch

LOCAL StartOf(runs, i) == IF i = 1 THEN 0 ELSE runs[i - 1].end

\* Nearly always `end` is in the last run: then no runs are counted.
RunPrefix(runs, end) ==
    IF end >= RunEndOffset(runs) THEN runs
    ELSE IF StartOf(runs, Len(runs)) < end THEN [runs EXCEPT ![Len(runs)].end = end]
    ELSE LET kept == Cardinality({i \in DOMAIN runs : StartOf(runs, i) < end})
         IN  IF kept = 0 THEN <<>>
             ELSE Append(SubSeq(runs, 1, kept - 1), [runs[kept] EXCEPT !.end = Lesser(@, end)])

RunStartOffsetOf(runs, epoch) ==
    IF RunLastEpoch(runs) < epoch THEN RunEndOffset(runs)
    ELSE RunEndOffset(SelectSeq(runs, LAMBDA run : run.epoch < epoch))

\* The log after a batch of this epoch, up to its new end offset.
RunExtend(runs, epoch, end) ==
    IF RunLastEpoch(runs) = epoch THEN [runs EXCEPT ![Len(runs)].end = end]
    ELSE Append(runs, [epoch |-> epoch, end |-> end])
=============================================================================
