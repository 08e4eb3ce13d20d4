------------------------------ MODULE Replica -------------------------------
(***************************************************************************)
(* Chapter 4: the replicas. A broker acts by the metadata that it has      *)
(* replayed: in a leader epoch it leads or follows. Followers fetch, and a *)
(* follower's fetch offset is its log end offset. The high watermark is at *)
(* most the least log end offset in the maximal ISR. A follower whose log  *)
(* diverges from the leader's truncates it to the point where both agree.  *)
(***************************************************************************)
EXTENDS Controller

\* The records that the broker may replay next.
Unreplayed(b) == {r \in published : Replayable(b, r, metadata, status)}

\* The record by which the broker acts. It has the min.insync.replicas that it was written under: the leader that
\* commits and the controller that keeps the ELR judge by the same value.
Learnt(b, record) ==
    IF On("CommitBeforeMinIsr") /\ Leads(b) THEN [record EXCEPT !.minIsr = metadata[b].minIsr] ELSE record

\* The broker acts by the record from now on; records that no broker needs any more are dropped.
Replay(b, record) ==
    /\ metadata' = [metadata EXCEPT ![b] = Learnt(b, record)]
    /\ published' = Wanted(published, partition, metadata', status)

\* The record makes the broker the leader of a newer leader epoch. It does not know the followers' progress yet.
BecomeLeader(b, record) ==
    /\ record \in Unreplayed(b)
    /\ record.leader = b
    /\ record.leaderEpoch > metadata[b].leaderEpoch
    /\ Replay(b, record)
    /\ progress' = [progress EXCEPT ![b] = NoProgress]
    /\ pending' = [pending EXCEPT ![b] = None]
    /\ truncating' = [truncating EXCEPT ![b] = FALSE]
    /\ Step("BecomeLeader", [broker |-> b, leaderEpoch |-> record.leaderEpoch, partitionEpoch |-> record.partitionEpoch])
    /\ UNCHANGED <<partition, registry, status, log, highWatermark, clientVars, environmentVars>>

\* The record has a newer leader epoch and another leader, or none: then there is none to fetch from.
BecomeFollower(b, record) ==
    /\ record \in Unreplayed(b)
    /\ b \in record.replicas /\ record.leader # b
    /\ record.leaderEpoch > metadata[b].leaderEpoch
    /\ Replay(b, record)
    /\ progress' = [progress EXCEPT ![b] = NoProgress]
    /\ pending' = [pending EXCEPT ![b] = None]
    /\ truncating' = [truncating EXCEPT ![b] = On("TruncateByRequestedEpoch") \/ On("TruncateWithoutFencing")]
    /\ log' = IF On("TruncateToHighWatermark") THEN [log EXCEPT ![b] = Prefix(@, highWatermark[b])] ELSE log
    /\ Step("BecomeFollower", [broker |-> b, leaderEpoch |-> record.leaderEpoch, partitionEpoch |-> record.partitionEpoch])
    /\ UNCHANGED <<partition, registry, status, highWatermark, clientVars, environmentVars>>

\* The leader learns the ISR that the controller wrote, from the AlterPartition response or by replay. Either resolves
\* the pending proposal.
CommitIsr(l, record) ==
    /\ record \in Unreplayed(l)
    /\ Leads(l)
    /\ record.leaderEpoch = metadata[l].leaderEpoch
    /\ Replay(l, record)
    /\ pending' = [pending EXCEPT ![l] = None]
    /\ Step("CommitIsr", [leader |-> l, partitionEpoch |-> record.partitionEpoch])
    /\ UNCHANGED <<partition, registry, status, log, highWatermark, progress, truncating, clientVars, environmentVars>>

\* The leader replays a change of min.insync.replicas.
LearnMinIsr(l) ==
    /\ Leads(l)
    /\ metadata[l].partitionEpoch = partition.partitionEpoch
    /\ metadata[l].minIsr # partition.minIsr
    /\ metadata' = [metadata EXCEPT ![l] = partition]
    /\ published' = Wanted(published, partition, metadata', status)
    /\ Step("LearnMinIsr", [leader |-> l, minIsr |-> partition.minIsr])
    /\ UNCHANGED <<partition, registry, status, log, highWatermark, progress, pending, truncating, clientVars, environmentVars>>

