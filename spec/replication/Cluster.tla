------------------------------ MODULE Cluster -------------------------------
(***************************************************************************)
(* Chapter 2: what there is.  One partition, its replicas, the controller  *)
(* that owns its metadata, one producer, one consumer; and the environment *)
(* with what it may still break.                                           *)
(*                                                                         *)
(* The atomic grain: a follower's fetch is a handful of steps that look at *)
(* both logs at once, and the controller reads a leader's proposal where   *)
(* it lies.  What is asynchronous in a cluster stays asynchronous: when a  *)
(* broker replays metadata, when the leader learns of a follower's         *)
(* progress, when a proposal is judged, and when its outcome is known.     *)
(***************************************************************************)
EXTENDS Bugs, Log, TLC

CONSTANTS
    Brokers,        \* all brokers that may have a replica of the partition
    None,           \* stands for no broker and for no proposal
    MinIsr,         \* min.insync.replicas, to begin with
    Records,        \* how many records the producer has
    Reads,          \* how many records the consumer reads
    Acks,           \* the acks settings that the producer uses: a subset of {"zero", "one", "all"}
    Idempotent,     \* does the producer number its records and retry them
    UncleanElection,\* unclean.leader.election.enable
    MayLoseTail,    \* may a crash lose what was not fsynced
    Faults,         \* how often each kind of fault may happen
    RecordSteps     \* name each step in the state, for traces to be read (left out of the view)

VARIABLES
    \* The controller's.
    partition,      \* the partition's newest metadata record, with the min.insync.replicas of its topic
    published,      \* metadata records that some broker may still replay
    registry,       \* each broker's registration: its epoch, and whether it is fenced
    \* Each broker's.
    status,         \* "running", "crashed", "stopped", or back but unregistered: "recovered", "returned"
    log,            \* its records
    highWatermark,  \* the offset below which it knows records to be committed
    metadata,       \* the metadata record that it acts by
    progress,       \* as a leader: how far each follower was when it last fetched, and with which broker epoch
    pending,        \* as a leader: the AlterPartition request that is not resolved
    truncating,     \* as a follower before KIP-595: must it truncate before it may fetch
    \* The clients'.
    sent,           \* the acks setting of each record that was produced
    acknowledged,   \* the records that the producer knows to be written
    consumed,       \* what the consumer read
    \* The environment's.
    faults,         \* how often each kind of fault may still happen
    lostTail,       \* brokers that lost records and have not rejoined the ISR since
    \* The reader's; last, so that it never decides between symmetric states.
    step            \* the last step's name and arguments

controllerVars == <<partition, published, registry>>
roleVars       == <<metadata, progress, pending, truncating>>
replicaVars    == <<status, log, highWatermark, roleVars>>
clientVars     == <<sent, acknowledged, consumed>>
environmentVars== <<faults, lostTail>>
stateVars      == <<controllerVars, replicaVars, clientVars, environmentVars>>
vars           == <<stateVars, step>>

Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step

Spend(kind) ==
    /\ faults[kind] > 0
    /\ faults' = [faults EXCEPT ![kind] = @ - 1]

-----------------------------------------------------------------------------
\* A broker that has replayed nothing yet may have a replica; one that gave its replica up, or never had one, has none.
NoMetadata == [leader |-> None, leaderEpoch |-> 0, partitionEpoch |-> 0, isr |-> {}, elr |-> {},
               replicas |-> Brokers, adding |-> {}, removing |-> {}, minIsr |-> 0]
NoReplicaSince(partitionEpoch) == [NoMetadata EXCEPT !.replicas = {}, !.partitionEpoch = partitionEpoch]
UnknownBrokerEpoch == 0
NoProgress == [broker \in Brokers |-> [end |-> -1, brokerEpoch |-> UnknownBrokerEpoch]]

Running(b)   == status[b] = "running"
Leads(b)     == Running(b) /\ metadata[b].leader = b

\* The leader that the controller means, once it knows of it.
IsCurrentLeader(b) == Leads(b) /\ metadata[b].leaderEpoch = partition.leaderEpoch

\* More than there are replicas cannot be in sync.
RequiredIsr(record) == Min(record.minIsr, Cardinality(record.replicas))

\* The proposed members count from the moment of the proposal.
MaximalIsr(l) == metadata[l].isr \cup (IF pending[l] = None THEN {} ELSE pending[l].isr)

\* The replicas that the partition may begin with.
FirstAssignments == {Brokers}

Init ==
    \E replicas \in FirstAssignments : \E leader \in replicas :
        LET first == [leader |-> leader, leaderEpoch |-> 1, partitionEpoch |-> 1, isr |-> replicas, elr |-> {},
                      replicas |-> replicas, adding |-> {}, removing |-> {}, minIsr |-> MinIsr]
        IN  /\ partition     = first
            /\ published     = {first}
            /\ registry      = [b \in Brokers |-> [brokerEpoch |-> 1, fenced |-> FALSE]]
            /\ status        = [b \in Brokers |-> "running"]
            /\ log           = [b \in Brokers |-> <<>>]
            /\ highWatermark = [b \in Brokers |-> 0]
            /\ metadata      = [b \in Brokers |-> IF b \in replicas THEN first ELSE NoReplicaSince(0)]
            /\ progress      = [b \in Brokers |-> NoProgress]
            /\ pending       = [b \in Brokers |-> None]
            /\ truncating    = [b \in Brokers |-> FALSE]
            /\ sent          = <<>>
            /\ acknowledged  = {}
            /\ consumed      = <<>>
            /\ faults        = Faults
            /\ lostTail      = {}
            /\ step          = [action |-> "Init"]
=============================================================================
