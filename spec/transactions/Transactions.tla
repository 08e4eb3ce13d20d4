---------------------------- MODULE Transactions ----------------------------
(***************************************************************************)
(* Transactions across partitions: one transactional id, its coordinator,  *)
(* the partitions it writes to.  A transaction ends when the coordinator   *)
(* has decided and a marker of the decision stands in every partition that *)
(* took part.  Consumers with isolation.level=read_committed read up to    *)
(* the last stable offset, the first record whose transaction is open.     *)
(*                                                                         *)
(* KIP-890 is on: the epoch grows with every transaction, and a partition  *)
(* joins the transaction, at the coordinator, before its leader appends.   *)
(* Another coordinator may take over, with what is in the log: it writes   *)
(* all markers of what is decided again.                                   *)
(* The switch BeforeKip890 takes both away: the producer adds partitions   *)
(* itself, and a write that was delayed until its transaction had ended    *)
(* opens one that will never end.                                          *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Partitions, Transactions, Timeouts, Sessions, TakeOvers, RecordSteps, Bugs

KnownBugs == {"BeforeKip890", "MarkerBeforeDecision", "KeepEpochOnNewSession"}
ASSUME Bugs \subseteq KnownBugs
On(bug) == bug \in Bugs

VARIABLES
    coordinator,    \* its state, the epoch and that of the open transaction, the partitions where the marker is missing
                    \* or may come to be needed, those of the transaction, what it will write into them
    producer,       \* the epoch that the live producer uses, and the transaction that it is in
    network,        \* writes on their way; they may be late, and may be lost
    log,            \* each partition's records and markers
    decided,        \* the outcome of each transaction that was decided
    faults,         \* timeouts, new sessions and changes of coordinator that may still happen
    step

stateVars == <<coordinator, producer, network, log, decided, faults>>
vars == <<stateVars, step>>

Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step

Init ==
    /\ coordinator = [state |-> "empty", epoch |-> 0, opened |-> 0, partitions |-> {}, all |-> {}, marker |-> "none"]
    /\ producer = [epoch |-> 0, transaction |-> 1, asked |-> FALSE]
    /\ network = {}
    /\ log = [p \in Partitions |-> <<>>]
    /\ decided = [t \in 1..Transactions |-> "open"]
    /\ faults = [timeout |-> Timeouts, session |-> Sessions, takeOver |-> TakeOvers]
    /\ step = [action |-> "Init"]

Write(p) == [partition |-> p, epoch |-> producer.epoch, transaction |-> producer.transaction]

\* The newest producer epoch that the partition has seen, in data or markers.
EpochAt(p) == LET epochs == {log[p][i].epoch : i \in DOMAIN log[p]}
              IN IF epochs = {} THEN 0 ELSE CHOOSE e \in epochs : \A f \in epochs : f <= e

Last(p) == IF log[p] = <<>> THEN [kind |-> "nothing", epoch |-> 0, transaction |-> 0] ELSE log[p][Len(log[p])]

-----------------------------------------------------------------------------
\* The coordinator's side of it.

Admits(epoch) == coordinator.epoch = epoch /\ coordinator.state \in {"empty", "ongoing"}

Join(partitions) ==
    coordinator' = [coordinator EXCEPT !.state = "ongoing", !.partitions = @ \cup partitions, !.opened = coordinator.epoch]

Prepare(marker, epoch) ==
    coordinator' = [coordinator EXCEPT !.state = "prepared", !.marker = marker, !.epoch = epoch, !.all = coordinator.partitions]

HasMarker(p) == coordinator' = [coordinator EXCEPT !.partitions = @ \ {p}]

Complete ==
    /\ coordinator.state = "prepared"
    /\ coordinator.partitions = {}
    /\ coordinator' = [coordinator EXCEPT !.state = "empty", !.marker = "none", !.all = {}]

Reload == coordinator' = IF coordinator.state = "prepared" THEN [coordinator EXCEPT !.partitions = coordinator.all] ELSE coordinator

\* What the leader of a partition takes: a write of the transaction that the
\* coordinator let it join, and no older one than it has seen.
Takes(p, epoch) ==
    /\ epoch >= EpochAt(p)
    /\ On("BeforeKip890") \/ (p \in coordinator.partitions /\ epoch = coordinator.opened)

-----------------------------------------------------------------------------
SendWrite(p) ==
    /\ producer.transaction <= Transactions
    /\ ~producer.asked
    /\ Write(p) \notin network
    /\ \A i \in DOMAIN log[p] : log[p][i].transaction # producer.transaction
    /\ network' = network \cup {Write(p)}
    /\ IF On("BeforeKip890") THEN Admits(producer.epoch) /\ Join({p}) ELSE UNCHANGED coordinator
    /\ Step("SendWrite", [from |-> "producer", to |-> p, epoch |-> producer.epoch])
    /\ UNCHANGED <<producer, log, decided, faults>>

\* The partition's leader has the coordinator let it join before it appends.
AddPartitions(write) ==
    /\ ~On("BeforeKip890")
    /\ write \in network
    /\ write.partition \notin coordinator.partitions
    /\ Admits(write.epoch)
    /\ Join({write.partition})
    /\ Step("AddPartitions", [from |-> write.partition, to |-> "coordinator", epoch |-> write.epoch])
    /\ UNCHANGED <<producer, network, log, decided, faults>>

AppendWrite(write) ==
    LET p == write.partition
    IN  /\ write \in network
        /\ network' = network \ {write}
        /\ Takes(p, write.epoch)
        /\ log' = [log EXCEPT ![p] = Append(@, [kind |-> "data", epoch |-> write.epoch, transaction |-> write.transaction])]
        /\ Step("AppendWrite", [from |-> "producer", to |-> p, epoch |-> write.epoch])
        /\ UNCHANGED <<coordinator, producer, decided, faults>>

\* Refused, or lost on the way.
DropWrite(write) ==
    /\ write \in network
    /\ network' = network \ {write}
    /\ Step("DropWrite", [from |-> write.partition, epoch |-> write.epoch])
    /\ UNCHANGED <<coordinator, producer, log, decided, faults>>

Decide(marker, transaction, epoch) ==
    /\ Prepare(marker, epoch)
    /\ decided' = [decided EXCEPT ![transaction] = marker]

\* The producer ends its transaction.  What it has no response to is not
\* committed: it aborts if a write of it may still be on its way.
EndTransaction(marker) ==
    /\ coordinator.state = "ongoing"
    /\ coordinator.epoch = producer.epoch
    /\ ~producer.asked
    /\ marker = "commit" => \A w \in network : w.transaction # producer.transaction
    /\ LET epoch == IF On("BeforeKip890") THEN producer.epoch ELSE producer.epoch + 1
       IN  /\ Decide(marker, producer.transaction, epoch)
           /\ producer' = [epoch |-> epoch, transaction |-> producer.transaction, asked |-> TRUE]
    /\ Step("EndTransaction", [from |-> "producer", to |-> "coordinator", marker |-> marker])
    /\ UNCHANGED <<network, log, faults>>

\* The producer was silent for too long: aborted, and fenced by the epoch.
TimeOut ==
    /\ coordinator.state = "ongoing"
    /\ ~producer.asked
    /\ faults.timeout > 0
    /\ faults' = [faults EXCEPT !.timeout = @ - 1]
    /\ Decide("abort", producer.transaction, coordinator.epoch + 1)
    /\ producer' = [producer EXCEPT !.asked = TRUE]
    /\ Step("TimeOut", [from |-> "coordinator"])
    /\ UNCHANGED <<network, log>>

\* Another process with the same transactional id: what was open is aborted,
\* and the one before is fenced.
NewSession ==
    /\ coordinator.state \in {"empty", "ongoing"}
    /\ faults.session > 0
    /\ producer.transaction < Transactions
    /\ faults' = [faults EXCEPT !.session = @ - 1]
    /\ LET epoch == IF On("KeepEpochOnNewSession") THEN coordinator.epoch ELSE coordinator.epoch + 1
       IN  IF coordinator.state = "ongoing"
           THEN /\ Decide("abort", producer.transaction, epoch)
                /\ producer' = [epoch |-> epoch, transaction |-> producer.transaction, asked |-> TRUE]
           ELSE /\ coordinator' = [coordinator EXCEPT !.epoch = epoch]
                /\ decided' = [decided EXCEPT ![producer.transaction] = "abort"]
                /\ producer' = [epoch |-> epoch, transaction |-> producer.transaction + 1, asked |-> FALSE]
    /\ Step("NewSession", [from |-> "producer", to |-> "coordinator"])
    /\ UNCHANGED <<network, log>>

\* The leader of a partition writes the marker, once or again.
AppendMarker(p) ==
    /\ p \in coordinator.partitions
    /\ coordinator.state = "prepared" \/ On("MarkerBeforeDecision")
    /\ LET kind == IF coordinator.state = "prepared" THEN coordinator.marker ELSE "commit"
           marker == [kind |-> kind, epoch |-> coordinator.epoch, transaction |-> 0]
       IN  /\ Last(p) # marker
           /\ log' = [log EXCEPT ![p] = Append(@, marker)]
    /\ Step("AppendMarker", [from |-> "coordinator", to |-> p])
    /\ UNCHANGED <<coordinator, producer, network, decided, faults>>

\* The coordinator learns that the marker is written.
WriteMarker(p) ==
    /\ p \in coordinator.partitions
    /\ coordinator.state = "prepared"
    /\ Last(p) = [kind |-> coordinator.marker, epoch |-> coordinator.epoch, transaction |-> 0]
    /\ HasMarker(p)
    /\ Step("WriteMarker", [from |-> p, to |-> "coordinator"])
    /\ UNCHANGED <<producer, network, log, decided, faults>>

CompleteTransaction ==
    /\ Complete
    /\ producer' = [epoch |-> coordinator.epoch, transaction |-> producer.transaction + 1, asked |-> FALSE]
    /\ Step("CompleteTransaction", [from |-> "coordinator"])
    /\ UNCHANGED <<network, log, decided, faults>>

\* Another coordinator has the log; which markers are written is not in it.
TakeOver ==
    /\ faults.takeOver > 0
    /\ faults' = [faults EXCEPT !.takeOver = @ - 1]
    /\ Reload
    /\ Step("TakeOver", [from |-> "coordinator"])
    /\ UNCHANGED <<producer, network, log, decided>>

Next ==
    \/ \E p \in Partitions : SendWrite(p) \/ AppendMarker(p) \/ WriteMarker(p)
    \/ \E write \in network : AddPartitions(write) \/ AppendWrite(write) \/ DropWrite(write)
    \/ \E marker \in {"commit", "abort"} : EndTransaction(marker)
    \/ TimeOut \/ NewSession \/ CompleteTransaction \/ TakeOver

Fairness ==
    /\ WF_vars(CompleteTransaction)
    /\ \A p \in Partitions : WF_vars(AppendMarker(p)) /\ WF_vars(WriteMarker(p))

Spec == Init /\ [][Next]_vars
FairSpec == Spec /\ Fairness

-----------------------------------------------------------------------------
Markers(p, i) == {j \in (i + 1)..Len(log[p]) : log[p][j].kind # "data"}
IsOpen(p, i) == log[p][i].kind = "data" /\ Markers(p, i) = {}
OutcomeOf(p, i) == LET next == CHOOSE j \in Markers(p, i) : \A k \in Markers(p, i) : j <= k IN log[p][next].kind

\* An open transaction is known to the coordinator, so that a marker will
\* come and the last stable offset will move.
NoHangingTransaction ==
    \A p \in Partitions : \A i \in DOMAIN log[p] : IsOpen(p, i) => p \in coordinator.partitions

\* What is read as committed was decided so: nothing of an aborted
\* transaction is ever visible, and no transaction half.
VisibleIsDecided ==
    \A p \in Partitions : \A i \in DOMAIN log[p] :
        log[p][i].kind = "data" /\ ~IsOpen(p, i) => OutcomeOf(p, i) = decided[log[p][i].transaction]

ProducerEpochsNeverDecreaseInLog ==
    \A p \in Partitions : \A i \in 1..(Len(log[p]) - 1) : log[p][i].epoch <= log[p][i + 1].epoch

DecisionsAreFinal == [][\A t \in DOMAIN decided : decided[t] # "open" => decided'[t] = decided[t]]_vars

\* Liveness: what was decided is completed.
DecidedIsCompleted == (coordinator.state = "prepared") ~> (coordinator.state = "empty")

Symmetry == Permutations(Partitions)
View == stateVars
=============================================================================
