-------------------------------- MODULE Bugs --------------------------------
(***************************************************************************)
(* The switches. Each names one known fault of replication. With Bugs = {} *)
(* the specification is the protocol. A switch that is on replaces one     *)
(* rule by the faulty one, and TLC must find a broken promise.             *)
(***************************************************************************)

CONSTANT Bugs

KnownBugs == {
    \* How a follower finds the point where its log leaves the leader's.
    "TruncateToHighWatermark",     \* before KIP-101: a follower truncates to its own high watermark, whatever the leader has
    "TruncateByRequestedEpoch",    \* KIP-101 without KIP-279: the follower ignores the epoch that the leader returned
    "TruncateWithoutFencing",      \* KIP-279 without KIP-320: a leader of any leader epoch answers OffsetForLeaderEpoch
    "FetchWithoutFencing",         \* half of KIP-320: a fetch detects divergence, but no leader epochs are compared
    \* What the leader counts.
    "IgnoreProposedIsr",           \* the high watermark waits for the committed ISR only, not for the proposed one (KIP-497)
    "RollBackCommittedIsr",        \* the leader drops an accepted proposal when its retry is refused as stale
    "AcknowledgeBeforeHighWatermark",  \* acks=all is acknowledged once the leader has appended
    "CommitBeforeMinIsr",          \* a leader uses a new ISR before the min.insync.replicas that it was written under
    "FetchOfFormerIncarnation",    \* a fetch of a follower's former incarnation counts for its present one
    "IgnoreMinIsr",                \* neither produce nor the high watermark checks min.insync.replicas
    \* What the controller admits.
    "AdmitStaleBrokerEpoch",       \* before KIP-903: the broker epochs of proposed members are not compared
    "LastReplicaStanding",         \* before KIP-966: the last member stays in the ISR even if it lost its tail
    "ElectOutsideIsr",             \* a replica outside of ISR and ELR is elected although unclean election is disabled
    "KeepDroppedEligible",         \* a replica dropped by a reassignment stays in the ELR
    "AdmitFencedBroker",           \* a fenced broker may join the ISR
    "RefusedProposalArrives",      \* the controller accepts a late copy of a proposal that it refused (Messages)
    \* What a broker does after a restart.
    "ServeBeforeReplay",           \* a restarted broker acts by the metadata of its earlier incarnation
    \* What the leader remembers of a producer.
    "ForgetSequences"}             \* a retry is appended again, as without sequence numbers (KIP-98)

ASSUME Bugs \subseteq KnownBugs

On(bug) == bug \in Bugs
=============================================================================
