------------------------- MODULE MCQuorumCandidates --------------------------
(***************************************************************************)
(* A promise of BecomeCandidate. A mutant that leaves the role as it is    *)
(* could take that step for ever, so that RestIsReplicated would not       *)
(* notice it.                                                              *)
(***************************************************************************)
EXTENDS MCQuorumRules

\* A voter that begins an epoch with its own vote is a candidate in it.
EpochsBeginWithCandidates ==
    [][ \A v \in Voters : epoch'[v] > epoch[v] /\ votedFor'[v] = v => role'[v] = "candidate" ]_vars
=============================================================================
