------------------------ MODULE MCZooKeeperShutdown -------------------------
(***************************************************************************)
(* Bounds of models with shutdowns. A follower that shuts down may join    *)
(* the ISR again, and the controller removes it again. A broker that may   *)
(* stop may do so again after each start, until the controller sees that   *)
(* it is gone. So these models end after a few versions of the state, and  *)
(* with the second broker epoch.                                           *)
(***************************************************************************)
EXTENDS MCZooKeeperSteps

FewVersions ==
    /\ state = None \/ state.version <= 3
    /\ \A b \in Brokers : czxid[b] <= 2

\* For models in which a topic's deletion or a reassignment meets a broker that stops or crashes: no failover.
OneController == FewVersions /\ controllerEpoch = 1

\* For a model with a leader that was removed and does not know it. Before 2.7 nothing prevents it from writing over
\* the state of a topic that was created again under the same name, whose versions begin again.
OneTopic == topic.id = 1

\* For models of sessions alone.
FewDecisions ==
    /\ state = None \/ state.version <= 2
    /\ controllerEpoch <= 2 /\ \A b \in Brokers : czxid[b] <= 2
=============================================================================
