-------------------------- MODULE MCZooKeeperSteps --------------------------
(***************************************************************************)
(* Promises of single steps: what a process forgets, what a controller has *)
(* read before it decides, and why it decides. They were found by mutating *)
(* the specification: in small models no other promise noticed those       *)
(* changes.                                                                *)
(***************************************************************************)
EXTENDS MCZooKeeperRules

\* A process that has ended has no session. A broker that is not registered has no role and no knowledge.
MemoryFitsProcess ==
    \A b \in Brokers :
        /\ b \notin running => b \notin sessions /\ brokerEpoch[b] = 0
        /\ brokerEpoch[b] = 0 =>
            /\ control[b] = NoControl /\ newestEpoch[b] = 0
            /\ role[b] = NoRole /\ pending[b] = None /\ metadata[b] = None
        /\ registered[b] # 0 /\ registered[b] = brokerEpoch[b] => b \in sessions

\* A controller knows nothing and sends nothing until it has read everything.
ControllersReadFirst ==
    \A c \in Brokers : ~control[c].isLoaded =>
        /\ control[c] = [NoControl EXCEPT !.epoch = control[c].epoch]
        /\ control[c].epoch # 0 => channel[control[c].epoch] = NoRequests

\* A broker that the controller takes for dead is sent nothing, except the request that is on its way.
TheDeadAreSentNothing ==
    \A c, b \in Brokers :
        control[c].isLoaded /\ control[c].live[b] = 0 =>
            LET queue == channel[control[c].epoch][b]
            IN  /\ b \notin control[c].stopping
                /\ Len(queue) <= 1
                /\ queue # <<>> => Head(queue).brokerEpoch # 0

\* A proposal is of its leader's present leader epoch and version, contains the leader, and differs from its ISR.
ProposalsAreCurrent ==
    \A l \in Brokers : pending[l] # None =>
        /\ Leads(l)
        /\ pending[l].leaderEpoch = role[l].leaderEpoch /\ pending[l].version = role[l].version
        /\ l \in pending[l].isr /\ pending[l].isr # role[l].isr

\* A leader without a pending proposal knows the state that it would change.
LeadersKnowTheState ==
    \A l \in Brokers : LeadsByState(l) /\ pending[l] = None =>
        role[l].version = state.version /\ role[l].isr = state.isr

\* An ephemeral node is deleted before it is created again, and its session ends with it. A new controller epoch comes
\* only with a new /controller.
NodesAreMadeOnce ==
    [][ /\ controllerNode # None => controllerNode' \in {controllerNode, None}
        /\ controllerEpoch' # controllerEpoch <=> controllerNode' \notin {controllerNode, None}
        /\ \A b \in Brokers : registered[b] # 0 => registered'[b] \in {registered[b], 0}
        /\ \A b \in orphans : registered[b] # 0 /\ registered'[b] = 0 => b \notin orphans' \/ b \notin running'
      ]_vars

\* A broker that becomes the controller reads registrations and state first, in each controller epoch.
ControllersBeginByReading ==
    [][\A c \in Brokers :
        /\ control'[c].epoch \notin {control[c].epoch, 0} => ~control'[c].isLoaded
        /\ ~control[c].isLoaded /\ control'[c].isLoaded =>
               control'[c].live = registered /\ control'[c].state = state]_vars

\* The controller takes a broker for dead when its node is gone or a newer one, and only then for live with the newer
\* one.
LiveFollowsTheNodes ==
    [][\A c, b \in Brokers :
        LET was == control[c].live[b]
            is == control'[c].live[b]
        IN  control[c].isLoaded /\ control'[c].epoch = control[c].epoch /\ is # was =>
                IF was = 0 THEN is = registered[b] ELSE is = 0 /\ registered[b] # was]_vars

OfOneTopic == state # None /\ state' # None /\ state'.topic = state.topic

\* A new leader epoch changes the leader, the ISR or the replicas.
DecisionsChangeTheState ==
    [][ OfOneTopic /\ state'.leaderEpoch # state.leaderEpoch =>
            <<state'.leader, state'.isr, state'.replicas>> # <<state.leader, state.isr, state.replicas>> ]_vars

\* A leader is removed without a successor only if the controller takes it for dead.
LeadersLeadOn ==
    [][ OfOneTopic /\ state.leader # None /\ state'.leader = None =>
            \E c \in Brokers : control[c].epoch = controllerEpoch /\ control[c].live[state.leader] = 0 ]_vars

\* Unless an administrator requested it, a leader is replaced only if the controller may not elect it. A member leaves
\* the ISR for the same reason, or because a leader proposed it. A new leader's ISR has only brokers that may be
\* elected.
OnlyTheGoneAreReplaced ==
    [][ AlterPartitions /\ OfOneTopic /\ UNCHANGED faults =>
        LET gone == UNION {Brokers \ Electable(control[c]) : c \in {c \in Brokers : control[c].epoch = controllerEpoch}}
        IN  /\ state'.leader # state.leader => state.leader \in gone \cup {None}
            /\ state'.leader \notin {state.leader, None} => state'.isr \cap gone = {}
            /\ \A b \in state.isr \ state'.isr :
                   b \in gone \/ \E l \in Brokers : pending[l] # None /\ b \notin pending[l].isr
      ]_vars

\* The state is that of the present topic.
StateIsOfTheTopic == state # None => state.topic = topic.id

\* Only replicas lead or follow in the state's leader epoch.
RolesAreOfReplicas ==
    \A b \in Brokers : state # None /\ role[b].topic = state.topic /\ role[b].leaderEpoch = state.leaderEpoch =>
        b \in state.replicas

\* A controller counts deleted replicas only of a topic that it deletes, and requests such deletions only then.
DeletionsAreKnown == \A c \in Brokers : control[c].deleted # {} => control[c].deletes
DeletionsBeginOnce ==
    [][ \A c, b \in Brokers : control[c].isLoaded /\ control'[c].isLoaded =>
            LET was == channel[control[c].epoch][b]
                is == channel'[control[c].epoch][b]
            IN  Len(is) > Len(was) /\ is[Len(is)].leaderEpoch = DeletedTopic => control'[c].deletes ]_vars

\* A record is first appended by a leader.
ProducedByLeaders == [][ produced' # produced => \E l \in Brokers : Leads(l) /\ log'[l] # log[l] ]_vars

\* A broker learns the controller epoch of each request that it accepts.
BrokersLearnTheEpoch ==
    [][ \A b \in running : \A request \in Arriving(b) :
            /\ brokerEpoch[b] # 0 /\ IsHandled(b, request)
            /\ request.controllerEpoch >= newestEpoch[b] /\ request.brokerEpoch >= brokerEpoch[b]
            /\ request.kind # "StopReplica" \/ request.leaderEpoch >= role[b].leaderEpoch
            => newestEpoch'[b] = request.controllerEpoch ]_vars
=============================================================================
