-------------------------- MODULE TraceReplication --------------------------
(***************************************************************************)
(* Traces of the broker, checked against the specification: every event    *)
(* must be a step that the specification allows in the state that the      *)
(* events before it led to, and must lead to what the node said of itself. *)
(*                                                                         *)
(* Many traces are checked in one run: each is one initial state, its      *)
(* events are the only steps.  A trace that is not accepted ends early.    *)
(* The generated module TraceData defines Traces.                          *)
(*                                                                         *)
(* Of brokers that are unseen there are no events.  What they must have    *)
(* done so that a broker that is seen could take its next step is searched *)
(* for: a trace is accepted where some steps of theirs, each one that the  *)
(* specification allows, lead through all events.                          *)
(***************************************************************************)
EXTENDS Late, RunLengthLog, TraceData

CONSTANTS
    Guarded,    \* is a step that breaks a promise refused as if it did not exist
    Unseen      \* brokers that trace nothing

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

After ==
    /\ HistoryAfter
    /\ isExcused' = (isExcused \/ IsUnclean \/ Cardinality(lostTail') >= RequiredIsr(partition'))
    /\ written' = written \cup {partition'.minIsr}
    /\ UNCHANGED trace

Seen ==
    /\ StepOf(Event)
    /\ Agrees(Event)
    /\ After
    /\ Guarded => IF OnlyAdds THEN (HighWatermarkBound /\ NoFencedMemberInIsr)' ELSE KeepsPromises'
    /\ at' = at + 1

-----------------------------------------------------------------------------
\* Brokers that are unseen.  They move only where the next event needs a step
\* of theirs, and only towards what it needs: the search is not of all that
\* they may have done, but what it finds is a behaviour.

\* What an unseen follower does until its fetch can show an end.
Fetches(f, l, end) ==
    /\ f \in Unseen
    /\ IF metadata[f].leaderEpoch # metadata[l].leaderEpoch
       THEN \E r \in published :
                \/ r.leaderEpoch = metadata[l].leaderEpoch /\ BecomeFollower(f, r)
                \/ GiveUpReplica(f, r)
       ELSE Truncate(f, l) \/ (EndOffset(log[f]) < end /\ AppendFetched(f, l, end))

\* What brings an unseen leader to know that a follower has all up to an end.
Reaches(l, f, end) ==
    \/ Fetches(f, l, end)
    \/ \E t \in FetchesOf(f, l) : t.end >= end /\ AnswerFetch(l, f, t)

KnownOffsets == {EndOffset(consumed)} \cup {EndOffset(log[b]) : b \in Brokers} \cup {highWatermark[b] : b \in Brokers}

\* An unseen broker comes to lead, with what it may have fetched before.
TakesOver(b, ledEpoch) ==
    \/ \E r \in published : r.leaderEpoch = ledEpoch /\ BecomeLeader(b, r)
    \/ \E l \in Brokers \ {b} :
        \/ Truncate(b, l)
        \/ \E end \in KnownOffsets :
            \/ EndOffset(log[b]) < end /\ AppendFetched(b, l, end)
            \/ highWatermark[b] < end /\ AdoptHighWatermark(b, l, end)

Settles(b) == \E r \in published : CommitIsr(b, r)

Commits(b, end) ==
    LET behind == {f \in MaximalIsr(b) \ {b} : progress[b][f].end < end}
    IN  \/ Settles(b)
        \/ IF behind = {} THEN AdvanceHighWatermark(b, end) ELSE Reaches(b, CHOOSE f \in behind : TRUE, end)

Serves(b, e) ==
    IF metadata[b].leaderEpoch # metadata[e.follower].leaderEpoch THEN TakesOver(b, metadata[e.follower].leaderEpoch)
    ELSE CASE e.action = "AppendFetched"      -> EndOffset(log[b]) < e.end /\ ProduceBatch(b, "one", e.end)
           [] e.action = "AdoptHighWatermark" -> highWatermark[b] < e.highWatermark /\ Commits(b, e.highWatermark)
           [] OTHER                           -> FALSE

Greater(a, b) == IF a > b THEN a ELSE b

\* A member that left the ISR lacked a record that nothing else may show.  One
\* that came back fetches in its new incarnation before it is admitted.
Proposes(b, e) ==
    IF metadata[b].leaderEpoch # partition.leaderEpoch THEN TakesOver(b, partition.leaderEpoch)
    ELSE IF pending[b] # None \/ metadata[b].partitionEpoch # partition.partitionEpoch THEN Settles(b)
    ELSE \/ \E f \in e.partition.isr \ partition.isr :
                LET end == Greater(highWatermark[b], StartOffsetOf(log[b], metadata[b].leaderEpoch))
                    isOld == progress[b][f].brokerEpoch # registry[f].brokerEpoch
                IN  IF progress[b][f].end < end \/ isOld THEN Reaches(b, f, end) ELSE ExpandIsr(b, f)
         \/ \E f \in partition.isr \ e.partition.isr :
                IF progress[b][f].end < EndOffset(log[b]) THEN ShrinkIsr(b, f)
                ELSE ProduceBatch(b, "one", EndOffset(log[b]) + 1)

\* A broker that comes back has all that it had.
Returns(b) == Crash(b) \/ ShutDown(b) \/ Restart(b, EndOffset(log[b]), highWatermark[b])

Replays(b) ==
    /\ ~HasReplayed(b)
    /\ \E r \in published : BecomeLeader(b, r) \/ BecomeFollower(b, r)

NeedsLeader == {"AppendFetched", "AdoptHighWatermark", "Truncate"}

UnseenFor(e) ==
    CASE e.action \in NeedsLeader    -> e.leader \in Unseen /\ Serves(e.leader, e)
      [] e.action = "AnswerFetch"    -> Fetches(e.follower, e.leader, e.end)
      [] e.action = "AlterPartition" -> e.leader \in Unseen /\ Proposes(e.leader, e)
      [] e.action = "RegisterBroker" -> e.broker \in Unseen /\ Returns(e.broker)
      [] e.action = "UnfenceBroker"  -> e.broker \in Unseen /\ Replays(e.broker)
      [] OTHER                       -> FALSE

NotSeen ==
    /\ Unseen # {}
    /\ UnseenFor(Event)
    /\ After
    /\ Guarded => KeepsPromises'
    /\ UNCHANGED at

TraceNext == at <= Len(Traces[trace].events) /\ (Seen \/ NotSeen)

\* Said of each trace that is accepted to its end.
Accepted == at > Len(Traces[trace].events) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
