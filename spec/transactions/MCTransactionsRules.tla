------------------------- MODULE MCTransactionsRules -------------------------
(***************************************************************************)
(* What single rules of transactions promise: a rule that another one      *)
(* masks, or whose fault takes long to show, breaks here.                  *)
(***************************************************************************)
EXTENDS Transactions

\* A partition joins by a write of the epoch that the coordinator admits.
JoinedByPresentWrites ==
    [][ coordinator'.state = "ongoing" =>
        \A p \in coordinator'.partitions \ coordinator.partitions :
            \E w \in network : w.partition = p /\ w.epoch = coordinator.epoch ]_vars

\* The next transaction begins when nothing is left of the one before.
TransactionsBeginEmpty ==
    [][ producer'.transaction > producer.transaction
        => coordinator'.state = "empty" /\ coordinator'.partitions = {} ]_vars

\* A write is taken once.
TakenOnce ==
    \A p \in Partitions : \A i, j \in DOMAIN log[p] :
        i # j /\ log[p][i].kind = "data" /\ log[p][j].kind = "data" => log[p][i].transaction # log[p][j].transaction

\* A write whose partition has joined is not refused.
JoinedWritesAreTaken ==
    \A w \in network :
        /\ coordinator.state = "ongoing" /\ w.partition \in coordinator.partitions
        /\ w.epoch = coordinator.epoch /\ w.epoch = coordinator.opened
        => ENABLED AppendWrite(w)

\* When the coordinator and the leaders have nothing left to do, what was decided is completed.
Work == CompleteTransaction \/ \E p \in Partitions : AppendMarker(p) \/ WriteMarker(p)
RestIsCompleted == ENABLED <<Work>>_stateVars \/ coordinator.state # "prepared"
=============================================================================
