-------------------------- MODULE TraceReplication --------------------------
(***************************************************************************)
(* Traces of brokers, checked against the specification. Every event must  *)
(* be a step that the specification allows in the state after the events   *)
(* before it, and must lead to the state that the node reported.           *)
(*                                                                         *)
(* One run checks many traces: each is one initial state, and its events   *)
(* are the only steps. A trace that is not accepted ends early. TraceData, *)
(* a generated module, defines Traces.                                     *)
(*                                                                         *)
(* Unseen brokers have no events. TLC searches for the steps that they     *)
(* must have taken before a seen broker could take its next one. A trace   *)
(* is accepted if some steps of unseen brokers, each allowed by the        *)
(* specification, lead through all events.                                 *)
(***************************************************************************)
EXTENDS Late, RunLengthLog, TraceData

CONSTANTS
    Guarded,    \* whether a step that breaks a promise is refused, as if it did not exist
    Unseen      \* brokers that trace nothing

VARIABLES
    trace,      \* the number of the trace
    at,         \* the number of the next event
    isExcused,  \* whether committed records may be lost from now on
    written     \* all values that min.insync.replicas has had

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

\* Replaces Spend: traces have no budget of faults.
Free(kind) == UNCHANGED faults
\* Replaces MayLose: any crashed broker may lack a tail, also when the cluster cannot bear it.
TraceMayLose(b) == status[b] = "crashed"

\* Replaces HasReplayed. A broker may have replayed the metadata before the trace began. A broker that is no replica
\* any more may keep its old log.
TraceHasReplayed(b) ==
    metadata[b].leaderEpoch > 0 \/ registry[b].brokerEpoch = 1 \/ b \notin metadata[b].replicas \cap partition.replicas

\* Whether this step elects a leader from outside of ISR and ELR.
IsUnclean == partition'.leader \notin {partition.leader, None} \cup partition.isr \cup partition.elr

\* Replaces Learnt. A broker may replay min.insync.replicas before the records that were written under it, or adopt
\* the ISR of an AlterPartition response before it has replayed the setting. The event has the value that the broker
\* uses, which must be one that was written at some time.
TraceLearnt(b, record) ==
    IF "minIsr" \in DOMAIN Event THEN [record EXCEPT !.minIsr = Event.minIsr] ELSE record

LearnsMinIsr(l, minIsr) ==
    /\ Leads(l)
    /\ metadata' = [metadata EXCEPT ![l].minIsr = minIsr]
    /\ UNCHANGED <<controllerVars, status, log, highWatermark, progress, pending, truncating, clientVars, environmentVars, step>>

-----------------------------------------------------------------------------
\* Clients: a batch is one event.  `consumed` is the longest log prefix that was acknowledged or read.
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

\* An event may have the broker epoch of the follower's incarnation that sent the fetch.
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

