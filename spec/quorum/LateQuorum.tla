----------------------------- MODULE LateQuorum -----------------------------
(***************************************************************************)
(* The metadata quorum with all delays of a network and all effects of a   *)
(* restart. Its steps are wider than Quorum's: traces are judged by them   *)
(* (TraceQuorum), and they keep every promise by themselves                *)
(* (MCLateQuorum).                                                         *)
(*                                                                         *)
(* What is wider:                                                          *)
(* - Messages are late. A fetch may be of any log that the follower had in *)
(*   that epoch. A response may be of any log that the leader had in its   *)
(*   epoch. A voter may learn a newer epoch from a voter that has left it. *)
(* - A step may bring many records. Diverging logs may need more than one  *)
(*   truncation, but none removes a record that both have. A snapshot      *)
(*   replaces committed records.                                           *)
(* - A request without effect may be repeated. Any pre-vote may be         *)
(*   granted: pre-votes are not judged.                                    *)
(* - A candidate is still one after its restart. A leader may leave its    *)
(*   epoch for the next one, in which it has not voted.                    *)
(***************************************************************************)
EXTENDS Quorum

VARIABLES
    leaderships,    \* epoch -> its leader, and the leader's log and high watermark
    had,            \* voter -> each epoch that it left -> its log at that time
    given,          \* all votes that were granted
    committed       \* the longest sequence of committed records of any voter

historyVars == <<leaderships, had, given, committed>>

InitHistory ==
    /\ leaderships = <<>>
    /\ had = [v \in Voters |-> <<>>]
    /\ given = {}
    /\ committed = <<>>

\* States show the names of Quorum's steps.
Shows(action, arguments) == Step(action, arguments)

\* Traces have another representation of logs, and replace these operators.
Extend(records, newest, end) == records \o [i \in 1..(end - EndOffset(records)) |-> newest]
Ends(records) == 1..EndOffset(records)

\* Replaces StillAsked: late votes count, too.
AllAsked(v) == asked

-----------------------------------------------------------------------------
\* BecomeProspective, which may be repeated.
Stand(v) ==
    /\ role[v] # "leader"
    /\ role' = [role EXCEPT ![v] = "prospective"]
    /\ votes' = [votes EXCEPT ![v] = {v}]
    /\ Shows("BecomeProspective", [from |-> v])
    /\ UNCHANGED <<epoch, votedFor, log, asked, highWatermark, reached, crashes>>

\* GrantPreVote, as the voter that asked receives it.
ReceivePreVote(v, voter) ==
    /\ role[v] \in {"prospective", "follower"}
    /\ role' = [role EXCEPT ![v] = "prospective"]
    /\ votes' = [votes EXCEPT ![v] = @ \cup {v, voter}]
    /\ Shows("GrantPreVote", [from |-> voter, to |-> v])
    /\ UNCHANGED <<epoch, votedFor, log, asked, highWatermark, reached, crashes>>

Join(v, newer) == JoinEpoch(v, newer) /\ UNCHANGED <<log, asked, highWatermark, reached, crashes>>

\* LearnEpoch, of any newer epoch up to the other voter's: that one may have left it meanwhile.
LearnNewerEpoch(v, other, newer) ==
    /\ newer \in (epoch[v] + 1)..epoch[other]
    /\ Join(v, newer)
    /\ Shows("LearnEpoch", [from |-> other, to |-> v, epoch |-> newer])

\* Whether the voter is, or was, the leader of its epoch.
Led(v) == epoch[v] \in DOMAIN leaderships /\ leaderships[epoch[v]].leader = v

\* A leader resigns and joins the next epoch, in which it has not voted.
Leave(v) ==
    /\ Led(v)
    /\ Join(v, epoch[v] + 1)
    /\ Shows("LeaveEpoch", [from |-> v])

-----------------------------------------------------------------------------
\* AppendRecord, of many records.
AppendUpTo(l, end) ==
    /\ role[l] = "leader"
    /\ end > EndOffset(log[l])
    /\ log' = [log EXCEPT ![l] = Extend(@, epoch[l], end)]
    /\ Shows("AppendRecord", [from |-> l, end |-> end])
    /\ UNCHANGED <<epoch, votedFor, role, votes, asked, highWatermark, reached, crashes>>

\* The logs that messages of this epoch may show of a voter: its present one, or the one with which it left the epoch.
LogsIn(v, e) == IF epoch[v] = e THEN {log[v]} ELSE IF e \in DOMAIN had[v] THEN {had[v][e]} ELSE {}

\* AnswerFetch, of a fetch of any age.
TakeFetch(l, f, end) ==
    /\ role[l] = "leader"
    /\ \E theirs \in LogsIn(f, epoch[l]) : end <= EndOffset(theirs) /\ IsPrefix(Prefix(theirs, end), log[l])
    /\ reached' = [reached EXCEPT ![l][f] = end]
    /\ Shows("AnswerFetch", [from |-> f, to |-> l, end |-> end])
    /\ UNCHANGED <<epoch, votedFor, log, role, votes, asked, highWatermark, crashes>>

\* Whether two logs agree up to `end`.
Shares(a, b, end) == end <= Lesser(EndOffset(a), EndOffset(b)) /\ Prefix(a, end) = Prefix(b, end)

\* Whether the follower's log may become `records` by a response of this leader epoch: committed records of a
\* snapshot, more of the leader's records, or a truncation.
Brings(f, leadership, records, isSnapshot) ==
    IF isSnapshot THEN IsPrefix(records, Prefix(leadership.log, leadership.highWatermark))
    ELSE IF IsPrefix(log[f], leadership.log) THEN IsPrefix(log[f], records) /\ IsPrefix(records, leadership.log)
    ELSE IsPrefix(records, log[f])

\* ApplyFetch, of a response of any age. The follower keeps all records that both logs have.
TakeAnswer(f, l, end, mark, isSnapshot) ==
    /\ role[f] # "leader"
    /\ epoch[f] \in DOMAIN leaderships
    /\ LET leadership == leaderships[epoch[f]]
       IN  /\ leadership.leader = l
           /\ \E source \in {log[f], leadership.log} :
                  /\ end <= EndOffset(source)
                  /\ Brings(f, leadership, Prefix(source, end), isSnapshot)
                  /\ \/ mark = highWatermark[f]
                     \/ mark <= leadership.highWatermark /\ IsPrefix(Prefix(source, end), leadership.log)
                  /\ Take(f, Prefix(source, end), mark)
           /\ \A n \in Ends(log[f]) \cup Ends(leadership.log) : Shares(log[f], leadership.log, n) => n <= end
    /\ role' = [role EXCEPT ![f] = "follower"]
    /\ votes' = [votes EXCEPT ![f] = {}]
    /\ Shows("ApplyFetch", [from |-> l, to |-> f, end |-> end])
    /\ UNCHANGED <<epoch, votedFor, asked, reached, crashes>>

-----------------------------------------------------------------------------
\* Whether a voter is a candidate after its restart: it voted for itself, in an epoch without a leader.
StandsAgain(v) == votedFor[v] = v /\ epoch[v] \notin DOMAIN leaderships
\* All voters that voted for it in its epoch.
VotesFor(v) == {w \in Voters : [voter |-> w, epoch |-> epoch[v], candidate |-> v] \in given}

\* Restart. The voter knows that the records of its snapshot are committed, and of no other.
ComeBack(v, mark) ==
    /\ mark <= highWatermark[v]
    /\ role' = [role EXCEPT ![v] = IF StandsAgain(v) THEN "candidate" ELSE "follower"]
    /\ votes' = [votes EXCEPT ![v] = IF StandsAgain(v) THEN VotesFor(v) ELSE {}]
    /\ reached' = [reached EXCEPT ![v] = [w \in Voters |-> 0]]
    /\ highWatermark' = [highWatermark EXCEPT ![v] = mark]
    /\ Shows("Restart", [from |-> v])
    /\ UNCHANGED <<epoch, votedFor, log, asked>>

-----------------------------------------------------------------------------
\* The histories after a step of this voter.
HistoryAfter(v) ==
    /\ leaderships' =
        IF role'[v] = "leader" /\ (epoch'[v] \in DOMAIN leaderships => leaderships[epoch'[v]].leader = v)
        THEN (epoch'[v] :> [leader |-> v, log |-> log'[v], highWatermark |-> highWatermark'[v]]) @@ leaderships
        ELSE leaderships
    /\ had' = IF epoch'[v] = epoch[v] THEN had ELSE [had EXCEPT ![v] = (epoch[v] :> log[v]) @@ @]
    /\ given' =
        IF votedFor'[v] = None THEN given
        ELSE given \cup {[voter |-> v, epoch |-> epoch'[v], candidate |-> votedFor'[v]]}
    /\ committed' = IF highWatermark'[v] > EndOffset(committed) THEN Prefix(log'[v], highWatermark'[v])
                  ELSE committed

\* The promises that every state must keep, also after restarts.
KeepsPromises ==
    /\ HighWatermarkBound
    /\ \A v \in Voters : role[v] = "leader" => Led(v)
    /\ \A v \in Voters : IsPrefix(Committed(v), committed)
    /\ \A l \in Voters : role[l] = "leader" /\ (\A w \in Voters : epoch[w] <= epoch[l]) => IsPrefix(committed, log[l])

-----------------------------------------------------------------------------
\* All these steps in a small quorum (MCLateQuorum).
LateStep(v) ==
    \/ epoch[v] < Epochs /\ (Stand(v) \/ BecomeCandidate(v) \/ Leave(v))
    \/ BecomeLeader(v) \/ AdvanceHighWatermark(v)
    \/ \E request \in asked : GrantVote(v, request)
    \/ \E w \in Voters \ {v} :
        \/ ReceivePreVote(v, w)
        \/ \E newer \in 1..Epochs : LearnNewerEpoch(v, w, newer)
        \/ \E end \in 0..Records :
            \/ TakeFetch(v, w, end)
            \/ \E mark \in 0..Records, isSnapshot \in BOOLEAN : TakeAnswer(v, w, end, mark, isSnapshot)
    \/ \E end \in 1..Records : AppendUpTo(v, end)
    \/ \E mark \in 0..Records : crashes > 0 /\ crashes' = crashes - 1 /\ ComeBack(v, mark)

LateSpec == Init /\ InitHistory /\ [][\E v \in Voters : LateStep(v) /\ HistoryAfter(v)]_<<vars, historyVars>>

LateView == <<stateVars, historyVars>>
=============================================================================
