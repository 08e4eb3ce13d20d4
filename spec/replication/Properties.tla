----------------------------- MODULE Properties -----------------------------
(***************************************************************************)
(* Chapter 6: the promises.                                                *)
(***************************************************************************)
EXTENDS Client

\* The records below the broker's high watermark.
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

\* Where two logs have records of the same epoch at the same offset, they agree up to that offset.
LogMatching ==
    \A a, b \in Brokers : \A i \in 1..Min(Len(log[a]), Len(log[b])) :
        log[a][i].epoch = log[b][i].epoch => Prefix(log[a], i) = Prefix(log[b], i)

HighWatermarkBound == \A b \in Brokers : highWatermark[b] <= EndOffset(log[b])

\* Of two brokers' committed records, one sequence is a prefix of the other.
CommittedLogsAgree ==
    \A a, b \in Brokers : IsPrefix(Committed(a), Committed(b)) \/ IsPrefix(Committed(b), Committed(a))

\* ---- leaders and the ISR ----
\* The leader of the newest leader epoch has every record below any broker's high watermark.
LeaderCompleteness ==
    \A l, b \in Brokers : IsCurrentLeader(l) => IsPrefix(Committed(b), log[l])

\* So has every broker that may be elected, except brokers that lost a tail and have not joined the ISR since.
EligibleAreComplete ==
    \A e \in (partition.isr \cup partition.elr) \ lostTail : \A b \in Brokers : IsPrefix(Committed(b), log[e])

\* The leader counts every member of the controller's ISR (KIP-497).
MaximalIsrIsSuperset ==
    \A l \in Brokers : IsCurrentLeader(l) /\ partition.leader = l => partition.isr \subseteq MaximalIsr(l)

NoFencedMemberInIsr == \A b \in partition.isr : ~registry[b].fenced

EligibleAreReplicas == partition.elr \subseteq partition.replicas

IsrAndElrAreDisjoint == partition.isr \cap partition.elr = {}

LeaderIsInIsr == partition.leader # None => partition.leader \in partition.isr

\* ---- what clients see ----
\* The leader of the newest leader epoch has every acknowledged record.
NoAcknowledgedRecordLost ==
    \A l \in Brokers : IsCurrentLeader(l) => acknowledged \subseteq Numbers(log[l])

\* What the consumer has read is a prefix of the newest leader's log.
ConsumedNeverChanges ==
    \A l \in Brokers : IsCurrentLeader(l) => IsPrefix(consumed, log[l])

\* An idempotent producer's records are in every log once and in order.
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