\* The broker is no replica any more: it deletes its log.
GiveUpReplica(b, record) ==
    /\ record \in Unreplayed(b)
    /\ b \notin record.replicas
    /\ Replay(b, NoReplicaSince(record.partitionEpoch))
    /\ log' = [log EXCEPT ![b] = <<>>]
    /\ highWatermark' = [highWatermark EXCEPT ![b] = 0]
    /\ progress' = [progress EXCEPT ![b] = NoProgress]
    /\ pending' = [pending EXCEPT ![b] = None]
    /\ truncating' = [truncating EXCEPT ![b] = FALSE]
    /\ Step("GiveUpReplica", [broker |-> b])
    /\ UNCHANGED <<partition, registry, status, clientVars, environmentVars>>

-----------------------------------------------------------------------------
\* Whether the fetch is fenced, because follower and leader act in different leader epochs (KIP-320).
Fenced(f, l) ==
    /\ metadata[f].leaderEpoch # metadata[l].leaderEpoch
    /\ ~On("FetchWithoutFencing") /\ ~On("TruncateWithoutFencing")

\* Whether a fetch detects divergence (KIP-595). Before, a fetch compared no epochs: it was refused only where its
\* offset was beyond the leader's log end (OFFSET_OUT_OF_RANGE).
DetectsOnFetch == Bugs \cap {"TruncateToHighWatermark", "TruncateByRequestedEpoch", "TruncateWithoutFencing"} = {}

LogsPart(leaderRecords, end, lastEpoch) ==
    IF DetectsOnFetch THEN Diverges(leaderRecords, end, lastEpoch) ELSE end > EndOffset(leaderRecords)

\* What follower and leader see of each other. In the atomic grain each sees the other's present state. In Late each
\* sees a state of some moment in the same leader epoch: configurations replace the operators from here to FetchesOf.
MayFetch(f, l) ==
    /\ Running(f) /\ f # l /\ metadata[f].leader = l
    /\ Leads(l) /\ f \in metadata[l].replicas
    /\ ~Fenced(f, l)

FetchedLog(f, l) == log[l]
FetchedHighWatermarks(f, l) == {highWatermark[l]}

\* The fetches that the leader may receive from the follower: none, or one.
FetchesOf(f, l) ==
    IF ~MayFetch(f, l) \/ truncating[f] THEN {}
    ELSE {[end |-> EndOffset(log[f]), lastEpoch |-> LastEpoch(log[f]), brokerEpoch |-> registry[f].brokerEpoch]}

\* Whether the leader has seen a newer incarnation of the follower than the fetch is of. Such a fetch does not count:
\* the follower may have lost records since (KIP-903).
IsOfFormerIncarnation(l, f, brokerEpoch) == brokerEpoch < progress[l][f].brokerEpoch /\ ~On("FetchOfFormerIncarnation")

\* The leader handles a fetch that does not diverge: it learns the follower's log end offset and broker epoch.
AnswerFetch(l, f, fetch) ==
    /\ Leads(l) /\ f \in metadata[l].replicas
    /\ fetch \in FetchesOf(f, l)
    /\ ~IsOfFormerIncarnation(l, f, fetch.brokerEpoch)
    /\ ~LogsPart(log[l], fetch.end, fetch.lastEpoch)
    /\ LET reached == [end |-> fetch.end, brokerEpoch |-> fetch.brokerEpoch]
       IN  /\ progress[l][f] # reached
           /\ progress' = [progress EXCEPT ![l][f] = reached]
    /\ Step("AnswerFetch", [leader |-> l, follower |-> f, end |-> fetch.end])
    /\ UNCHANGED <<controllerVars, status, log, highWatermark, metadata, pending, truncating, clientVars, environmentVars>>

\* Whether the follower may use what it fetches: its log does not diverge.
IsInLine(f, l) ==
    /\ MayFetch(f, l)
    /\ ~truncating[f]
    /\ ~LogsPart(FetchedLog(f, l), EndOffset(log[f]), LastEpoch(log[f]))

\* The follower appends the next records of the leader's log.
AppendFetched(f, l, end) ==
    /\ IsInLine(f, l)
    /\ EndOffset(log[f]) < end /\ end <= EndOffset(FetchedLog(f, l))
    /\ log' = [log EXCEPT ![f] = IF DetectsOnFetch THEN Prefix(FetchedLog(f, l), end)
                                 ELSE @ \o SubSeq(log[l], Len(@) + 1, end)]
    /\ Step("AppendFetched", [follower |-> f, leader |-> l, end |-> end])
    /\ UNCHANGED <<controllerVars, status, highWatermark, roleVars, clientVars, environmentVars>>

