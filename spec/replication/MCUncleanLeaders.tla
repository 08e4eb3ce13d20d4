-------------------------- MODULE MCUncleanLeaders ---------------------------
(***************************************************************************)
(* What an unclean election promises that could be held again and again:   *)
(* the mutant has no last state.                                           *)
(***************************************************************************)
EXTENDS MCSteps

\* A leader is replaced because it is fenced, or has no replica any more, unless an administrator asked for it.
LeadersAreReplacedForAReason ==
    [][ faults'.elect = faults.elect /\ partition.leader # None /\ partition'.leader # partition.leader =>
            registry'[partition.leader].fenced \/ partition.leader \notin partition'.replicas ]_vars
=============================================================================
