---------------------------- MODULE MCMessagesFew ----------------------------
(***************************************************************************)
(* The message grain with a bound on the number of messages, so that there *)
(* may be more records.                                                    *)
(***************************************************************************)
EXTENDS MCMessages

CONSTANT Most   \* the most fetches that are sent, and the most different responses

FewNext == MessageNext /\ Cardinality(fetches') <= Most /\ Cardinality(answers') <= Most
FewSpec == InitMessages /\ [][FewNext]_allVars
=============================================================================