\* The follower adopts the leader's high watermark, up to its own log end offset.
AdoptHighWatermark(f, l, fetched) ==
    /\ IsInLine(f, l)
    /\ fetched \in FetchedHighWatermarks(f, l)
    /\ LET adopted == Min(fetched, EndOffset(log[f]))
       IN  /\ highWatermark[f] # adopted
           /\ highWatermark' = [highWatermark EXCEPT ![f] = adopted]
           /\ Step("AdoptHighWatermark", [follower |-> f, leader |-> l, highWatermark |-> adopted])
    /\ UNCHANGED <<controllerVars, status, log, roleVars, clientVars, environmentVars>>

\* The follower's log diverges from the leader's. The follower truncates it to the point where both agree, as far as
\* one exchange shows that point.
Truncate(f, l) ==
    /\ MayFetch(f, l)
    /\ truncating[f] \/ LogsPart(FetchedLog(f, l), EndOffset(log[f]), LastEpoch(log[f]))
    /\ LET found == EndOffsetFor(FetchedLog(f, l), LastEpoch(log[f]))
           point == IF ~DetectsOnFetch /\ ~truncating[f] THEN EndOffset(log[l])
                    ELSE IF On("TruncateByRequestedEpoch") THEN Min(found.end, EndOffset(log[f]))
                    ELSE TruncationPoint(log[f], found)
           settled == On("TruncateByRequestedEpoch") \/ point = EndOffset(log[f])
       IN  /\ log' = [log EXCEPT ![f] = Prefix(@, point)]
           /\ highWatermark' = [highWatermark EXCEPT ![f] = Min(@, point)]
           /\ truncating' = [truncating EXCEPT ![f] = @ /\ ~settled]
           /\ Step("Truncate", [follower |-> f, leader |-> l, end |-> point])
    /\ UNCHANGED <<controllerVars, status, metadata, progress, pending, clientVars, environmentVars>>

-----------------------------------------------------------------------------
\* Whether the leader's ISR is smaller than min.insync.replicas.
UnderMinIsr(l) == Cardinality(metadata[l].isr) < RequiredIsr(metadata[l]) /\ ~On("IgnoreMinIsr")

\* The log end offset of a replica, as far as the leader knows.
EndOf(l, b) == IF b = l THEN EndOffset(log[l]) ELSE progress[l][b].end

\* A record is committed once every member of the maximal ISR has it. The leader may advance later than this rule
\* allows: Kafka's leader also waits for caught-up followers that are about to join the ISR.
AdvanceHighWatermark(l, offset) ==
    /\ Leads(l)
    /\ ~UnderMinIsr(l)
    /\ LET counted == IF On("IgnoreProposedIsr") THEN metadata[l].isr ELSE MaximalIsr(l)
       IN  \A b \in counted \cup {l} : offset <= EndOf(l, b)
    /\ highWatermark[l] < offset
    /\ highWatermark' = [highWatermark EXCEPT ![l] = offset]
    /\ Step("AdvanceHighWatermark", [leader |-> l, highWatermark |-> offset])
    /\ UNCHANGED <<controllerVars, status, log, roleVars, clientVars, environmentVars>>

-----------------------------------------------------------------------------
\* The leader sends AlterPartition, with the broker epochs of the members that it has seen (KIP-903).
Propose(l, isr) ==
    pending' = [pending EXCEPT ![l] =
        [isr            |-> isr,
         brokerEpochs   |-> [b \in isr |-> IF b = l THEN registry[l].brokerEpoch ELSE progress[l][b].brokerEpoch],
         leaderEpoch    |-> metadata[l].leaderEpoch,
         partitionEpoch |-> metadata[l].partitionEpoch]]

\* A follower may join the ISR once it has reached the high watermark and the start of the leader epoch. The second
\* condition is needed because a new leader's high watermark may be lower than its predecessor's.
ExpandIsr(l, f) ==
    /\ Leads(l)
    /\ pending[l] = None
    /\ f \in metadata[l].replicas \ (metadata[l].isr \cup {l})
    /\ progress[l][f].end >= highWatermark[l]
    /\ progress[l][f].end >= StartOffsetOf(log[l], metadata[l].leaderEpoch)
    /\ Propose(l, metadata[l].isr \cup {f})
    /\ Step("ExpandIsr", [leader |-> l, follower |-> f])
    /\ UNCHANGED <<controllerVars, status, log, highWatermark, metadata, progress, truncating, clientVars, environmentVars>>

