----------------------------- MODULE TraceQuorum -----------------------------
(***************************************************************************)
(* Traces of the metadata quorum, checked against the specification: every *)
(* event must be a step that it allows in the state that the events before *)
(* it led to, and must lead to what the voter says of itself.              *)
(*                                                                         *)
(* Many traces are checked in one run: each is one initial state, its      *)
(* events are the only steps.  A trace that is not accepted ends early.    *)
(* The generated module TraceData defines Traces.                          *)
(*                                                                         *)
(* What is wider here than in Quorum:                                      *)
(* - Messages are late.  A fetch counts with any log that the follower had *)
(*   in that epoch; an answer brings what the leader had in its reign; the *)
(*   epoch that is heard of may be one that the other has left since.      *)
(* - Logs are runs, and a step may bring many records.  Logs that part may *)
(*   take more than one cut, but no cut takes what both have.  A snapshot  *)
(*   stands for records that are committed.                                *)
(* - Who asked in vain asks again; nobody tells of it.  Who grants a       *)
(*   pre-vote does not tell, only who hears of it: that is not judged.     *)
(* - A candidate is still one after its restart; who led an epoch may      *)
(*   leave it for the next one, for which nobody has voted yet.            *)
(* Who resigned is a leader until it tells another step.                   *)
(***************************************************************************)
EXTENDS Quorum, RunLengthLog, TraceData

CONSTANT Guarded    \* is a step that breaks a promise refused as if it did not exist

VARIABLES
    trace,      \* which of the traces
    at,         \* the next event's place
    reigns,     \* for each epoch that had a leader: who, its log, and how much of it is committed
    had,        \* for each voter and epoch that it left: its log then
    given,      \* all votes
    committed   \* the longest log that anybody called committed

traceVars == <<vars, trace, at, reigns, had, given, committed>>

Event == Traces[trace][at]

TraceInit ==
    /\ trace \in DOMAIN Traces
    /\ at = 1
    /\ reigns = <<>>
    /\ had = [v \in Voters |-> <<>>]
    /\ given = {}
    /\ committed = <<>>
    /\ Init

\* Votes that are late count as well.
AllAsked(v) == asked

-----------------------------------------------------------------------------
\* Elections
Stand(v) ==
    /\ role[v] # "leader"
    /\ role' = [role EXCEPT ![v] = "prospective"]
    /\ votes' = [votes EXCEPT ![v] = {v}]
    /\ UNCHANGED <<epoch, votedFor, log, asked, highWatermark, reached, crashes>>

HearPreVote(v, voter) ==
    /\ role[v] \in {"prospective", "follower"}
    /\ role' = [role EXCEPT ![v] = "prospective"]
    /\ votes' = [votes EXCEPT ![v] = @ \cup {v, voter}]
    /\ UNCHANGED <<epoch, votedFor, log, asked, highWatermark, reached, crashes>>

Join(v, newer) == JoinEpoch(v, newer) /\ UNCHANGED <<log, asked, highWatermark, reached, crashes>>

Hear(v, other, newer) == newer \in (epoch[v] + 1)..epoch[other] /\ Join(v, newer)

Led(v) == epoch[v] \in DOMAIN reigns /\ reigns[epoch[v]].leader = v

Leave(v) == Led(v) /\ Join(v, epoch[v] + 1)

-----------------------------------------------------------------------------
\* Records
AppendUpTo(l, end) ==
    /\ role[l] = "leader"
    /\ end > EndOffset(log[l])
    /\ log' = [log EXCEPT ![l] = RunExtend(@, epoch[l], end)]
    /\ UNCHANGED <<epoch, votedFor, role, votes, asked, highWatermark, reached, crashes>>

LogsIn(v, e) == IF epoch[v] = e THEN {log[v]} ELSE IF e \in DOMAIN had[v] THEN {had[v][e]} ELSE {}

TakeFetch(l, f, end) ==
    /\ role[l] = "leader"
    /\ \E theirs \in LogsIn(f, epoch[l]) : end <= EndOffset(theirs) /\ IsPrefix(Prefix(theirs, end), log[l])
    /\ reached' = [reached EXCEPT ![l][f] = end]
    /\ UNCHANGED <<epoch, votedFor, log, role, votes, asked, highWatermark, crashes>>

Ends(runs) == {runs[i].end : i \in DOMAIN runs}
Shares(a, b, end) == end <= Lesser(EndOffset(a), EndOffset(b)) /\ Prefix(a, end) = Prefix(b, end)

\* What a follower's log may become by an answer of this reign.
Brings(f, reign, records, isSnapshot) ==
    IF isSnapshot THEN IsPrefix(records, Prefix(reign.log, reign.highWatermark))
    ELSE IF IsPrefix(log[f], reign.log) THEN IsPrefix(log[f], records) /\ IsPrefix(records, reign.log)
    ELSE IsPrefix(records, log[f])

