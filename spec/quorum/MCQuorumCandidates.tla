------------------------- MODULE MCQuorumCandidates --------------------------
(***************************************************************************)
(* What a step promises that would be taken again and again without what   *)
(* it does to the role: the mutant has no last state.                      *)
(***************************************************************************)
EXTENDS MCQuorumRules

\* A voter that begins an epoch with its own vote is a candidate in it.
EpochsBeginWithCandidates ==
    [][ \A v \in Voters : epoch'[v] > epoch[v] /\ votedFor'[v] = v => role'[v] = "candidate" ]_vars
=============================================================================
