----------------------------- MODULE MCMessages -----------------------------
(***************************************************************************)
(* The message grain keeps every promise, and refines the atomic grain     *)
(* with late messages (LateSpec).  One kind of fault or two at a time.     *)
(* A claim may arrive at any later time here, so none is ever outlived.    *)
(***************************************************************************)
EXTENDS Messages

CONSTANTS Crashes, Fences, Shrinks, Elects, Stops, Reassigns, Reconfigures

Budget == [crash |-> Crashes, fence |-> Fences, shrink |-> Shrinks, elect |-> Elects, stop |-> Stops,
           reassign |-> Reassigns, reconfigure |-> Reconfigures]
NeverOutlived(f, claim) == FALSE
Symmetry == Permutations(Brokers)

\* The step's name is for the reader, not part of the state.
View == <<stateVars, historyVars, messageVars>>

\* The step comes before the histories and the messages: where brokers are
\* interchangeable its arguments are strings, so that it does not distinguish
\* symmetric states.
StepInWords(action, arguments) ==
    step' = [action |-> action] @@ [name \in DOMAIN arguments |-> ToString(arguments[name])]
=============================================================================