TakeAnswer(f, l, end, mark, isSnapshot) ==
    /\ role[f] # "leader"
    /\ epoch[f] \in DOMAIN reigns
    /\ LET reign == reigns[epoch[f]]
       IN  /\ reign.leader = l
           /\ mark \in {highWatermark[f]} \cup 0..reign.highWatermark
           /\ \E records \in {Prefix(log[f], end), Prefix(reign.log, end)} :
                  Brings(f, reign, records, isSnapshot) /\ Take(f, records, mark)
           /\ \A n \in Ends(log[f]) \cup Ends(reign.log) : Shares(log[f], reign.log, n) => n <= end
    /\ role' = [role EXCEPT ![f] = "follower"]
    /\ votes' = [votes EXCEPT ![f] = {}]
    /\ UNCHANGED <<epoch, votedFor, asked, reached, crashes>>

-----------------------------------------------------------------------------
StandsAgain(v) == votedFor[v] = v /\ epoch[v] \notin DOMAIN reigns
VotesFor(v) == {w \in Voters : [voter |-> w, epoch |-> epoch[v], candidate |-> v] \in given}

\* What a snapshot stands for is known to be committed, other records are not.
ComeBack(v, mark) ==
    /\ mark <= highWatermark[v]
    /\ role' = [role EXCEPT ![v] = IF StandsAgain(v) THEN "candidate" ELSE "follower"]
    /\ votes' = [votes EXCEPT ![v] = IF StandsAgain(v) THEN VotesFor(v) ELSE {}]
    /\ reached' = [reached EXCEPT ![v] = [w \in Voters |-> 0]]
    /\ highWatermark' = [highWatermark EXCEPT ![v] = mark]
    /\ UNCHANGED <<epoch, votedFor, log, asked, crashes>>

StepOf(e) ==
    CASE e.action = "BecomeProspective"    -> Stand(e.node)
      [] e.action = "GrantPreVote"         -> HearPreVote(e.node, e.from)
      [] e.action = "BecomeCandidate"      -> BecomeCandidate(e.node)
      [] e.action = "GrantVote"            -> \E request \in asked :
                                                  /\ request.candidate = e.to /\ request.epoch = e.epoch
                                                  /\ GrantVote(e.node, request)
      [] e.action = "BecomeLeader"         -> BecomeLeader(e.node)
      [] e.action = "HearOfEpoch"          -> Hear(e.node, e.from, e.epoch)
      [] e.action = "LeaveEpoch"           -> Leave(e.node)
      [] e.action = "AppendRecord"         -> AppendUpTo(e.node, e.leo)
      [] e.action = "AnswerFetch"          -> TakeFetch(e.node, e.from, e.end)
      [] e.action = "ApplyFetch"           -> TakeAnswer(e.node, e.from, e.leo, e.highWatermark, e.isSnapshot)
      [] e.action = "AdvanceHighWatermark" -> AdvanceHighWatermark(e.node)
      [] e.action = "Restart"              -> ComeBack(e.node, e.highWatermark)

\* What the voter says of itself after the step.
Agrees(e) ==
    /\ epoch'[e.node] = e.epoch
    /\ EndOffset(log'[e.node]) = e.leo
    /\ LastEpoch(log'[e.node]) = e.lastEpoch
    /\ highWatermark'[e.node] = e.highWatermark

HistoryAfter(v) ==
    /\ reigns' =
        IF role'[v] = "leader" /\ (epoch'[v] \in DOMAIN reigns => reigns[epoch'[v]].leader = v)
        THEN (epoch'[v] :> [leader |-> v, log |-> log'[v], highWatermark |-> highWatermark'[v]]) @@ reigns
        ELSE reigns
    /\ had' = IF epoch'[v] = epoch[v] THEN had ELSE [had EXCEPT ![v] = (epoch[v] :> log[v]) @@ @]
    /\ given' =
        IF votedFor'[v] = Nobody THEN given
        ELSE given \cup {[voter |-> v, epoch |-> epoch'[v], candidate |-> votedFor'[v]]}
    /\ committed' = IF highWatermark'[v] > EndOffset(committed) THEN Prefix(log'[v], highWatermark'[v])
                  ELSE committed

\* What every state on the way must keep, whoever has forgotten it.
KeepsPromises ==
    /\ HighWatermarkBound
    /\ \A v \in Voters : role[v] = "leader" => Led(v)
    /\ \A v \in Voters : IsPrefix(Committed(v), committed)
    /\ \A l \in Voters : role[l] = "leader" /\ (\A w \in Voters : epoch[w] <= epoch[l]) => IsPrefix(committed, log[l])

TraceNext ==
    /\ at <= Len(Traces[trace])
    /\ StepOf(Event)
    /\ Agrees(Event)
    /\ HistoryAfter(Event.node)
    /\ Guarded => KeepsPromises'
    /\ at' = at + 1
    /\ UNCHANGED <<trace, step>>

\* Said of each trace that is accepted to its end.
Accepted == at > Len(Traces[trace]) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
