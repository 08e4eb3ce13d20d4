-------------------------- MODULE MCZooKeeperSteps --------------------------
(***************************************************************************)
(* What single steps promise of themselves: what a process forgets, what a *)
(* controller knows when it decides, and why it decides.  Found by         *)
(* mutating the specification: without these promises the changes were not *)
(* noticed in a small model.                                               *)
(***************************************************************************)
EXTENDS MCZooKeeperRules

\* A process that is gone has no session, and one that is not registered knows nothing.
MemoryFitsProcess ==
    \A b \in Brokers :
        /\ b \notin running => b \notin sessions /\ brokerEpoch[b] = 0
        /\ brokerEpoch[b] = 0 =>
            /\ control[b] = NoControl /\ newestEpoch[b] = 0
            /\ role[b] = NoRole /\ pending[b] = None /\ metadata[b] = None
        /\ registered[b] # 0 /\ registered[b] = brokerEpoch[b] => b \in sessions

\* A controller knows nothing, and sends nothing, until it has read all.
ControllersReadFirst ==
    \A c \in Brokers : ~control[c].isLoaded =>
        /\ control[c] = [NoControl EXCEPT !.epoch = control[c].epoch]
        /\ control[c].epoch # 0 => channel[control[c].epoch] = NoRequests

\* A broker that the controller takes for dead is sent nothing, but for the request that was on its way.
TheDeadAreSentNothing ==
    \A c, b \in Brokers :
        control[c].isLoaded /\ control[c].live[b] = 0 =>
            LET queue == channel[control[c].epoch][b]
            IN  /\ b \notin control[c].stopping
                /\ Len(queue) <= 1
                /\ queue # <<>> => Head(queue).brokerEpoch # 0

\* A proposal is its leader's, of its leader epoch, and for another ISR than the one that there is.
ProposalsAreCurrent ==
    \A l \in Brokers : pending[l] # None =>
        /\ Leads(l)
        /\ pending[l].leaderEpoch = role[l].leaderEpoch /\ pending[l].version = role[l].version
        /\ l \in pending[l].isr /\ pending[l].isr # role[l].isr

\* A leader with no proposal under way knows the state that it would change.
LeadersKnowTheState ==
    \A l \in Brokers : LeadsByState(l) /\ pending[l] = None =>
        role[l].version = state.version /\ role[l].isr = state.isr

\* An ephemeral node vanishes before it is made again, and with it its session; a controller epoch comes with its node.
NodesAreMadeOnce ==
    [][ /\ controllerNode # None => controllerNode' \in {controllerNode, None}
        /\ controllerEpoch' # controllerEpoch <=> controllerNode' \notin {controllerNode, None}
        /\ \A b \in Brokers : registered[b] # 0 => registered'[b] \in {registered[b], 0}
        /\ \A b \in orphans : registered[b] # 0 /\ registered'[b] = 0 => b \notin orphans' \/ b \notin running'
      ]_vars

\* A controller begins by reading what there is, in each controller epoch.
ControllersBeginByReading ==
    [][\A c \in Brokers :
        /\ control'[c].epoch \notin {control[c].epoch, 0} => ~control'[c].isLoaded
        /\ ~control[c].isLoaded /\ control'[c].isLoaded =>
               control'[c].live = registered /\ control'[c].state = state]_vars

\* A broker is taken for dead when its node is gone, or another one, and for live only after that.
LiveFollowsTheNodes ==
    [][\A c, b \in Brokers :
        LET was == control[c].live[b]
            is == control'[c].live[b]
        IN  control[c].isLoaded /\ control'[c].epoch = control[c].epoch /\ is # was =>
                IF was = 0 THEN is = registered[b] ELSE is = 0 /\ registered[b] # was]_vars

OfOneTopic == state # None /\ state' # None /\ state'.topic = state.topic

\* A leader epoch begins with a change.
DecisionsChangeTheState ==
    [][ OfOneTopic /\ state'.leaderEpoch # state.leaderEpoch =>
            <<state'.leader, state'.isr, state'.replicas>> # <<state.leader, state.isr, state.replicas>> ]_vars

\* A leader leads until another is elected, unless the controller takes it for dead.
LeadersLeadOn ==
    [][ OfOneTopic /\ state.leader # None /\ state'.leader = None =>
            \E c \in Brokers : control[c].epoch = controllerEpoch /\ control[c].live[state.leader] = 0 ]_vars

\* Where no administrator asked for it, a leader is replaced because the controller takes it for gone; a member leaves the ISR
\* for that, or because the leader proposed it.  Another leader begins with an ISR of live brokers.
OnlyTheGoneAreReplaced ==
    [][ AlterPartitions /\ OfOneTopic /\ UNCHANGED faults =>
        LET gone == UNION {Brokers \ Electable(control[c]) : c \in {c \in Brokers : control[c].epoch = controllerEpoch}}
        IN  /\ state'.leader # state.leader => state.leader \in gone \cup {None}
            /\ state'.leader \notin {state.leader, None} => state'.isr \cap gone = {}
            /\ \A b \in state.isr \ state'.isr :
                   b \in gone \/ \E l \in Brokers : pending[l] # None /\ b \notin pending[l].isr
      ]_vars

\* The state is of the topic that there is.
StateIsOfTheTopic == state # None => state.topic = topic.id

\* Replicas alone follow or lead by the state.
RolesAreOfReplicas ==
    \A b \in Brokers : state # None /\ role[b].topic = state.topic /\ role[b].leaderEpoch = state.leaderEpoch =>
        b \in state.replicas

\* A controller counts replicas of a topic that it deletes, and orders replicas to be deleted with a topic that it deletes.
DeletionsAreKnown == \A c \in Brokers : control[c].deleted # {} => control[c].deletes
DeletionsBeginOnce ==
    [][ \A c, b \in Brokers : control[c].isLoaded /\ control'[c].isLoaded =>
            LET was == channel[control[c].epoch][b]
                is == channel'[control[c].epoch][b]
            IN  Len(is) > Len(was) /\ is[Len(is)].leaderEpoch = DeletedTopic => control'[c].deletes ]_vars

\* Records begin in a leader's log.
ProducedByLeaders == [][ produced' # produced => \E l \in Brokers : Leads(l) /\ log'[l] # log[l] ]_vars

\* A broker learns the controller epoch of each request that it takes.
BrokersLearnTheEpoch ==
    [][ \A b \in running : \A request \in Arriving(b) :
            /\ brokerEpoch[b] # 0 /\ IsHandled(b, request)
            /\ request.controllerEpoch >= newestEpoch[b] /\ request.brokerEpoch >= brokerEpoch[b]
            /\ request.kind # "StopReplica" \/ request.leaderEpoch >= role[b].leaderEpoch
            => newestEpoch'[b] = request.controllerEpoch ]_vars
=============================================================================
