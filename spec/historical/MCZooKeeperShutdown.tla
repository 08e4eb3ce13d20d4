------------------------ MODULE MCZooKeeperShutdown -------------------------
(***************************************************************************)
(* A follower that shuts down may join the ISR again, and the controller   *)
(* removes it again; and who has leave to stop may stop again after each   *)
(* start, for as long as the controller does not look.  So the model ends  *)
(* after a few versions of the state, and the second broker epoch.         *)
(***************************************************************************)
EXTENDS MCZooKeeperSteps

FewVersions ==
    /\ state = None \/ state.version <= 3
    /\ \A b \in Brokers : czxid[b] <= 2
=============================================================================