\* Whether the state after the step is what the node, or the controller, reported.
Agrees(e) ==
    IF e.node = "controller"
    THEN partition' = e.partition
    ELSE /\ EndOffset(log'[e.node]) = e.leo
         /\ highWatermark'[e.node] = e.hw
         /\ metadata'[e.node].leaderEpoch = e.currentEpoch
         /\ "members" \in DOMAIN e => metadata'[e.node].isr = e.members
         /\ "minIsr" \in DOMAIN e => metadata'[e.node].minIsr = e.minIsr /\ e.minIsr \in written

\* The promises that every state must keep.
KeepsPromises ==
    /\ HighWatermarkBound
    /\ NoFencedMemberInIsr
    /\ isExcused \/ \A l \in Brokers : IsCurrentLeader(l) =>
        /\ IsPrefix(consumed, log[l])
        /\ \A b \in Brokers : IsPrefix(Committed(b), log[l])
    /\ isExcused \/ EligibleAreComplete

\* Events that only extend a log, or count a follower's progress: prefixes stay prefixes, so most promises need no
\* check.
OnlyAdds == Event.action \in {"Produce", "AnswerFetch", "AppendFetched"}

\* The state of the check itself. Committed records may be lost after an unclean election, and while
\* min.insync.replicas or more brokers lack a tail.
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
\* Unseen brokers.  They take a step only where the next event needs it, and only towards that event.  So the search
\* is not complete, but what it finds is a behaviour of the specification.

\* Steps of an unseen follower, until it may send the fetch of the event.
Fetches(f, l, end) ==
    /\ f \in Unseen
    /\ IF metadata[f].leaderEpoch # metadata[l].leaderEpoch
       THEN \E r \in published :
                \/ r.leaderEpoch = metadata[l].leaderEpoch /\ BecomeFollower(f, r)
                \/ GiveUpReplica(f, r)
       ELSE Truncate(f, l) \/ (EndOffset(log[f]) < end /\ AppendFetched(f, l, end))

\* Steps until an unseen leader knows that a follower has all records up to `end`.
Reaches(l, f, end) ==
    \/ Fetches(f, l, end)
    \/ \E t \in FetchesOf(f, l) : t.end >= end /\ AnswerFetch(l, f, t)

KnownOffsets == {EndOffset(consumed)} \cup {EndOffset(log[b]) : b \in Brokers} \cup {highWatermark[b] : b \in Brokers}

\* Steps of an unseen broker, until it leads the leader epoch; it may have fetched before.
TakesOver(b, ledEpoch) ==
    \/ \E r \in published : r.leaderEpoch = ledEpoch /\ BecomeLeader(b, r)
    \/ \E l \in Brokers \ {b} :
        \/ Truncate(b, l)
        \/ \E end \in KnownOffsets :
            \/ EndOffset(log[b]) < end /\ AppendFetched(b, l, end)
            \/ highWatermark[b] < end /\ AdoptHighWatermark(b, l, end)

\* An unseen leader learns the ISR that the controller wrote.
Settles(b) == \E r \in published : CommitIsr(b, r)

\* Steps until an unseen leader's high watermark is `end`.
Commits(b, end) ==
    LET behind == {f \in MaximalIsr(b) \ {b} : progress[b][f].end < end}
    IN  \/ Settles(b)
        \/ IF behind = {} THEN AdvanceHighWatermark(b, end) ELSE Reaches(b, CHOOSE f \in behind : TRUE, end)

\* Steps of an unseen leader, until a seen follower can take the event's step.
Serves(b, e) ==
    IF metadata[b].leaderEpoch # metadata[e.follower].leaderEpoch THEN TakesOver(b, metadata[e.follower].leaderEpoch)
    ELSE CASE e.action = "AppendFetched"      -> EndOffset(log[b]) < e.end /\ ProduceBatch(b, "one", e.end)
           [] e.action = "AdoptHighWatermark" -> highWatermark[b] < e.highWatermark /\ Commits(b, e.highWatermark)
           [] OTHER                           -> FALSE

Greater(a, b) == IF a > b THEN a ELSE b

\* Steps of an unseen leader, until the controller can accept the proposal of the event. A member that left the ISR
\* lacked a record, which may be in no event. A member that joined has fetched in its present incarnation.
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

\* An unseen broker ends and starts again, and loses nothing.
Returns(b) == Crash(b) \/ ShutDown(b) \/ Restart(b, EndOffset(log[b]), highWatermark[b])

Replays(b) ==
    /\ ~HasReplayed(b)
    /\ \E r \in published : BecomeLeader(b, r) \/ BecomeFollower(b, r)

NeedsLeader == {"AppendFetched", "AdoptHighWatermark", "Truncate"}

\* The next step of an unseen broker towards this event.
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

\* Prints each trace that is accepted to its end.
Accepted == at > Len(Traces[trace].events) => PrintT(<<"accepted", trace>>)

TraceSpec == TraceInit /\ [][TraceNext]_traceVars
=============================================================================
