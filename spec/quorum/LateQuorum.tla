----------------------------- MODULE LateQuorum -----------------------------
(***************************************************************************)
(* The metadata quorum with all that a network and a restart may do: wider *)
(* steps than Quorum's, by which traces are judged (TraceQuorum), and      *)
(* which keep every promise by themselves (MCLateQuorum).                  *)
(*                                                                         *)
(* What is wider:                                                          *)
(* - Messages are late.  A fetch counts with any log that the follower had *)
(*   in that epoch; a response carries any log that the leader had in its  *)
(*   epoch; a newer epoch may be learned from a voter that has left it.    *)
(* - A step may bring many records.  Logs that part may take more than one *)
(*   cut, but no cut takes what both have.  A snapshot stands for records  *)
(*   that are committed.                                                   *)
(* - A request without effect may be repeated.  Whether a pre-vote was     *)
(*   rightly granted is not judged: any may be.                            *)
(* - A candidate is still one after its restart; a leader may leave its    *)
(*   epoch for the next one, in which it has not voted.                    *)
(***************************************************************************)
EXTENDS Quorum

VARIABLES
    leaderships,    \* for each epoch that had a leader: the leader, its log, and how much of it is committed
    had,            \* for each voter and epoch that it left: its log then
    given,          \* all votes
    committed       \* the longest log that a voter called committed

historyVars == <<leaderships, had, given, committed>>

InitHistory ==
    /\ leaderships = <<>>
    /\ had = [v \in Voters |-> <<>>]
    /\ given = {}
    /\ committed = <<>>

\* A state shows the names of Quorum's steps.
Shows(action, arguments) == Step(action, arguments)

\* Logs of traces have another form, and other operators in the place of these.
Extend(records, newest, end) == records \o [i \in 1..(end - EndOffset(records)) |-> newest]
Ends(records) == 1..EndOffset(records)

\* Votes that are late count as well.
AllAsked(v) == asked

-----------------------------------------------------------------------------
\* Elections
Stand(v) ==
    /\ role[v] # "leader"
    /\ role' = [role EXCEPT ![v] = "prospective"]
    /\ votes' = [votes EXCEPT ![v] = {v}]
    /\ Shows("BecomeProspective", [from |-> v])
    /\ UNCHANGED <<epoch, votedFor, log, asked, highWatermark, reached, crashes>>

ReceivePreVote(v, voter) ==
    /\ role[v] \in {"prospective", "follower"}
    /\ role' = [role EXCEPT ![v] = "prospective"]
    /\ votes' = [votes EXCEPT ![v] = @ \cup {v, voter}]
    /\ Shows("GrantPreVote", [from |-> voter, to |-> v])
    /\ UNCHANGED <<epoch, votedFor, log, asked, highWatermark, reached, crashes>>

Join(v, newer) == JoinEpoch(v, newer) /\ UNCHANGED <<log, asked, highWatermark, reached, crashes>>

LearnNewerEpoch(v, other, newer) ==
    /\ newer \in (epoch[v] + 1)..epoch[other]
    /\ Join(v, newer)
    /\ Shows("LearnEpoch", [from |-> other, to |-> v, epoch |-> newer])

Led(v) == epoch[v] \in DOMAIN leaderships /\ leaderships[epoch[v]].leader = v

Leave(v) ==
    /\ Led(v)
    /\ Join(v, epoch[v] + 1)
    /\ Shows("LeaveEpoch", [from |-> v])

-----------------------------------------------------------------------------
\* Records
AppendUpTo(l, end) ==
    /\ role[l] = "leader"
    /\ end > EndOffset(log[l])
    /\ log' = [log EXCEPT ![l] = Extend(@, epoch[l], end)]
    /\ Shows("AppendRecord", [from |-> l, end |-> end])
    /\ UNCHANGED <<epoch, votedFor, role, votes, asked, highWatermark, reached, crashes>>

LogsIn(v, e) == IF epoch[v] = e THEN {log[v]} ELSE IF e \in DOMAIN had[v] THEN {had[v][e]} ELSE {}

TakeFetch(l, f, end) ==
    /\ role[l] = "leader"
    /\ \E theirs \in LogsIn(f, epoch[l]) : end <= EndOffset(theirs) /\ IsPrefix(Prefix(theirs, end), log[l])
    /\ reached' = [reached EXCEPT ![l][f] = end]
    /\ Shows("AnswerFetch", [from |-> f, to |-> l, end |-> end])
    /\ UNCHANGED <<epoch, votedFor, log, role, votes, asked, highWatermark, crashes>>

Shares(a, b, end) == end <= Lesser(EndOffset(a), EndOffset(b)) /\ Prefix(a, end) = Prefix(b, end)

\* What a follower's log may become by a response of this leader epoch.
Brings(f, leadership, records, isSnapshot) ==
    IF isSnapshot THEN IsPrefix(records, Prefix(leadership.log, leadership.highWatermark))
    ELSE IF IsPrefix(log[f], leadership.log) THEN IsPrefix(log[f], records) /\ IsPrefix(records, leadership.log)
    ELSE IsPrefix(records, log[f])

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
StandsAgain(v) == votedFor[v] = v /\ epoch[v] \notin DOMAIN leaderships
VotesFor(v) == {w \in Voters : [voter |-> w, epoch |-> epoch[v], candidate |-> v] \in given}

\* What a snapshot stands for is known to be committed, other records are not.
ComeBack(v, mark) ==
    /\ mark <= highWatermark[v]
    /\ role' = [role EXCEPT ![v] = IF StandsAgain(v) THEN "candidate" ELSE "follower"]
    /\ votes' = [votes EXCEPT ![v] = IF StandsAgain(v) THEN VotesFor(v) ELSE {}]
    /\ reached' = [reached EXCEPT ![v] = [w \in Voters |-> 0]]
    /\ highWatermark' = [highWatermark EXCEPT ![v] = mark]
    /\ Shows("Restart", [from |-> v])
    /\ UNCHANGED <<epoch, votedFor, log, asked>>

-----------------------------------------------------------------------------
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

\* What every state on the way must keep, also after restarts.
KeepsPromises ==
    /\ HighWatermarkBound
    /\ \A v \in Voters : role[v] = "leader" => Led(v)
    /\ \A v \in Voters : IsPrefix(Committed(v), committed)
    /\ \A l \in Voters : role[l] = "leader" /\ (\A w \in Voters : epoch[w] <= epoch[l]) => IsPrefix(committed, log[l])

-----------------------------------------------------------------------------
\* All of that in a small quorum: MCLateQuorum.
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
