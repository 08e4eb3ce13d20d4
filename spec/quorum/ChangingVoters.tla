--------------------------- MODULE ChangingVoters ---------------------------
(***************************************************************************)
(* Voters that change, one at a time, by records of the log (KIP-853). A   *)
(* node uses the last voter set in its log, committed or not. An election  *)
(* is one step, and so is a fetch; Quorum.tla has their parts. This module *)
(* has two questions: do any two majorities that decide share a voter, and *)
(* can some node be elected, whatever the logs hold?                       *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Voters,                     \* every node that may become a voter
    FirstVoters,
    Epochs, Changes, Records, RecordSteps, Bugs

KnownBugs == {"SecondChangeAtOnce", "ChangeBeforeEpochIsCommitted", "RemovedLeaderCountsItself", "RemovedLeaderNeverStands"}
ASSUME Bugs \subseteq KnownBugs
ASSUME FirstVoters \subseteq Voters /\ FirstVoters # {}
On(bug) == bug \in Bugs

VARIABLES
    epoch, log,                 \* each node's, on disk; a record has an epoch, a kind, and the voters from it on
    role,                       \* "follower", "leader"
    highWatermark,
    step

stateVars == <<epoch, log, role, highWatermark>>
vars == <<stateVars, step>>

Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step

Lesser(a, b) == IF a < b THEN a ELSE b
EndOffset(records) == Len(records)
Prefix(records, end) == SubSeq(records, 1, end)
IsPrefix(a, b) == Len(a) <= Len(b) /\ a = Prefix(b, Len(a))
LastEpoch(records) == IF records = <<>> THEN 0 ELSE records[Len(records)].epoch
VotersIn(records) == IF records = <<>> THEN FirstVoters ELSE records[Len(records)].voters
VotersOf(v) == VotersIn(log[v])

\* The end offset of the last record that changed the voters, 0 without one; and the voters before it.
ChangedBefore(v) ==
    LET changes == {i \in 1..Len(log[v]) : log[v][i].kind = "voters"}
    IN  IF changes = {} THEN 0 ELSE CHOOSE i \in changes : \A j \in changes : j <= i
VotersBefore(v) == IF ChangedBefore(v) = 0 THEN {} ELSE VotersIn(Prefix(log[v], ChangedBefore(v) - 1))

Count(records, kind) == Cardinality({i \in 1..Len(records) : records[i].kind = kind})

UpToDate(v, w) ==
    \/ LastEpoch(log[v]) > LastEpoch(log[w])
    \/ LastEpoch(log[v]) = LastEpoch(log[w]) /\ Len(log[v]) >= Len(log[w])

Init ==
    /\ epoch = [v \in Voters |-> 0]
    /\ log = [v \in Voters |-> <<>>]
    /\ role = [v \in Voters |-> "follower"]
    /\ highWatermark = [v \in Voters |-> 0]
    /\ step = [action |-> "Init"]

-----------------------------------------------------------------------------
\* A node that the last change in its log removed may still be a candidate (Raft dissertation, 4.2.2). Where no other
\* node has that record, the others may need its vote, and it grants none to a shorter log. So it must be able to
\* lead. Its own vote does not count.
MayStand(v) == v \in VotersOf(v) \/ (v \in VotersBefore(v) /\ ~On("RemovedLeaderNeverStands"))

\* A whole election. Exactly a majority of the voters in the candidate's log votes for it: one vote more would only
\* move its voter into the new epoch, as a fetch does. A node votes also where it is no voter by its own log, for the
\* candidate's log may be newer.
BecomeLeader(v, granting) ==
    LET joining == granting \cup {v}
        newer == 1 + CHOOSE e \in {epoch[w] : w \in joining} : \A w \in joining : epoch[w] <= e
    IN  /\ MayStand(v)
        /\ v \in VotersOf(v) => v \in granting
        /\ granting \subseteq VotersOf(v)
        /\ Cardinality(granting) = Cardinality(VotersOf(v)) \div 2 + 1
        /\ \A w \in granting : UpToDate(v, w)
        /\ newer <= Epochs
        /\ epoch' = [w \in Voters |-> IF w \in joining THEN newer ELSE epoch[w]]
        /\ role' = [w \in Voters |-> IF w = v THEN "leader" ELSE IF w \in granting THEN "follower" ELSE role[w]]
        /\ log' = [log EXCEPT ![v] = Append(@, [epoch |-> newer, kind |-> "leader", voters |-> VotersOf(v)])]
        /\ Step("BecomeLeader", [from |-> v, epoch |-> newer, granting |-> granting])
        /\ UNCHANGED highWatermark

AppendRecord(l) ==
    /\ role[l] = "leader"
    /\ Count(log[l], "record") < Records
    /\ log' = [log EXCEPT ![l] = Append(@, [epoch |-> epoch[l], kind |-> "record", voters |-> VotersOf(l)])]
    /\ Step("AppendRecord", [from |-> l])
    /\ UNCHANGED <<epoch, role, highWatermark>>

\* Whether a record of the leader's own epoch is committed.
EpochIsCommitted(l) == highWatermark[l] > 0 /\ log[l][highWatermark[l]].epoch = epoch[l]

\* One voter is added or removed, once the former change and a record of the leader's own epoch are committed. The new
\* set counts at once.
AppendVoters(l, voters) ==
    /\ role[l] = "leader"
    /\ Count(log[l], "voters") < Changes
    /\ voters # {}
    /\ Cardinality(voters \ VotersOf(l)) + Cardinality(VotersOf(l) \ voters) = 1
    /\ highWatermark[l] >= ChangedBefore(l) \/ On("SecondChangeAtOnce")
    /\ EpochIsCommitted(l) \/ On("ChangeBeforeEpochIsCommitted")
    /\ log' = [log EXCEPT ![l] = Append(@, [epoch |-> epoch[l], kind |-> "voters", voters |-> voters])]
    /\ Step("AppendVoters", [from |-> l, voters |-> voters])
    /\ UNCHANGED <<epoch, role, highWatermark>>

\* A node, voter or not, adopts the leader's whole log, and so its voters, and its epoch.
ApplyFetch(f, l) ==
    /\ f # l
    /\ role[l] = "leader"
    /\ epoch[f] <= epoch[l]
    /\ log' = [log EXCEPT ![f] = log[l]]
    /\ epoch' = [epoch EXCEPT ![f] = epoch[l]]
    /\ role' = [role EXCEPT ![f] = "follower"]
    /\ highWatermark' = [highWatermark EXCEPT ![f] = IF highWatermark[l] > @ THEN highWatermark[l] ELSE @]
    /\ <<epoch, log, role, highWatermark>>' # <<epoch, log, role, highWatermark>>
    /\ Step("ApplyFetch", [from |-> l, to |-> f])

\* A majority of the latest voters has the records up to `end`, in the leader's epoch. A leader that is no voter any
\* more does not count itself, and resigns once the record that removed it is committed.
AdvanceHighWatermark(l) ==
    /\ role[l] = "leader"
    /\ \E end \in (highWatermark[l] + 1)..Len(log[l]) :
        LET has == {f \in Voters : epoch[f] = epoch[l] /\ Len(log[f]) >= end /\ Prefix(log[f], end) = Prefix(log[l], end)}
            counted == IF On("RemovedLeaderCountsItself") THEN has \cap (VotersOf(l) \cup {l}) ELSE has \cap VotersOf(l)
        IN  /\ 2 * Cardinality(counted) > Cardinality(VotersOf(l))
            /\ log[l][end].epoch = epoch[l]
            /\ highWatermark' = [highWatermark EXCEPT ![l] = end]
            /\ role' = [role EXCEPT ![l] = IF l \in VotersOf(l) \/ end < ChangedBefore(l) THEN @ ELSE "follower"]
            /\ Step("AdvanceHighWatermark", [from |-> l, highWatermark |-> end])
    /\ UNCHANGED <<epoch, log>>

Next ==
    \/ \E v \in Voters, granting \in SUBSET Voters : BecomeLeader(v, granting)
    \/ \E l \in Voters : AppendRecord(l) \/ AdvanceHighWatermark(l)
    \/ \E l \in Voters, v \in Voters : AppendVoters(l, VotersOf(l) \cup {v}) \/ AppendVoters(l, VotersOf(l) \ {v})
    \/ \E f, l \in Voters : ApplyFetch(f, l)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
Committed(v) == Prefix(log[v], Lesser(highWatermark[v], Len(log[v])))

HighWatermarkBound == \A v \in Voters : highWatermark[v] <= EndOffset(log[v])

OneLeaderPerEpoch == \A v, w \in Voters : role[v] = "leader" /\ role[w] = "leader" /\ epoch[v] = epoch[w] => v = w

CommittedLogsAgree == \A v, w \in Voters : IsPrefix(Committed(v), Committed(w)) \/ IsPrefix(Committed(w), Committed(v))

\* The leader of the newest epoch has every record below any node's high watermark.
LeaderCompleteness ==
    \A l, v \in Voters : role[l] = "leader" /\ (\A w \in Voters : epoch[w] <= epoch[l]) => IsPrefix(Committed(v), log[l])

\* Where all nodes run and reach each other, one of them can be elected.
SomeNodeCanLead ==
    \E v \in Voters :
        MayStand(v) /\ 2 * Cardinality({w \in VotersOf(v) : UpToDate(v, w)}) > Cardinality(VotersOf(v))

Symmetry == Permutations(FirstVoters) \cup Permutations(Voters \ FirstVoters)
View == stateVars
=============================================================================
