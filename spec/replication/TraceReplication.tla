-------------------------- MODULE TraceReplication --------------------------
(***************************************************************************)
(* Traces of the broker, checked against the specification: every event    *)
(* must be a step that the specification allows in the state that the      *)
(* events before it led to, and must lead to what the node said of itself. *)
(*                                                                         *)
(* Many traces are checked in one run: each is one initial state, its      *)
(* events are the only steps.  A trace that is not accepted ends early.    *)
(* The generated module TraceData defines Traces.                          *)
(***************************************************************************)
EXTENDS Late, RunLengthLog, TraceData

CONSTANT Guarded    \* is a step that breaks a promise refused as if it did not exist

VARIABLES
    trace,      \* which of the traces
    at,         \* the next event's place
    isExcused,  \* may committed records be gone
    written     \* what min.insync.replicas has been

traceVars == <<vars, historyVars, trace, at, isExcused, written>>

Event == Traces[trace].events[at]

TraceInit ==
    /\ trace \in DOMAIN Traces
    /\ at = 1
    /\ isExcused = FALSE
    /\ written = {Traces[trace].first.minIsr}
    /\ LET first == Traces[trace].first
       IN  /\ partition = first
           /\ published = {first}
           /\ metadata  = [b \in Brokers |-> IF b \in first.replicas THEN NoMetadata ELSE NoReplicaSince(0)]
           /\ log       = Traces[trace].logs
           /\ highWatermark = Traces[trace].highWatermarks
    /\ registry      = [b \in Brokers |-> [brokerEpoch |-> 1, fenced |-> b \in Traces[trace].fenced]]
    /\ status        = [b \in Brokers |-> "running"]
    /\ progress      = [b \in Brokers |-> NoProgress]
    /\ pending       = [b \in Brokers |-> None]
    /\ truncating    = [b \in Brokers |-> FALSE]
    /\ sent          = <<>>
    /\ acknowledged  = {}
    /\ consumed      = <<>>
    /\ faults        = Faults
    /\ lostTail      = {}
    /\ step          = <<>>
    /\ InitHistory

\* Faults are not rationed here, and the cluster may lose more than it can bear.
Free(kind) == UNCHANGED faults
TraceMayLose(b) == status[b] = "crashed"

\* A broker may have replayed the metadata before the trace began, and may keep a log that it has no use for.
TraceHasReplayed(b) ==
    metadata[b].leaderEpoch > 0 \/ registry[b].brokerEpoch = 1 \/ b \notin metadata[b].replicas \cap partition.replicas

\* Nothing is promised any more once a broker leads that was not eligible, or too many are short of a tail.
IsUnclean == partition'.leader \notin {partition.leader, None} \cup partition.isr \cup partition.elr

\* A broker may replay a setting before the records that were written with it, or take the ISR out of an answer before it
\* has replayed the setting; of what has been written it says what it goes by.
TraceLearnt(b, record) ==
    IF "minIsr" \in DOMAIN Event THEN [record EXCEPT !.minIsr = Event.minIsr] ELSE record

LearnsMinIsr(l, minIsr) ==
    /\ Leads(l)
    /\ metadata' = [metadata EXCEPT ![l].minIsr = minIsr]
    /\ UNCHANGED <<controllerVars, status, log, highWatermark, progress, pending, truncating, clientVars, environmentVars, step>>

-----------------------------------------------------------------------------
\* Clients: a batch is one event, and what was promised is one log: the one
\* that held the record acknowledged or read last.
ProduceBatch(l, acks, end) ==
    /\ Accepts(l, acks)
    /\ end > EndOffset(log[l])
    /\ log' = [log EXCEPT ![l] = RunExtend(@, metadata[l].leaderEpoch, end)]
    /\ UNCHANGED <<controllerVars, status, highWatermark, roleVars, clientVars, environmentVars, step>>

Promise(b, end) ==
    /\ Running(b)
    /\ end <= highWatermark[b]
    /\ IF end > EndOffset(consumed) THEN consumed' = Prefix(log[b], end)
       ELSE (isExcused \/ Prefix(log[b], end) = Prefix(consumed, end)) /\ UNCHANGED consumed
    /\ UNCHANGED <<controllerVars, replicaVars, sent, acknowledged, environmentVars, step>>

\* A leader may say of which of the follower's incarnations the fetch is.
IsOfIncarnation(fetch, e) == "incarnation" \in DOMAIN e => fetch.brokerEpoch = e.incarnation

Newest(records, partitionEpoch) == {r \in records : r.partitionEpoch = partitionEpoch}

