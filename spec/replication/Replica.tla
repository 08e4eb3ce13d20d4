------------------------------ MODULE Replica -------------------------------
(***************************************************************************)
(* Chapter 4: the replicas.  A broker acts by the metadata that it has     *)
(* replayed: it leads a leader epoch or follows in one.  Followers pull;   *)
(* the fetch offset is the follower's log end offset; the least of the     *)
(* maximal ISR is the high watermark.  A follower whose log left the       *)
(* leader's truncates it to where they agree.                              *)
(***************************************************************************)
EXTENDS Controller

Unreplayed(b) == {r \in published : Replayable(b, r, metadata, status)}

\* A record goes with the min.insync.replicas that it was written under: who
\* may commit with so few, and who stays eligible, is judged by one and the same.
Learnt(b, record) ==
    IF On("CommitBeforeMinIsr") /\ Leads(b) THEN [record EXCEPT !.minIsr = metadata[b].minIsr] ELSE record

\* What is known of the past is forgotten with the step that replays it.
Replay(b, record) ==
    /\ metadata' = [metadata EXCEPT ![b] = Learnt(b, record)]
    /\ published' = Wanted(published, partition, metadata', status)

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

\* The record may name no leader; then there is none to fetch from.
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

\* The leader learns the ISR that the controller wrote: by the answer to its
\* proposal or by replay.  Either settles what was pending.
CommitIsr(l, record) ==
    /\ record \in Unreplayed(l)
    /\ Leads(l)
    /\ record.leaderEpoch = metadata[l].leaderEpoch
    /\ Replay(l, record)
    /\ pending' = [pending EXCEPT ![l] = None]
    /\ Step("CommitIsr", [leader |-> l, partitionEpoch |-> record.partitionEpoch])
    /\ UNCHANGED <<partition, registry, status, log, highWatermark, progress, truncating, clientVars, environmentVars>>

\* The leader replays another min.insync.replicas.
LearnMinIsr(l) ==
    /\ Leads(l)
    /\ metadata[l].partitionEpoch = partition.partitionEpoch
    /\ metadata[l].minIsr # partition.minIsr
    /\ metadata' = [metadata EXCEPT ![l] = partition]
    /\ published' = Wanted(published, partition, metadata', status)
    /\ Step("LearnMinIsr", [leader |-> l, minIsr |-> partition.minIsr])
    /\ UNCHANGED <<partition, registry, status, log, highWatermark, progress, pending, truncating, clientVars, environmentVars>>

\* The partition's replicas are others now: the log goes.
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
\* Fetching needs a leader that acts in the same leader epoch (KIP-320).
Fenced(f, l) ==
    /\ metadata[f].leaderEpoch # metadata[l].leaderEpoch
    /\ ~On("FetchWithoutFencing") /\ ~On("TruncateWithoutFencing")

\* Before KIP-595 a fetch did not compare epochs: logs that agree in length
\* were taken to agree.  A fetch beyond the leader's end is out of range.
DetectsOnFetch == Bugs \cap {"TruncateToHighWatermark", "TruncateByRequestedEpoch", "TruncateWithoutFencing"} = {}

LogsPart(leaderRecords, end, lastEpoch) ==
    IF DetectsOnFetch THEN Diverges(leaderRecords, end, lastEpoch) ELSE end > EndOffset(leaderRecords)

\* What passes between the two.  In the atomic grain each sees the other as
\* it is now; where messages take their time (Late.tla) it sees the other as
\* it was at some moment of the same leader epoch.
MayFetch(f, l) ==
    /\ Running(f) /\ f # l /\ metadata[f].leader = l
    /\ Leads(l) /\ f \in metadata[l].replicas
    /\ ~Fenced(f, l)

FetchedLog(f, l) == log[l]
FetchedHighWatermarks(f, l) == {highWatermark[l]}

FetchesOf(f, l) ==
    IF ~MayFetch(f, l) \/ truncating[f] THEN {}
    ELSE {[end |-> EndOffset(log[f]), lastEpoch |-> LastEpoch(log[f]), brokerEpoch |-> registry[f].brokerEpoch]}

