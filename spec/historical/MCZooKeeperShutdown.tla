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

\* For models in which a topic's deletion or a reassignment meets a broker that stops or crashes: without a failover.
OneController == FewVersions /\ controllerEpoch = 1

\* For a model in which a leader was removed and does not know it: nothing keeps it from writing over the state of another topic
\* with the same name, whose versions begin again.
OneTopic == topic.id = 1

\* For a model of sessions alone.
FewDecisions ==
    /\ state = None \/ state.version <= 2
    /\ controllerEpoch <= 2 /\ \A b \in Brokers : czxid[b] <= 2
=============================================================================
