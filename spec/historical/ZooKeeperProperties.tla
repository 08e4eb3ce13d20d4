------------------------- MODULE ZooKeeperProperties -------------------------
(***************************************************************************)
(* Chapter 4: the promises.                                                *)
(***************************************************************************)
EXTENDS ZooKeeperBroker

\* Two brokers may act as the controller, but not in the same controller epoch.
OneControllerPerEpoch ==
    \A a, b \in Brokers : control[a].epoch # 0 /\ control[a].epoch = control[b].epoch => a = b

\* Each ephemeral node belongs to a session that has not expired.
EphemeralNodesHaveSessions ==
    /\ \A b \in Brokers : registered[b] # 0 => b \in sessions \cup orphans
    /\ controllerNode \in sessions \cup orphans \cup {None}

\* No split brain: a leader epoch has one leader, the one in the state of that epoch.
OneLeaderPerEpoch ==
    \A l \in Brokers : Leads(l) =>
        /\ \A other \in Brokers \ {l} :
               ~(Leads(other) /\ role[other].topic = role[l].topic /\ role[other].leaderEpoch = role[l].leaderEpoch)
        /\ state # None /\ state.topic = role[l].topic /\ state.leaderEpoch = role[l].leaderEpoch => state.leader = l

\* Whether a broker leads, and the state says so.
LeadsByState(l) ==
    /\ Leads(l)
    /\ state # None
    /\ state.leader = l /\ state.topic = role[l].topic /\ state.leaderEpoch = role[l].leaderEpoch

\* The leader counts every member of the state's ISR, so it commits no record that a member lacks.
MaximalIsrIsSuperset == \A l \in Brokers : LeadsByState(l) => state.isr \subseteq MaximalIsr(l)

LeaderIsInIsr ==
    state # None => state.leader \in state.isr \cup {None} /\ state.isr # {} /\ state.isr \subseteq state.replicas

\* Every member of the ISR has all committed records, and so has the leader.
IsrIsComplete == state # None => \A b \in state.isr : committed \subseteq RecordsOf(b, state.topic)
NoCommittedRecordLost == \A l \in Brokers : LeadsByState(l) => committed \subseteq RecordsOf(l, state.topic)

\* A replica is deleted only with its topic, or when a reassignment has removed it: never as a member of the ISR.
OnlyRemovedReplicasAreDeleted ==
    [][ \A b \in Brokers : log[b] # None /\ log'[b] = None =>
            topic.id # log[b].topic \/ topic.status # "there" \/ b \notin state.isr ]_vars

\* A deposed controller changes no state.
DeposedControllersWriteNothing ==
    [][ /\ state # None /\ state' # None /\ state' # state =>
            \/ state'.controllerEpoch = controllerEpoch
            \/ ~AlterPartitions /\ state'.leaderEpoch = state.leaderEpoch
        /\ state # None /\ state' = None => topic.status = "to be deleted"
        /\ state = None /\ state' # None => state'.controllerEpoch = controllerEpoch ]_vars

\* Whether this step handles the first request of a queue, by accepting or refusing it.
IsHandled(b, request) ==
    LET queue == channel[request.controllerEpoch][b]
    IN  /\ queue # <<>> /\ Head(queue) = request
        /\ Len(channel') = Len(channel) /\ channel'[request.controllerEpoch][b] = Tail(queue)

\* A request of a deposed controller, or for an earlier registration, changes nothing.
StaleRequestsChangeNothing ==
    [][ \A b \in running : \A request \in Arriving(b) :
            /\ request.controllerEpoch < newestEpoch[b] \/ request.brokerEpoch < brokerEpoch[b]
            /\ IsHandled(b, request)
            => UNCHANGED <<role[b], log[b], metadata[b], newestEpoch[b]>> ]_vars

EpochsNeverDecrease ==
    [][ /\ controllerEpoch' >= controllerEpoch
        /\ state # None /\ state' # None /\ state'.topic = state.topic =>
               state'.leaderEpoch >= state.leaderEpoch /\ (state' # state => state'.version > state.version)
        /\ \A b \in running \cap running' :
               /\ newestEpoch'[b] >= newestEpoch[b]
               /\ brokerEpoch'[b] >= brokerEpoch[b]
               /\ role'[b].topic = role[b].topic => role'[b].leaderEpoch >= role[b].leaderEpoch ]_vars

\* The leader that a running broker returns to clients is never followed by one of an earlier leader epoch.
MetadataNeverGoesBack ==
    [][ \A b \in running : metadata[b] # None /\ metadata'[b] # None =>
            metadata'[b].leaderEpoch >= metadata[b].leaderEpoch ]_vars
=============================================================================
