-------------------------------- MODULE Bugs --------------------------------
(***************************************************************************)
(* The switches.  Each names one known way to get replication wrong.  The  *)
(* protocol is the specification with Bugs = {}; a switch that is on       *)
(* replaces one rule by the faulty one, and must be caught by TLC.         *)
(***************************************************************************)

CONSTANT Bugs

KnownBugs == {
    \* How a follower finds the point where its log leaves the leader's.
    "TruncateToHighWatermark",     \* before KIP-101: cut to the own high watermark, whatever the leader has
    "TruncateByRequestedEpoch",    \* KIP-101: ask for the last epoch only, ignore which epoch the leader found
    "TruncateWithoutFencing",      \* KIP-279: the right point, asked of a leader of any epoch
    "FetchWithoutFencing",         \* KIP-320 by half: divergence is detected, but no epoch is compared
    \* What the leader counts.
    "IgnoreProposedIsr",           \* the high watermark waits for the committed ISR only
    "RollBackCommittedIsr",        \* a proposal that was accepted is undone when its retry is refused as stale
    "AcknowledgeBeforeHighWatermark",
    "CommitBeforeMinIsr",          \* acts by a new ISR before it has replayed the min.insync.replicas it was written under
    "FetchOfFormerIncarnation",    \* a fetch sent in a follower's former incarnation counts for its present one
    "IgnoreMinIsr",                \* min.insync.replicas is checked neither by produce nor by the high watermark
    \* What the controller admits.
    "AdmitStaleBrokerEpoch",       \* before KIP-903: a member's earlier incarnation counts for its present one
    "LastReplicaStanding",         \* before KIP-966: the last member stays in the ISR even if it lost its tail
    "ElectOutsideIsr",             \* unclean election although it is switched off
    "KeepDroppedEligible",         \* a replica dropped by a reassignment stays in the ELR
    "AdmitFencedBroker",           \* a fenced broker may join the ISR
    "RefusedProposalArrives",      \* a copy of a refused proposal is taken after all (message grain)
    \* What a broker does when it comes back.
    "ServeBeforeReplay",           \* acts on the metadata of its earlier incarnation
    \* What the leader remembers of a producer.
    "ForgetSequences"}             \* a retry is appended again

ASSUME Bugs \subseteq KnownBugs

On(bug) == bug \in Bugs
=============================================================================
