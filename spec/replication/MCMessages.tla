----------------------------- MODULE MCMessages -----------------------------
(***************************************************************************)
(* The message grain keeps every promise, and refines the atomic grain     *)
(* with late messages (LateSpec). A model has one or two kinds of fault. A *)
(* fetch may arrive at any later time here, so none is dropped from the    *)
(* history (NeverOutlived).                                                *)
(***************************************************************************)
EXTENDS Messages

CONSTANTS Crashes, Fences, Shrinks, Elects, Stops, Reassigns, Reconfigures

Budget == [crash |-> Crashes, fence |-> Fences, shrink |-> Shrinks, elect |-> Elects, stop |-> Stops,
           reassign |-> Reassigns, reconfigure |-> Reconfigures]
NeverOutlived(f, claim) == FALSE
Symmetry == Permutations(Brokers)

\* The step's name is for the reader, not part of the state.
View == <<stateVars, historyVars, messageVars>>

\* Replaces Step. TLC compares `step` before the histories and the messages. So, where brokers are interchangeable,
\* its arguments are strings: they do not distinguish symmetric states.
StepInWords(action, arguments) ==
    step' = [action |-> action] @@ [name \in DOMAIN arguments |-> ToString(arguments[name])]
=============================================================================
