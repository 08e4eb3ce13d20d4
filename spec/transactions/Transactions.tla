---------------------------- MODULE Transactions ----------------------------
(***************************************************************************)
(* Transactions across partitions (KIP-98): one transactional id, its      *)
(* coordinator, and the partitions that it writes to. A transaction ends   *)
(* once the coordinator has decided, and every partition of the            *)
(* transaction has a marker of the decision. Consumers with                *)
(* isolation.level=read_committed read up to the last stable offset, where *)
(* the first open transaction begins.                                      *)
(*                                                                         *)
(* KIP-890 is in force: the producer epoch grows with every transaction,   *)
(* and a partition's leader adds the partition at the coordinator before   *)
(* it appends. The switch BeforeKip890 drops both rules: the producer adds *)
(* partitions itself, and a write that is delayed until its transaction    *)
(* has ended opens a transaction that never ends.                          *)
(*                                                                         *)
(* Another broker may become the coordinator, with the transaction log. It *)
(* writes all markers of a decided transaction again.                      *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Partitions, Transactions, Timeouts, Sessions, TakeOvers, RecordSteps, Bugs

KnownBugs == {"BeforeKip890", "MarkerBeforeDecision", "KeepEpochOnNewSession"}
ASSUME Bugs \subseteq KnownBugs
On(bug) == bug \in Bugs

VARIABLES
    coordinator,    \* its state, the producer epoch, the epoch of the open transaction (`opened`), the partitions that need
                    \* a marker (`partitions`), all partitions of a decided transaction (`all`), and the decision (`marker`)
    producer,       \* the live producer's epoch and transaction, and whether it waits for the transaction's end (`asked`)
    network,        \* writes on their way; they may be late or lost
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

\* The newest producer epoch in the partition's log, of data or markers.
EpochAt(p) == LET epochs == {log[p][i].epoch : i \in DOMAIN log[p]}
              IN IF epochs = {} THEN 0 ELSE CHOOSE e \in epochs : \A f \in epochs : f <= e

Last(p) == IF log[p] = <<>> THEN [kind |-> "nothing", epoch |-> 0, transaction |-> 0] ELSE log[p][Len(log[p])]

-----------------------------------------------------------------------------
\* What the coordinator does in the steps below; traces of coordinators are checked by these.

\* Whether the coordinator adds partitions for a producer of this epoch.
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

\* Another coordinator does not know which markers are written: all are missing again.
Reload == coordinator' = IF coordinator.state = "prepared" THEN [coordinator EXCEPT !.partitions = coordinator.all] ELSE coordinator

\* Whether the partition's leader appends a write of this epoch: its log has no newer epoch, and the partition is in
\* the coordinator's open transaction of that epoch.
Takes(p, epoch) ==
    /\ epoch >= EpochAt(p)
    /\ On("BeforeKip890") \/ (p \in coordinator.partitions /\ epoch = coordinator.opened)

-----------------------------------------------------------------------------
\* The producer sends the transaction's write to a partition; before KIP-890 it first adds the partition itself.
SendWrite(p) ==
    /\ producer.transaction <= Transactions
    /\ ~producer.asked
    /\ Write(p) \notin network
    /\ \A i \in DOMAIN log[p] : log[p][i].transaction # producer.transaction
    /\ network' = network \cup {Write(p)}
    /\ IF On("BeforeKip890") THEN Admits(producer.epoch) /\ Join({p}) ELSE UNCHANGED coordinator
    /\ Step("SendWrite", [from |-> "producer", to |-> p, epoch |-> producer.epoch])
    /\ UNCHANGED <<producer, log, decided, faults>>

\* The partition's leader adds the partition at the coordinator, before it appends.
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

\* The leader refuses the write, or the network loses it.
DropWrite(write) ==
    /\ write \in network
    /\ network' = network \ {write}
    /\ Step("DropWrite", [from |-> write.partition, epoch |-> write.epoch])
    /\ UNCHANGED <<coordinator, producer, log, decided, faults>>

Decide(marker, transaction, epoch) ==
    /\ Prepare(marker, epoch)
    /\ decided' = [decided EXCEPT ![transaction] = marker]

\* The producer sends EndTxn. It commits only if no write of the transaction is still on its way.
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

\* transaction.timeout.ms has passed: the coordinator aborts the transaction, and fences the producer by a new epoch.
TimeOut ==
    /\ coordinator.state = "ongoing"
    /\ ~producer.asked
    /\ faults.timeout > 0
    /\ faults' = [faults EXCEPT !.timeout = @ - 1]
    /\ Decide("abort", producer.transaction, coordinator.epoch + 1)
    /\ producer' = [producer EXCEPT !.asked = TRUE]
    /\ Step("TimeOut", [from |-> "coordinator"])
    /\ UNCHANGED <<network, log>>

\* Another process sends InitProducerId with the same transactional id: an open transaction is aborted, and the
\* process before is fenced.
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

\* The leader of a partition appends the marker of the decision.
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

\* Every partition has its marker: the transaction is complete, and the producer may begin the next one.
CompleteTransaction ==
    /\ Complete
    /\ producer' = [epoch |-> coordinator.epoch, transaction |-> producer.transaction + 1, asked |-> FALSE]
    /\ Step("CompleteTransaction", [from |-> "coordinator"])
    /\ UNCHANGED <<network, log, decided, faults>>

\* Another broker becomes the coordinator, with the transaction log. Which markers are written is not in it.
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
\* The kind of the first marker after a record.
OutcomeOf(p, i) == LET next == CHOOSE j \in Markers(p, i) : \A k \in Markers(p, i) : j <= k IN log[p][next].kind

\* The coordinator knows of every open transaction in a log, so that a marker will come and the last stable offset
\* will move.
NoHangingTransaction ==
    \A p \in Partitions : \A i \in DOMAIN log[p] : IsOpen(p, i) => p \in coordinator.partitions

\* The marker after a record is the decision on its transaction. So no record of an aborted transaction is ever
\* visible, and no committed transaction only in part.
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