\* A fetch says nothing of an incarnation that began after it was sent: what
\* the follower had then may be lost (KIP-903).
IsOfFormerIncarnation(l, f, brokerEpoch) == brokerEpoch < progress[l][f].brokerEpoch /\ ~On("FetchOfFormerIncarnation")

\* The leader takes a fetch: it learns the follower's log end offset and broker epoch.
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

\* The follower takes over the leader's high watermark, as far as its log goes.
AdoptHighWatermark(f, l, fetched) ==
    /\ IsInLine(f, l)
    /\ fetched \in FetchedHighWatermarks(f, l)
    /\ LET adopted == Min(fetched, EndOffset(log[f]))
       IN  /\ highWatermark[f] # adopted
           /\ highWatermark' = [highWatermark EXCEPT ![f] = adopted]
           /\ Step("AdoptHighWatermark", [follower |-> f, leader |-> l, highWatermark |-> adopted])
    /\ UNCHANGED <<controllerVars, status, log, roleVars, clientVars, environmentVars>>

\* The follower's log has left the leader's: it is truncated to where they
\* agree, as far as one exchange shows.
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
UnderMinIsr(l) == Cardinality(metadata[l].isr) < RequiredIsr(metadata[l]) /\ ~On("IgnoreMinIsr")

EndOf(l, b) == IF b = l THEN EndOffset(log[l]) ELSE progress[l][b].end

\* A record is committed once every member of the maximal ISR has it.  The
\* leader may be slower to say so than the rule allows (it also waits for
\* followers about to join).
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
Propose(l, isr) ==
    pending' = [pending EXCEPT ![l] =
        [isr            |-> isr,
         brokerEpochs   |-> [b \in isr |-> IF b = l THEN registry[l].brokerEpoch ELSE progress[l][b].brokerEpoch],
         leaderEpoch    |-> metadata[l].leaderEpoch,
         partitionEpoch |-> metadata[l].partitionEpoch]]

\* A follower that has all committed records, and all that the leader epoch
\* began with, is fit to join: the leader may know less of what is committed
\* than the one before it.
ExpandIsr(l, f) ==
    /\ Leads(l)
    /\ pending[l] = None
    /\ f \in metadata[l].replicas \ (metadata[l].isr \cup {l})
    /\ progress[l][f].end >= highWatermark[l]
    /\ progress[l][f].end >= StartOffsetOf(log[l], metadata[l].leaderEpoch)
    /\ Propose(l, metadata[l].isr \cup {f})
    /\ Step("ExpandIsr", [leader |-> l, follower |-> f])
    /\ UNCHANGED <<controllerVars, status, log, highWatermark, metadata, progress, truncating, clientVars, environmentVars>>

\* Members that have not caught up for replica.lag.time.max.ms are to leave.
ShrinkIsr(l, f) ==
    /\ Leads(l)
    /\ pending[l] = None
    /\ f \in metadata[l].isr \ {l}
    /\ progress[l][f].end < EndOffset(log[l])
    /\ Spend("shrink")
    /\ Propose(l, metadata[l].isr \ {f})
    /\ Step("ShrinkIsr", [leader |-> l, follower |-> f])
    /\ UNCHANGED <<controllerVars, status, log, highWatermark, metadata, progress, truncating, clientVars, lostTail>>

\* The controller refused a member: the proposal never took effect and is
\* undone.  A proposal refused as stale is kept until metadata shows its
\* outcome, for an earlier copy of it may have been accepted.
WasRefused(l) == IsForThisEpoch(pending[l]) /\ Ineligible(pending[l]) # {}

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
\* The process is gone; so is what it only held in memory.  Its last request
\* may still reach the controller.
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

\* A clean shutdown, best after the controller has allowed it; nothing is lost.
ShutDown(b) ==
    /\ Running(b)
    /\ Spend("stop")
    /\ Halt(b, "stopped")
    /\ Step("ShutDown", [broker |-> b])

\* Fewer than min.insync.replicas brokers may be short of a tail at a time.
MayLose(b) == MayLoseTail /\ status[b] = "crashed" /\ Cardinality(lostTail \cup {b}) < MinIsr

\* The log is recovered: after a crash perhaps without its un-fsynced tail.
\* The high watermark is the checkpoint's, which may be old.
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
