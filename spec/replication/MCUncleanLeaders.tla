-------------------------- MODULE MCUncleanLeaders ---------------------------
(***************************************************************************)
(* A promise for models with unclean elections. A mutant that breaks it    *)
(* could hold elections for ever, so that RestIsHealed would not notice    *)
(* it.                                                                     *)
(***************************************************************************)
EXTENDS MCSteps

\* A leader is replaced only if it is fenced or no replica any more, unless an administrator requested an election.
LeadersAreReplacedForAReason ==
    [][ faults'.elect = faults.elect /\ partition.leader # None /\ partition'.leader # partition.leader =>
            registry'[partition.leader].fenced \/ partition.leader \notin partition'.replicas ]_vars
=============================================================================
