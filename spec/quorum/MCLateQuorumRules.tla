-------------------------- MODULE MCLateQuorumRules -------------------------
(***************************************************************************)
(* Promises of single rules where messages are of any age. They show a     *)
(* fault without an election. MCLateQuorumParted begins with diverged      *)
(* logs, as MCQuorumParted does: the former leader has two records, of     *)
(* which the present leader has the first. But here the former leader has  *)
(* learned that it was replaced.                                           *)
(***************************************************************************)
EXTENDS LateQuorum

lateVars == <<vars, historyVars>>

PartedLate(former, present) ==
    LET logs == [v \in Voters |-> IF v = former THEN <<1, 1>> ELSE IF v = present THEN <<1>> ELSE <<>>]
        Votes(e, l, voters) == {[voter |-> v, epoch |-> e, candidate |-> l] : v \in voters}
    IN  /\ epoch = [v \in Voters |-> 2]
        /\ votedFor = [v \in Voters |-> IF v = former THEN None ELSE present]
        /\ log = logs
        /\ role = [v \in Voters |-> IF v = present THEN "leader" ELSE "follower"]
        /\ votes = [v \in Voters |-> IF v = present THEN Voters \ {former} ELSE {}]
        /\ asked = {[candidate |-> former, epoch |-> 1, lastEpoch |-> 0, end |-> 0],
                    [candidate |-> present, epoch |-> 2, lastEpoch |-> 1, end |-> 1]}
        /\ highWatermark = [v \in Voters |-> 0]
        /\ reached = [v \in Voters |-> [w \in Voters |-> 0]]
        /\ leaderships = <<[leader |-> former, log |-> logs[former], highWatermark |-> 0],
                           [leader |-> present, log |-> logs[present], highWatermark |-> 0]>>
        /\ had = [v \in Voters |-> (0 :> <<>>) @@ (1 :> logs[v])]
        /\ given = Votes(1, former, {former, present}) \cup Votes(2, present, Voters \ {former})
        /\ committed = <<>>

InitPartedLate ==
    /\ \E former, present \in Voters : former # present /\ PartedLate(former, present)
    /\ crashes = Crashes
    /\ step = [action |-> "Init"]

\* The steps without elections.
RecordStep(v) ==
    \/ AdvanceHighWatermark(v)
    \/ \E end \in 1..Records : AppendUpTo(v, end)
    \/ \E w \in Voters \ {v}, end \in 0..Records :
        \/ TakeFetch(v, w, end)
        \/ \E mark \in 0..Records, isSnapshot \in BOOLEAN : TakeAnswer(v, w, end, mark, isSnapshot)
SpecPartedLate == InitPartedLate /\ [][\E v \in Voters : RecordStep(v) /\ HistoryAfter(v)]_lateVars

-----------------------------------------------------------------------------
\* The votes that a candidate counts, or by which a leader was elected, were granted; none is a pre-vote.
VotesWereGiven == \A v \in Voters : role[v] \in {"candidate", "leader"} => votes[v] \subseteq VotesFor(v)

\* The records that a leader counts for a voter were in the voter's log in that epoch.
ReachedWasThere ==
    \A l, f \in Voters : role[l] = "leader" =>
        \E theirs \in LogsIn(f, epoch[l]) \cup {<<>>} :
            reached[l][f] <= EndOffset(theirs) /\ IsPrefix(Prefix(theirs, reached[l][f]), log[l])

\* A voter removes no record that the leader of its epoch has, too, and appends records of that leader only.
ResponsesKeepWhatIsShared ==
    [][\A f \in Voters : log'[f] # log[f] /\ ~Led(f) =>
        LET theirs == leaderships[epoch[f]].log
        IN  /\ \A end \in 1..EndOffset(log[f]) :
                   IsPrefix(Prefix(log[f], end), theirs) => IsPrefix(Prefix(log[f], end), log'[f])
            /\ IsPrefix(log'[f], log[f]) \/ IsPrefix(log'[f], theirs)
      ]_lateVars

\* A voter's high watermark rises only up to the high watermark of its epoch's leader, and over records of that
\* leader.
LeadersCommit ==
    [][\A f \in Voters : highWatermark'[f] > highWatermark[f] /\ ~Led(f) =>
        /\ epoch[f] \in DOMAIN leaderships
        /\ highWatermark'[f] <= leaderships[epoch[f]].highWatermark
        /\ IsPrefix(Prefix(log'[f], highWatermark'[f]), leaderships[epoch[f]].log)
      ]_lateVars
=============================================================================