StepOf(e) ==
    CASE e.action = "RegisterBroker"       -> RegisterBroker(e.broker)
      [] e.action = "UnfenceBroker"        -> UnfenceBroker(e.broker)
      [] e.action = "FenceBroker"          -> FenceBroker(e.broker)
      [] e.action = "ControlledShutdown"   -> ControlledShutdown(e.broker)
      [] e.action = "AlterPartition"       -> AlterPartition(e.leader)
      [] e.action = "ElectLeader"          -> ElectLeader(e.broker)
      [] e.action = "ElectUncleanLeader"   -> ElectUncleanLeader(e.broker)
      [] e.action = "Reassign"             -> Reassign(e.replicas)
      [] e.action = "CallOffReassignment"  -> CallOffReassignment
      [] e.action = "ChangeMinIsr"         -> ChangeMinIsr(e.minIsr)
      [] e.action = "BecomeLeader"         -> \E r \in Newest(published, e.partitionEpoch) : BecomeLeader(e.broker, r)
      [] e.action = "BecomeFollower"       -> \E r \in Newest(published, e.partitionEpoch) : BecomeFollower(e.broker, r)
      [] e.action = "CommitIsr"            -> \E r \in Newest(published, e.partitionEpoch) : CommitIsr(e.leader, r)
      [] e.action = "LearnMinIsr"          -> LearnsMinIsr(e.leader, e.minIsr)
      [] e.action = "GiveUpReplica"        -> \E r \in published : GiveUpReplica(e.broker, r)
      [] e.action = "AnswerFetch"          -> \E t \in FetchesOf(e.follower, e.leader) :
                                                  t.end = e.end /\ IsOfIncarnation(t, e) /\ AnswerFetch(e.leader, e.follower, t)
      [] e.action = "AppendFetched"        -> AppendFetched(e.follower, e.leader, e.end)
      [] e.action = "AdoptHighWatermark"   -> AdoptHighWatermark(e.follower, e.leader, e.highWatermark)
      [] e.action = "Truncate"             -> Truncate(e.follower, e.leader)
      [] e.action = "AdvanceHighWatermark" -> AdvanceHighWatermark(e.leader, e.highWatermark)
      [] e.action = "ExpandIsr"            -> ExpandIsr(e.leader, e.follower)
      [] e.action = "ShrinkIsr"            -> ShrinkIsr(e.leader, e.follower)
      [] e.action = "RollBackIsr"          -> RollBackIsr(e.leader)
      [] e.action = "Crash"                -> Crash(e.broker)
      [] e.action = "ShutDown"             -> ShutDown(e.broker)
      [] e.action = "Restart"              -> Restart(e.broker, e.end, e.highWatermark)
      [] e.action = "Produce"              -> ProduceBatch(e.leader, e.acks, e.end)
      [] e.action = "Retry"                -> ProduceBatch(e.leader, "all", e.end)
      [] e.action = "Acknowledge"          -> Leads(e.leader) /\ Promise(e.leader, e.end)
      [] e.action = "Consume"              -> Promise(e.broker, e.end)

\* What the node, or the controller, says of itself after the step.
Agrees(e) ==
    IF e.node = "controller"
    THEN partition' = e.partition
    ELSE /\ EndOffset(log'[e.node]) = e.leo
         /\ highWatermark'[e.node] = e.hw
         /\ metadata'[e.node].leaderEpoch = e.currentEpoch
         /\ "members" \in DOMAIN e => metadata'[e.node].isr = e.members
         /\ "minIsr" \in DOMAIN e => metadata'[e.node].minIsr = e.minIsr /\ e.minIsr \in written

\* What every state on the way must keep.
KeepsPromises ==
    /\ HighWatermarkBound
    /\ NoFencedMemberInIsr
    /\ isExcused \/ \A l \in Brokers : IsCurrentLeader(l) =>
        /\ IsPrefix(consumed, log[l])
        /\ \A b \in Brokers : IsPrefix(Committed(b), log[l])
    /\ isExcused \/ EligibleAreComplete

\* Most events only make a log longer, or count what a follower has: what was
\* a prefix of it still is one.
OnlyAdds == Event.action \in {"Produce", "AnswerFetch", "AppendFetched"}

TraceNext ==
    /\ at <= Len(Traces[trace].events)
    /\ StepOf(Event)
    /\ Agrees(Event)
    /\ HistoryAfter
    /\ isExcused' = (isExcused \/ IsUnclean \/ Cardinality(lostTail') >= RequiredIsr(partition'))
    /\ written' = written \cup {partition'.minIsr}
    /\ Guarded => IF OnlyAdds THEN (HighWatermarkBound /\ NoFencedMemberInIsr)' ELSE KeepsPromises'
    /\ at' = at + 1
    /\ UNCHANGED trace

\* Said of each trace that is accepted to its end.
Accepted == at > Len(Traces[trace].events) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