\* A member that has not caught up for replica.lag.time.max.ms is removed from the ISR.
ShrinkIsr(l, f) ==
    /\ Leads(l)
    /\ pending[l] = None
    /\ f \in metadata[l].isr \ {l}
    /\ progress[l][f].end < EndOffset(log[l])
    /\ Spend("shrink")
    /\ Propose(l, metadata[l].isr \ {f})
    /\ Step("ShrinkIsr", [leader |-> l, follower |-> f])
    /\ UNCHANGED <<controllerVars, status, log, highWatermark, metadata, progress, truncating, clientVars, lostTail>>

\* Whether the controller refuses the proposal because of a member (INELIGIBLE_REPLICA). Such a proposal never took
\* effect, so the leader drops it. A proposal that is refused as stale stays pending until metadata shows its outcome:
\* an earlier copy of it may have been accepted.
WasRefused(l) == IsForThisEpoch(pending[l]) /\ Ineligible(pending[l]) # {}

\* The leader drops a refused proposal.
RollBackIsr(l) ==
    /\ Leads(l)
    /\ pending[l] # None
    /\ \/ WasRefused(l)
       \/ /\ On("RollBackCommittedIsr")
          /\ pending[l].leaderEpoch = partition.leaderEpoch
          /\ pending[l].partitionEpoch < partition.partitionEpoch
    /\ pending' = [pending EXCEPT ![l] = None]
    /\ Step("RollBackIsr", [leader |-> l])
    /\ UNCHANGED <<controllerVars, status, log, highWatermark, metadata, progress, truncating, clientVars, environmentVars>>

-----------------------------------------------------------------------------
\* The process ends and loses its memory. Its last AlterPartition request may still reach the controller.
Halt(b, how) ==
    /\ status' = [status EXCEPT ![b] = how]
    /\ metadata' = IF On("ServeBeforeReplay") THEN metadata ELSE [metadata EXCEPT ![b] = NoMetadata]
    /\ progress' = [progress EXCEPT ![b] = NoProgress]
    /\ truncating' = [truncating EXCEPT ![b] = FALSE]
    /\ published' = Wanted(published, partition, metadata', status')
    /\ UNCHANGED <<partition, registry, log, highWatermark, pending, clientVars, lostTail>>

Crash(b) ==
    /\ status[b] # "crashed"
    /\ status[b] # "stopped"
    /\ Spend("crash")
    /\ Halt(b, "crashed")
    /\ Step("Crash", [broker |-> b])

\* A clean shutdown, with or without a controlled shutdown before it: no record is lost.
ShutDown(b) ==
    /\ Running(b)
    /\ Spend("stop")
    /\ Halt(b, "stopped")
    /\ Step("ShutDown", [broker |-> b])

\* Whether a crash may cost this broker its tail: fewer than min.insync.replicas brokers may lack one at a time.
MayLose(b) == MayLoseTail /\ status[b] = "crashed" /\ Cardinality(lostTail \cup {b}) < MinIsr

\* The broker recovers its log, after a crash perhaps without records that were not flushed. The high watermark is the
\* checkpoint's, which may be old.
Restart(b, end, checkpoint) ==
    /\ status[b] \in {"crashed", "stopped"}
    /\ end <= EndOffset(log[b])
    /\ checkpoint <= Min(highWatermark[b], end)
    /\ IF end = EndOffset(log[b]) THEN UNCHANGED lostTail
       ELSE MayLose(b) /\ lostTail' = lostTail \cup {b}
    /\ log' = [log EXCEPT ![b] = Prefix(@, end)]
    /\ highWatermark' = [highWatermark EXCEPT ![b] = checkpoint]
    /\ status' = [status EXCEPT ![b] = IF @ = "crashed" THEN "recovered" ELSE "returned"]
    /\ pending' = [pending EXCEPT ![b] = None]
    /\ Step("Restart", [broker |-> b, end |-> end, highWatermark |-> checkpoint])
    /\ UNCHANGED <<controllerVars, metadata, progress, truncating, clientVars, faults>>
=============================================================================
