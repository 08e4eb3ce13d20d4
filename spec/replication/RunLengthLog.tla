---------------------------- MODULE RunLengthLog ----------------------------
(***************************************************************************)
(* Logs as runs: one entry for each epoch, with the offset at which its    *)
(* records end.  A trace's logs are long and of few epochs; the leader     *)
(* epoch and the offset identify a record.  A configuration puts these in  *)
(* the place of Log's operators.                                           *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets

LOCAL Lesser(a, b) == IF a < b THEN a ELSE b

RunEndOffset(runs) == IF runs = <<>> THEN 0 ELSE runs[Len(runs)].end

RunLastEpoch(runs) == IF runs = <<>> THEN 0 ELSE runs[Len(runs)].epoch

LOCAL StartOf(runs, i) == IF i = 1 THEN 0 ELSE runs[i - 1].end

\* Nearly always the end is in the last run: then nothing has to be counted.
RunPrefix(runs, end) ==
    IF end >= RunEndOffset(runs) THEN runs
    ELSE IF StartOf(runs, Len(runs)) < end THEN [runs EXCEPT ![Len(runs)].end = end]
    ELSE LET kept == Cardinality({i \in DOMAIN runs : StartOf(runs, i) < end})
         IN  IF kept = 0 THEN <<>>
             ELSE Append(SubSeq(runs, 1, kept - 1), [runs[kept] EXCEPT !.end = Lesser(@, end)])

RunStartOffsetOf(runs, epoch) ==
    IF RunLastEpoch(runs) < epoch THEN RunEndOffset(runs)
    ELSE RunEndOffset(SelectSeq(runs, LAMBDA run : run.epoch < epoch))

\* For a batch: the log with records of this epoch up to the end.
RunExtend(runs, epoch, end) ==
    IF RunLastEpoch(runs) = epoch THEN [runs EXCEPT ![Len(runs)].end = end]
    ELSE Append(runs, [epoch |-> epoch, end |-> end])
=============================================================================
