------------------------------- MODULE MCSteps -------------------------------
(***************************************************************************)
(* What single steps promise of themselves, whatever becomes of the log:   *)
(* what they must forget, what begins an epoch, who stays eligible, and    *)
(* that there is something to do until all is well.  Found by mutating the *)
(* specification: without these promises the changes were not noticed.     *)
(***************************************************************************)
EXTENDS MCRules

\* What UnfencedHaveReplayed promises, in words that do not rest on the guard itself.
UnfencedKnowThePartition ==
    \A b \in Unfenced : Running(b) => metadata[b].leaderEpoch > 0 \/ metadata[b].replicas = {}

\* What a broker has in memory is of its role: a process that is gone knows nothing, only leaders know of progress and
\* proposals (a request may outlive its process), and what is no replica has no log.  No replica truncates before it fetches.
MemoryFitsRole ==
    \A b \in Brokers :
        /\ Running(b) \/ metadata[b] = NoMetadata
        /\ Leads(b) \/ (progress[b] = NoProgress /\ (pending[b] = None \/ status[b] \in {"crashed", "stopped"}))
        /\ b \in metadata[b].replicas \/ log[b] = <<>>
        /\ ~truncating[b]

\* A proposal adds or removes a replica, and not the leader.
ProposalsChangeTheIsr ==
    \A l \in Brokers : Leads(l) /\ pending[l] # None =>
        l \in pending[l].isr /\ pending[l].isr # metadata[l].isr /\ pending[l].isr \subseteq metadata[l].replicas

\* A leader forgets what it knows of its followers with its leader epoch, and no earlier.
ProgressIsOfThisEpoch ==
    [][\A b \in Brokers :
        IF metadata'[b].leaderEpoch # metadata[b].leaderEpoch THEN progress'[b] = NoProgress
        ELSE \A f \in Brokers : progress[b][f].end >= 0 => progress'[b][f].end >= 0]_vars

\* Another leader, or a replica less, begins a leader epoch; whatever else changes, but min.insync.replicas, a partition epoch.
ChangesHaveEpochs ==
    [][ /\ partition'.leader # partition.leader \/ ~(partition.replicas \subseteq partition'.replicas)
           => partition'.leaderEpoch > partition.leaderEpoch
        /\ [partition' EXCEPT !.minIsr = 0] # [partition EXCEPT !.minIsr = 0]
           => partition'.partitionEpoch > partition.partitionEpoch
      ]_vars

\* KIP-966.  A replica that leaves an ISR which commits nothing any more stays eligible, unless it registers.
LeaversStayEligible ==
    [][\A b \in (partition.isr \cup partition.elr) \ partition'.isr :
        /\ ~UncleanElection /\ faults'.reconfigure = faults.reconfigure /\ b \in partition'.replicas
        /\ registry'[b].brokerEpoch = registry[b].brokerEpoch
        /\ Cardinality(partition'.isr) < RequiredIsr(partition)
        => b \in partition'.elr]_vars

\* The controller takes no replica out of the ISR that it does not fence, remove, or was asked to take out by the leader.
LeaversAreFenced ==
    [][\A b \in partition.isr \ partition'.isr :
        \/ UncleanElection \/ registry'[b].fenced \/ b \notin partition'.replicas
        \/ \E l \in Brokers : pending[l] # None /\ b \notin pending[l].isr]_vars

\* A broker that crashed may lack a tail: it is taken for that until it has registered.
UncleanUntilRegistered ==
    [][\A b \in Brokers : status[b] \in {"crashed", "recovered"} => status'[b] \notin {"stopped", "returned"}]_vars

\* A leader from outside of ISR and ELR begins with an ISR of its own.
UncleanLeadersAreAlone ==
    [][ /\ partition'.leader \notin {partition.leader, None} \cup partition.isr \cup partition.elr
        /\ \A l \in Brokers : pending[l] # None => partition'.leader \notin pending[l].isr
        => partition'.isr = {partition'.leader} /\ partition'.elr = {} ]_vars

\* A replica that is new is being added until it is in sync, and not longer; some replica stays.
AddedUntilInSync ==
    [][ partition' # partition =>
        /\ partition'.replicas \ partition.replicas \subseteq partition'.adding
        /\ partition'.replicas # partition'.removing
        /\ partition'.adding # {} /\ partition'.adding \subseteq partition'.isr \ partition'.removing
           => Cardinality(partition'.adding) < Cardinality(partition'.removing) ]_vars

\* acks=all is refused at once where the ISR is too small to commit it.
AppendedUnderMinIsr ==
    [][ sent' # sent /\ sent'[Len(sent')] = "all" =>
        \E l \in Brokers : Leads(l) /\ log'[l] # log[l] /\ Cardinality(metadata[l].isr) >= RequiredIsr(metadata[l]) ]_vars

\* What brokers do of themselves, without faults or requests.
Healing ==
    \/ \E b \in Brokers :
        \/ RegisterBroker(b) \/ UnfenceBroker(b) \/ AlterPartition(b) \/ ElectUncleanLeader(b)
        \/ RollBackIsr(b) \/ LearnMinIsr(b) \/ Consume(b)
        \/ \E end \in Offsets : AdvanceHighWatermark(b, end) \/ Restart(b, end, Min(highWatermark[b], end))
        \/ \E r \in published : BecomeLeader(b, r) \/ BecomeFollower(b, r) \/ CommitIsr(b, r) \/ GiveUpReplica(b, r)
        \/ \E number \in DOMAIN sent : Acknowledge(b, number)
    \/ \E l, f \in Brokers :
        \/ Truncate(f, l) \/ ExpandIsr(l, f)
        \/ \E fetch \in FetchesOf(f, l) : AnswerFetch(l, f, fetch)
        \/ \E end \in Offsets : AppendFetched(f, l, end)
        \/ \E fetched \in FetchedHighWatermarks(f, l) : AdoptHighWatermark(f, l, fetched)

Agrees(b, l) ==
    IF b \notin partition.replicas THEN metadata[b].replicas = {}
    ELSE /\ metadata[b].leaderEpoch = partition.leaderEpoch
         /\ log[b] = log[l] /\ highWatermark[b] = EndOffset(log[l])

\* When nothing is left to do, all is well: what liveness comes to, in one state.
RestIsHealed ==
    \/ ENABLED <<Healing>>_stateVars
    \/ partition.leader = None /\ partition.isr \cup partition.elr = {} /\ ~UncleanElection
    \/ /\ IsCurrentLeader(partition.leader) /\ metadata[partition.leader] = partition
       /\ partition.isr = partition.replicas /\ partition.adding \cup partition.removing = {}
       /\ \A b \in Brokers : Running(b) /\ b \in Unfenced /\ pending[b] = None /\ Agrees(b, partition.leader)
       /\ \A number \in Numbers(log[partition.leader]) : sent[number] = "all" => number \in acknowledged
       /\ Len(consumed) >= Min(Reads, EndOffset(log[partition.leader]))
=============================================================================
