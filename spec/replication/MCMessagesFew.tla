---------------------------- MODULE MCMessagesFew ----------------------------
(***************************************************************************)
(* Messages with few of them in all, so that there may be more records.    *)
(***************************************************************************)
EXTENDS MCMessages

CONSTANT Most   \* so many fetches are sent, and so many different answers

FewNext == MessageNext /\ Cardinality(fetches') <= Most /\ Cardinality(answers') <= Most
FewSpec == InitMessages /\ [][FewNext]_allVars
=============================================================================
