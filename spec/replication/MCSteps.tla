------------------------------- MODULE MCSteps -------------------------------
(***************************************************************************)
(* Promises of single steps, whatever the logs hold: what a step must      *)
(* reset, what begins an epoch, which replicas stay eligible, and that     *)
(* some step is enabled until the cluster is healed. They were found by    *)
(* mutating the specification: no other promise noticed those changes.     *)
(***************************************************************************)
EXTENDS MCRules

\* Like UnfencedHaveReplayed, without HasReplayed, which is the guard of the step.
UnfencedKnowThePartition ==
    \A b \in Unfenced : Running(b) => metadata[b].leaderEpoch > 0 \/ metadata[b].replicas = {}

\* A broker's memory fits its role. A process that has ended has no metadata. Only leaders have progress and
\* proposals, but a request may outlive its process. A broker without a replica has no log. No follower has to
\* truncate before it fetches.
MemoryFitsRole ==
    \A b \in Brokers :
        /\ Running(b) \/ metadata[b] = NoMetadata
        /\ Leads(b) \/ (progress[b] = NoProgress /\ (pending[b] = None \/ status[b] \in {"crashed", "stopped"}))
        /\ b \in metadata[b].replicas \/ log[b] = <<>>
        /\ ~truncating[b]

\* A proposal differs from the leader's ISR, contains the leader, and names only replicas.
ProposalsChangeTheIsr ==
    \A l \in Brokers : Leads(l) /\ pending[l] # None =>
        l \in pending[l].isr /\ pending[l].isr # metadata[l].isr /\ pending[l].isr \subseteq metadata[l].replicas

\* Progress is reset when the leader epoch changes, and not before.
ProgressIsOfThisEpoch ==
    [][\A b \in Brokers :
        IF metadata'[b].leaderEpoch # metadata[b].leaderEpoch THEN progress'[b] = NoProgress
        ELSE \A f \in Brokers : progress[b][f].end >= 0 => progress'[b][f].end >= 0]_vars

\* Another leader, and the removal of a replica, begin a leader epoch. Every change, but of min.insync.replicas,
\* begins a partition epoch.
ChangesHaveEpochs ==
    [][ /\ partition'.leader # partition.leader \/ ~(partition.replicas \subseteq partition'.replicas)
           => partition'.leaderEpoch > partition.leaderEpoch
        /\ [partition' EXCEPT !.minIsr = 0] # [partition EXCEPT !.minIsr = 0]
           => partition'.partitionEpoch > partition.partitionEpoch
      ]_vars

\* KIP-966. A replica that leaves the ISR stays eligible if the ISR is then smaller than min.insync.replicas, unless
\* it has registered again.
LeaversStayEligible ==
    [][\A b \in (partition.isr \cup partition.elr) \ partition'.isr :
        /\ ~UncleanElection /\ faults'.reconfigure = faults.reconfigure /\ b \in partition'.replicas
        /\ registry'[b].brokerEpoch = registry[b].brokerEpoch
        /\ Cardinality(partition'.isr) < RequiredIsr(partition)
        => b \in partition'.elr]_vars

\* A replica leaves the ISR only if the controller fences or removes it, or if a leader proposed an ISR without it.
LeaversAreFenced ==
    [][\A b \in partition.isr \ partition'.isr :
        \/ UncleanElection \/ registry'[b].fenced \/ b \notin partition'.replicas
        \/ \E l \in Brokers : pending[l] # None /\ b \notin pending[l].isr]_vars

\* A broker that crashed may lack a tail: it counts as uncleanly shut down until it has registered.
UncleanUntilRegistered ==
    [][\A b \in Brokers : status[b] \in {"crashed", "recovered"} => status'[b] \notin {"stopped", "returned"}]_vars

\* A leader from outside of ISR and ELR is alone in the ISR, and the ELR is empty.
UncleanLeadersAreAlone ==
    [][ /\ partition'.leader \notin {partition.leader, None} \cup partition.isr \cup partition.elr
        /\ \A l \in Brokers : pending[l] # None => partition'.leader \notin pending[l].isr
        => partition'.isr = {partition'.leader} /\ partition'.elr = {} ]_vars

\* A new replica is an adding one. Once the adding replicas are in the ISR the reassignment is over, unless fewer are
\* added than removed. Some replica stays.
AddedUntilInSync ==
    [][ partition' # partition =>
        /\ partition'.replicas \ partition.replicas \subseteq partition'.adding
        /\ partition'.replicas # partition'.removing
        /\ partition'.adding # {} /\ partition'.adding \subseteq partition'.isr \ partition'.removing
           => Cardinality(partition'.adding) < Cardinality(partition'.removing) ]_vars

\* A record of acks=all is appended only by a leader whose ISR has at least min.insync.replicas members.
AppendedUnderMinIsr ==
    [][ sent' # sent /\ sent'[Len(sent')] = "all" =>
        \E l \in Brokers : Leads(l) /\ log'[l] # log[l] /\ Cardinality(metadata[l].isr) >= RequiredIsr(metadata[l]) ]_vars

\* The steps that need neither a fault nor a request.
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

\* Whether the broker acts in the newest leader epoch with the leader's log, or has no replica and knows that.
Agrees(b, l) ==
    IF b \notin partition.replicas THEN metadata[b].replicas = {}
    ELSE /\ metadata[b].leaderEpoch = partition.leaderEpoch
         /\ log[b] = log[l] /\ highWatermark[b] = EndOffset(log[l])

\* Liveness as an invariant: where no step of Healing is enabled, the cluster is healed, or no replica is eligible to
\* lead.
RestIsHealed ==
    \/ ENABLED <<Healing>>_stateVars
    \/ partition.leader = None /\ partition.isr \cup partition.elr = {} /\ ~UncleanElection
    \/ /\ IsCurrentLeader(partition.leader) /\ metadata[partition.leader] = partition
       /\ partition.isr = partition.replicas /\ partition.adding \cup partition.removing = {}
       /\ \A b \in Brokers : Running(b) /\ b \in Unfenced /\ pending[b] = None /\ Agrees(b, partition.leader)
       /\ \A number \in Numbers(log[partition.leader]) : sent[number] = "all" => number \in acknowledged
       /\ Len(consumed) >= Min(Reads, EndOffset(log[partition.leader]))
=============================================================================
