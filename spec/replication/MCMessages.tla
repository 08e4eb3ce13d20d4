----------------------------- MODULE MCMessages -----------------------------
(***************************************************************************)
(* The message grain keeps every promise, and refines the atomic grain.    *)
(* A claim may be heard at any later time here, so none is ever outlived.  *)
(***************************************************************************)
EXTENDS Messages

CONSTANTS Crashes, Fences, Shrinks, Elects, Stops, Reassigns, Reconfigures

Budget == [crash |-> Crashes, fence |-> Fences, shrink |-> Shrinks, elect |-> Elects, stop |-> Stops,
           reassign |-> Reassigns, reconfigure |-> Reconfigures]
NeverOutlived(f, claim) == FALSE
Symmetry == Permutations(Brokers)
=============================================================================
