---------------------------- MODULE MCQuorumRules ----------------------------
(***************************************************************************)
(* Promises of single rules of the quorum, beside what is committed. They  *)
(* show a fault at once where another rule masks it, or where it takes     *)
(* many steps to show.                                                     *)
(***************************************************************************)
EXTENDS Quorum

\* A leader or candidate has voted for itself. A follower has no votes; any other voter counts its own.
RolesFitVotes ==
    \A v \in Voters :
        /\ role[v] \in {"candidate", "leader"} => votedFor[v] = v
        /\ IF role[v] = "follower" THEN votes[v] = {} ELSE v \in votes[v]

\* A voter does not change its vote within an epoch.
VotesAreFinal ==
    [][\A v \in Voters : epoch'[v] = epoch[v] /\ votedFor[v] # None => votedFor'[v] = votedFor[v]]_vars

\* What a leader counts for a voter of its epoch is in that voter's log.
ReachedIsThere ==
    \A l, f \in Voters : role[l] = "leader" /\ epoch[f] = epoch[l] => reached[l][f] <= EndOffset(log[f])

\* A leader does not truncate, and only a restart lowers a high watermark.
NothingIsTakenBack ==
    [][\A v \in Voters :
        /\ role[v] = "leader" /\ role'[v] = "leader" => IsPrefix(log[v], log'[v])
        /\ highWatermark'[v] >= highWatermark[v] \/ crashes' < crashes]_vars

\* The steps without new prospective voters, new records and restarts.
Work ==
    \E v \in Voters :
        \/ BecomeCandidate(v) \/ BecomeLeader(v) \/ AdvanceHighWatermark(v)
        \/ \E w \in Voters : GrantPreVote(v, w) \/ LearnEpoch(v, w) \/ AnswerFetch(v, w) \/ ApplyFetch(v, w)
        \/ \E request \in asked : GrantVote(v, request)

\* Liveness as an invariant: where no step of Work is enabled, followers of the newest leader have its log, and a log
\* that ends with a record of its epoch is committed.
RestIsReplicated ==
    ENABLED <<Work>>_stateVars \/
    \A l \in Voters : role[l] = "leader" /\ (\A v \in Voters : epoch[v] <= epoch[l]) =>
        /\ \A f \in Voters :
            /\ epoch[f] = epoch[l]
            /\ role[f] = "follower" => log[f] = log[l] /\ highWatermark[f] >= highWatermark[l]
        /\ (\A f \in Voters \ {l} : role[f] = "follower") /\ LastEpoch(log[l]) = epoch[l]
           => highWatermark[l] = EndOffset(log[l])
=============================================================================
