---------------------------- MODULE MCReplication ---------------------------
(***************************************************************************)
(* Bounded, exhaustive models of Replication.  A model is this module and  *)
(* one of its configurations.                                              *)
(***************************************************************************)
EXTENDS Replication

CONSTANTS Crashes, Fences, Shrinks, Elects, Stops

Budget == [crash |-> Crashes, fence |-> Fences, shrink |-> Shrinks, elect |-> Elects, stop |-> Stops]

\* Brokers are interchangeable.
Symmetry == Permutations(Brokers)

\* The step's name is for the reader, not part of the state.
View == stateVars
=============================================================================
