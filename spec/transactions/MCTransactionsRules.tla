------------------------- MODULE MCTransactionsRules -------------------------
(***************************************************************************)
(* Promises of single rules of transactions. They show a fault at once     *)
(* where another rule masks it, or where it takes many steps to show.      *)
(***************************************************************************)
EXTENDS Transactions

\* A partition is added only for a write of the coordinator's present epoch.
JoinedByPresentWrites ==
    [][ coordinator'.state = "ongoing" =>
        \A p \in coordinator'.partitions \ coordinator.partitions :
            \E w \in network : w.partition = p /\ w.epoch = coordinator.epoch ]_vars

\* The next transaction begins once no partition of the one before is left.
TransactionsBeginEmpty ==
    [][ producer'.transaction > producer.transaction
        => coordinator'.state = "empty" /\ coordinator'.partitions = {} ]_vars

\* A partition has at most one record of a transaction: a write is appended once.
TakenOnce ==
    \A p \in Partitions : \A i, j \in DOMAIN log[p] :
        i # j /\ log[p][i].kind = "data" /\ log[p][j].kind = "data" => log[p][i].transaction # log[p][j].transaction

\* A write to a partition of the open transaction is not refused.
JoinedWritesAreTaken ==
    \A w \in network :
        /\ coordinator.state = "ongoing" /\ w.partition \in coordinator.partitions
        /\ w.epoch = coordinator.epoch /\ w.epoch = coordinator.opened
        => ENABLED AppendWrite(w)

\* The steps of the coordinator and of the partitions' leaders that complete a transaction.
Work == CompleteTransaction \/ \E p \in Partitions : AppendMarker(p) \/ WriteMarker(p)
\* Liveness as an invariant: where no step of Work is enabled, no decided transaction is incomplete.
RestIsCompleted == ENABLED <<Work>>_stateVars \/ coordinator.state # "prepared"
=============================================================================
