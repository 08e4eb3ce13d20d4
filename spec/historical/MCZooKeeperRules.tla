-------------------------- MODULE MCZooKeeperRules ---------------------------
(***************************************************************************)
(* Promises of single rules. They show a fault at once where another rule  *)
(* masks it, or where it takes many steps to show.                         *)
(***************************************************************************)
EXTENDS ZooKeeperCluster

\* The broker that owns /controller acts as the controller of the newest epoch; any other of an older one, or not at all.
OwnerControls ==
    \A b \in Brokers :
        /\ controllerNode = b /\ b \in running \ orphans => control[b].epoch = controllerEpoch
        /\ control[b].epoch = controllerEpoch /\ controllerNode # None => controllerNode = b
        /\ control[b].isLoaded => control[b].epoch # 0

\* A running broker whose session owns its node knows the broker epoch of the node.
RegisteredKnowTheirEpoch ==
    \A b \in running \ orphans : registered[b] # 0 => brokerEpoch[b] = registered[b] /\ czxid[b] = registered[b]

FollowersHaveTheLog == \A b \in Brokers : role[b].leader # None => log[b] # None

\* A new leader is one of the brokers that the controller takes for live and that do not shut down.
ElectedAmongTheLive ==
    [][ state # None /\ state' # None /\ state'.leader \notin {state.leader, None} /\ topic'.id = topic.id =>
            \E c \in Brokers : control[c].epoch = controllerEpoch /\ state'.leader \in Electable(control[c]) ]_vars

\* A broker that accepts StopReplica has no role any more, and no log if the request deletes it.
StoppedAreStopped ==
    [][ \A b \in running : \A request \in Arriving(b) :
            /\ request.kind = "StopReplica" /\ IsHandled(b, request)
            /\ request.controllerEpoch >= newestEpoch[b] /\ request.brokerEpoch >= brokerEpoch[b]
            /\ request.leaderEpoch = DeletedTopic \/ request.leaderEpoch >= role[b].leaderEpoch
            => role'[b] = NoRole /\ (request.deletes => log'[b] = None) ]_vars

\* Whether a request to delete the topic's replica is on its way to the broker.
IsToDelete(b) ==
    \E e \in DOMAIN channel : \E n \in DOMAIN channel[e][b] : channel[e][b][n].leaderEpoch = DeletedTopic

\* A topic is gone only when all its replicas are. An exception, as in Kafka: the answer to a reassignment's
\* StopReplica counts, too. So a replica that was removed and added again may be left, with the topic's StopReplica on
\* its way.
TopicsEndWhole ==
    [][ topic.status = "to be deleted" /\ topic'.status = "gone" =>
            \A b \in state.replicas : log[b] = None \/ (faults.move < Moves /\ IsToDelete(b)) ]_vars

\* Whether the broker acts by the state, is in the ISR, and has the leader's log.
FollowsTheState(b) ==
    /\ role[b].leader = state.leader /\ role[b].leaderEpoch = state.leaderEpoch /\ role[b].topic = state.topic
    /\ b \in state.isr /\ log[b] = log[state.leader]
    /\ Metadata => metadata[b] = [leader |-> state.leader, leaderEpoch |-> state.leaderEpoch]

\* Liveness as an invariant: where no step of Recovery is enabled, there is a controller that knows everything, and
\* all brokers are in the ISR and act by the state, except those that it lets stop.
RestIsHealed ==
    \/ ENABLED <<Recovery>>_stateVars
    \/ /\ running = Brokers /\ sessions = Brokers /\ orphans = {} /\ registered = brokerEpoch
       /\ controllerNode # None
       /\ control[controllerNode].isLoaded /\ control[controllerNode].live = registered
       /\ control[controllerNode].state = state
       /\ topic.status = "there" /\ state # None
       /\ \A b \in Brokers \ {controllerNode} : control[b] = NoControl
       /\ \A e \in DOMAIN channel : channel[e] = NoRequests
       /\ state.leader # None /\ state.replicas = Brokers
       /\ \A b \in Brokers :
              /\ pending[b] = None
              /\ b \in control[controllerNode].stopping \/ FollowsTheState(b)
=============================================================================
