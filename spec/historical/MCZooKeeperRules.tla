-------------------------- MODULE MCZooKeeperRules ---------------------------
(***************************************************************************)
(* What single rules promise: a rule that another one masks, or whose      *)
(* fault takes long to show, breaks here.                                  *)
(***************************************************************************)
EXTENDS ZooKeeperCluster

\* The broker that holds the node acts as the controller, in the newest epoch; all others in older ones.
OwnerControls ==
    \A b \in Brokers :
        /\ controllerNode = b /\ b \in running \ orphans => control[b].epoch = controllerEpoch
        /\ control[b].epoch = controllerEpoch /\ controllerNode # None => controllerNode = b
        /\ control[b].isLoaded => control[b].epoch # 0

RegisteredKnowTheirEpoch ==
    \A b \in running \ orphans : registered[b] # 0 => brokerEpoch[b] = registered[b] /\ czxid[b] = registered[b]

FollowersHaveTheLog == \A b \in Brokers : role[b].leader # None => log[b] # None

\* An election leaves none in the ISR that the controller takes for dead, but for the last member.
ElectedAmongTheLive ==
    [][ state # None /\ state' # None /\ state'.leader \notin {state.leader, None} /\ topic'.id = topic.id =>
            \E c \in Brokers : control[c].epoch = controllerEpoch /\ state'.leader \in Electable(control[c]) ]_vars

\* A replica that is stopped has no role any more, and no log if it was to be deleted.
StoppedAreStopped ==
    [][ \A b \in running : \A request \in Arriving(b) :
            /\ request.kind = "StopReplica" /\ IsHandled(b, request)
            /\ request.controllerEpoch >= newestEpoch[b] /\ request.brokerEpoch >= brokerEpoch[b]
            /\ request.leaderEpoch = DeletedTopic \/ request.leaderEpoch >= role[b].leaderEpoch
            => role'[b] = NoRole /\ (request.deletes => log'[b] = None) ]_vars

\* Whether an order to delete the topic's replica is on its way.
IsToDelete(b) ==
    \E e \in DOMAIN channel : \E n \in DOMAIN channel[e][b] : channel[e][b][n].leaderEpoch = DeletedTopic

\* A topic is gone when all of its replicas are.  The answer to a reassignment's StopReplica counts, too, as in Kafka, so a
\* replica that was removed and added again may be left, with the order of the deletion on its way.
TopicsEndWhole ==
    [][ topic.status = "to be deleted" /\ topic'.status = "gone" =>
            \A b \in state.replicas : log[b] = None \/ (faults.move < Moves /\ IsToDelete(b)) ]_vars

FollowsTheState(b) ==
    /\ role[b].leader = state.leader /\ role[b].leaderEpoch = state.leaderEpoch /\ role[b].topic = state.topic
    /\ b \in state.isr /\ log[b] = log[state.leader]
    /\ Metadata => metadata[b] = [leader |-> state.leader, leaderEpoch |-> state.leaderEpoch]

\* When nothing is left to do, there is a controller that knows all, and all brokers are in sync and act by the state.
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
