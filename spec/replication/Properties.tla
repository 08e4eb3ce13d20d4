----------------------------- MODULE Properties -----------------------------
(***************************************************************************)
(* Chapter 6: what is promised.                                            *)
(***************************************************************************)
EXTENDS Client

Committed(b) == Prefix(log[b], highWatermark[b])

TypeOK ==
    /\ partition.replicas \subseteq Brokers /\ partition.replicas # {}
    /\ partition.isr \cup partition.adding \cup partition.removing \subseteq partition.replicas
    /\ partition.elr \subseteq Brokers
    /\ partition.leader \in Brokers \cup {None}
    /\ partition \in published
    /\ \A b \in Brokers :
        /\ status[b] \in {"running", "crashed", "stopped", "recovered", "returned"}
        /\ highWatermark[b] \in Nat
    /\ acknowledged \subseteq DOMAIN sent

\* ---- logs ----
EpochsNeverDecreaseInLog ==
    \A b \in Brokers : \A i \in 1..(Len(log[b]) - 1) : log[b][i].epoch <= log[b][i + 1].epoch

\* Two logs with a record of one epoch at one offset agree up to there.
LogMatching ==
    \A a, b \in Brokers : \A i \in 1..Min(Len(log[a]), Len(log[b])) :
        log[a][i].epoch = log[b][i].epoch => Prefix(log[a], i) = Prefix(log[b], i)

HighWatermarkBound == \A b \in Brokers : highWatermark[b] <= EndOffset(log[b])

\* What any two brokers call committed agrees.
CommittedLogsAgree ==
    \A a, b \in Brokers : IsPrefix(Committed(a), Committed(b)) \/ IsPrefix(Committed(b), Committed(a))

\* ---- who has what ----
\* The leader of the newest leader epoch has all that any broker called committed.
LeaderCompleteness ==
    \A l, b \in Brokers : IsCurrentLeader(l) => IsPrefix(Committed(b), log[l])

\* So has every broker that might be elected, but for those that lost a tail
\* and were not yet found out.
EligibleAreComplete ==
    \A e \in (partition.isr \cup partition.elr) \ lostTail : \A b \in Brokers : IsPrefix(Committed(b), log[e])

MaximalIsrIsSuperset ==
    \A l \in Brokers : IsCurrentLeader(l) /\ partition.leader = l => partition.isr \subseteq MaximalIsr(l)

NoFencedMemberInIsr == \A b \in partition.isr : ~registry[b].fenced

EligibleAreReplicas == partition.elr \subseteq partition.replicas

IsrAndElrAreDisjoint == partition.isr \cap partition.elr = {}

LeaderIsInIsr == partition.leader # None => partition.leader \in partition.isr

\* ---- what clients see ----
NoAcknowledgedRecordLost ==
    \A l \in Brokers : IsCurrentLeader(l) => acknowledged \subseteq Numbers(log[l])

ConsumedNeverChanges ==
    \A l \in Brokers : IsCurrentLeader(l) => IsPrefix(consumed, log[l])

NoDuplicateOrGap ==
    Idempotent => \A b \in Brokers : \A i \in DOMAIN log[b] : log[b][i].number = i

\* ---- steps ----
EpochsNeverDecrease ==
    [][ /\ partition'.leaderEpoch >= partition.leaderEpoch
        /\ partition'.partitionEpoch >= partition.partitionEpoch
        /\ \A b \in Brokers :
            /\ registry'[b].brokerEpoch >= registry[b].brokerEpoch
            /\ metadata'[b].partitionEpoch >= metadata[b].partitionEpoch \/ ~Running(b) \/ status'[b] # "running"
            /\ Running(b) /\ status'[b] = "running" /\ b \in metadata'[b].replicas
               => metadata'[b].leaderEpoch >= metadata[b].leaderEpoch
      ]_vars

HighWatermarkMonotoneInEpoch ==
    [][ \A b \in Brokers :
            /\ Leads(b) /\ Leads(b)'
            /\ metadata'[b].leaderEpoch = metadata[b].leaderEpoch
            => highWatermark'[b] >= highWatermark[b]
      ]_vars
=============================================================================
