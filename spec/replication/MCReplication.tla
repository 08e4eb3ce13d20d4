---------------------------- MODULE MCReplication ---------------------------
(***************************************************************************)
(* Bounded, exhaustive models of Replication.  A model is this module and  *)
(* one of its configurations.                                              *)
(***************************************************************************)
EXTENDS Replication

CONSTANTS Crashes, Fences, Shrinks, Elects, Stops, Reassigns, Reconfigures

Budget == [crash |-> Crashes, fence |-> Fences, shrink |-> Shrinks, elect |-> Elects, stop |-> Stops,
           reassign |-> Reassigns, reconfigure |-> Reconfigures]

\* Brokers are interchangeable.
Symmetry == Permutations(Brokers)

\* For reassignments: the partition begins with two replicas.
Pairs == {replicas \in SUBSET Brokers : Cardinality(replicas) = 2}

\* The step's name is for the reader, not part of the state.
View == stateVars
=============================================================================
