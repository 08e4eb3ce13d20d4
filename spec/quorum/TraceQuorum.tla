----------------------------- MODULE TraceQuorum -----------------------------
(***************************************************************************)
(* Traces of the metadata quorum, checked against the specification. Every *)
(* event must be a step that LateQuorum allows in the state after the      *)
(* events before it, and must lead to the state that the voter reported.   *)
(*                                                                         *)
(* One run checks many traces: each is one initial state, and its events   *)
(* are the only steps. A trace that is not accepted ends early. TraceData, *)
(* a generated module, defines Traces.                                     *)
(*                                                                         *)
(* Logs are runs (RunLengthLog). The voter that receives a granted         *)
(* pre-vote traces it. A leader that resigned stays leader until its next  *)
(* traced step.                                                            *)
(***************************************************************************)
EXTENDS LateQuorum, RunLengthLog, TraceData

CONSTANT Guarded    \* whether a step that breaks a promise is refused, as if it did not exist

VARIABLES
    trace,      \* the number of the trace
    at          \* the number of the next event

traceVars == <<vars, historyVars, trace, at>>

Event == Traces[trace][at]

TraceInit ==
    /\ trace \in DOMAIN Traces
    /\ at = 1
    /\ Init /\ InitHistory

RunEnds(runs) == {runs[i].end : i \in DOMAIN runs}

StepOf(e) ==
    CASE e.action = "BecomeProspective"    -> Stand(e.node)
      [] e.action = "GrantPreVote"         -> ReceivePreVote(e.node, e.from)
      [] e.action = "BecomeCandidate"      -> BecomeCandidate(e.node)
      [] e.action = "GrantVote"            -> \E request \in asked :
                                                  /\ request.candidate = e.to /\ request.epoch = e.epoch
                                                  /\ GrantVote(e.node, request)
      [] e.action = "BecomeLeader"         -> BecomeLeader(e.node)
      [] e.action = "LearnEpoch"          -> LearnNewerEpoch(e.node, e.from, e.epoch)
      [] e.action = "LeaveEpoch"           -> Leave(e.node)
      [] e.action = "AppendRecord"         -> AppendUpTo(e.node, e.leo)
      [] e.action = "AnswerFetch"          -> TakeFetch(e.node, e.from, e.end)
      [] e.action = "ApplyFetch"           -> TakeAnswer(e.node, e.from, e.leo, e.highWatermark, e.isSnapshot)
      [] e.action = "AdvanceHighWatermark" -> AdvanceHighWatermark(e.node)
      [] e.action = "Restart"              -> ComeBack(e.node, e.highWatermark) /\ UNCHANGED crashes

\* Whether the state after the step is what the voter reported.
Agrees(e) ==
    /\ epoch'[e.node] = e.epoch
    /\ EndOffset(log'[e.node]) = e.leo
    /\ LastEpoch(log'[e.node]) = e.lastEpoch
    /\ highWatermark'[e.node] = e.highWatermark

TraceNext ==
    /\ at <= Len(Traces[trace])
    /\ StepOf(Event)
    /\ Agrees(Event)
    /\ HistoryAfter(Event.node)
    /\ Guarded => KeepsPromises'
    /\ at' = at + 1
    /\ UNCHANGED trace

\* Prints each trace that is accepted to its end.
Accepted == at > Len(Traces[trace]) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
