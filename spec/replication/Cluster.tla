------------------------------ MODULE Cluster -------------------------------
(***************************************************************************)
(* Chapter 2: the variables and the initial state. There are one           *)
(* partition, its replicas, the controller that owns its metadata, one     *)
(* producer, one consumer, and the environment with a budget of faults.    *)
(*                                                                         *)
(* The atomic grain: a follower's fetch is several steps, each of which    *)
(* reads both logs at once, and the controller reads a proposal from the   *)
(* leader's state. These remain asynchronous: when a broker replays        *)
(* metadata, when the leader learns of a follower's progress, when the     *)
(* controller judges a proposal, and when the leader learns the result.    *)
(***************************************************************************)
EXTENDS Bugs, Log, TLC

CONSTANTS
    Brokers,        \* all brokers that may have a replica of the partition
    None,           \* stands for no broker, and for no proposal
    MinIsr,         \* the initial min.insync.replicas
    Records,        \* the number of records that the producer sends
    Reads,          \* the number of records that the consumer reads
    Acks,           \* the acks settings that the producer uses: a subset of {"zero", "one", "all"}
    Idempotent,     \* whether the producer numbers its records and retries them (KIP-98)
    UncleanElection,\* unclean.leader.election.enable
    MayLoseTail,    \* whether a crash may lose records that were not flushed
    Faults,         \* how often each kind of fault may happen
    RecordSteps     \* whether the state has each step's name, so that traces can be read (the view leaves it out)

VARIABLES
    \* The controller's.
    partition,      \* the partition's newest metadata record, with the min.insync.replicas of its topic
    published,      \* metadata records that some broker may still replay
    registry,       \* each broker's registration: its epoch, and whether it is fenced
    \* Each broker's.
    status,         \* "running", "crashed", "stopped"; restarted and unregistered: "recovered" (crashed), "returned" (stopped)
    log,            \* its records
    highWatermark,  \* the offset below which it knows records to be committed
    metadata,       \* the metadata record that it acts by
    progress,       \* as a leader: each follower's log end offset and broker epoch at its last fetch
    pending,        \* as a leader: the AlterPartition request that is not resolved yet
    truncating,     \* as a follower, before KIP-595: whether it must truncate before it may fetch
    \* The clients'.
    sent,           \* the acks setting of each record that was produced
    acknowledged,   \* the numbers of the records that were acknowledged to the producer
    consumed,       \* the records that the consumer has read
    \* The environment's.
    faults,         \* how often each kind of fault may still happen
    lostTail,       \* brokers that lost records and have not rejoined the ISR since
    \* For the reader of a trace.  It is the last variable, so that it never decides between symmetric states.
    step            \* the last step's name and arguments

controllerVars == <<partition, published, registry>>
roleVars       == <<metadata, progress, pending, truncating>>
replicaVars    == <<status, log, highWatermark, roleVars>>
clientVars     == <<sent, acknowledged, consumed>>
environmentVars== <<faults, lostTail>>
stateVars      == <<controllerVars, replicaVars, clientVars, environmentVars>>
vars           == <<stateVars, step>>

\* Store the step's name and arguments, if RecordSteps.
Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step

\* Use one fault of this kind.
Spend(kind) ==
    /\ faults[kind] > 0
    /\ faults' = [faults EXCEPT ![kind] = @ - 1]

-----------------------------------------------------------------------------
\* The broker has replayed nothing yet, and may have a replica.
NoMetadata == [leader |-> None, leaderEpoch |-> 0, partitionEpoch |-> 0, isr |-> {}, elr |-> {},
               replicas |-> Brokers, adding |-> {}, removing |-> {}, minIsr |-> 0]
\* The broker gave its replica up, or never had one.
NoReplicaSince(partitionEpoch) == [NoMetadata EXCEPT !.replicas = {}, !.partitionEpoch = partitionEpoch]
UnknownBrokerEpoch == 0
NoProgress == [broker \in Brokers |-> [end |-> -1, brokerEpoch |-> UnknownBrokerEpoch]]

Running(b)   == status[b] = "running"
Leads(b)     == Running(b) /\ metadata[b].leader = b

\* Whether the broker leads in the controller's newest leader epoch.
IsCurrentLeader(b) == Leads(b) /\ metadata[b].leaderEpoch = partition.leaderEpoch

\* The least size of the ISR for acks=all: min.insync.replicas, but at most the number of replicas.
RequiredIsr(record) == Min(record.minIsr, Cardinality(record.replicas))

\* The maximal ISR (KIP-497): members of a pending proposal count from the moment of the proposal.
MaximalIsr(l) == metadata[l].isr \cup (IF pending[l] = None THEN {} ELSE pending[l].isr)

\* The initial assignments of replicas; configurations replace this.
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
