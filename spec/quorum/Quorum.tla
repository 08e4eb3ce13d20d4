------------------------------- MODULE Quorum -------------------------------
(***************************************************************************)
(* The metadata quorum: Raft as KRaft does it (KIP-595, KIP-996).  Voters  *)
(* elect a leader for an epoch; the others fetch from it, and the fetch    *)
(* offset is a voter's log end offset.  A record is committed when a       *)
(* majority has it and it is of the leader's own epoch.  The committed     *)
(* prefix is what the controller's decisions rest on: here it is shown     *)
(* that the one controller of Controller.tla exists.                       *)
(*                                                                         *)
(* Epoch, vote and log survive a crash; everything else is forgotten.      *)
(* Messages are as late as the step that takes them: each voter answers    *)
(* in a step of its own, with what the other was when it asked.            *)
(***************************************************************************)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS Voters, None, Records, Epochs, Crashes, RecordSteps, Bugs

KnownBugs == {"ForgetVote", "VoteForShorterLog", "CommitEarlierEpoch", "FetchAcrossEpochs"}
ASSUME Bugs \subseteq KnownBugs
On(bug) == bug \in Bugs

VARIABLES
    epoch, votedFor, log,       \* each voter's, on disk
    role,                       \* "follower", "prospective", "candidate", "leader"
    votes,                      \* who voted, or would vote, for it in its present round
    asked,                      \* the vote requests of candidates: with the log that they had then
    highWatermark,
    reached,                    \* as a leader: how far each voter was when it last fetched in this epoch
    crashes,
    step

stateVars == <<epoch, votedFor, log, role, votes, asked, highWatermark, reached, crashes>>
vars == <<stateVars, step>>

Step(action, arguments) == step' = IF RecordSteps THEN [action |-> action] @@ arguments ELSE step

\* A log is the sequence of its records' epochs; traces have another form of it, and other operators in the place of these.
EndOffset(records) == Len(records)
LastEpoch(records) == IF records = <<>> THEN 0 ELSE records[Len(records)]
Prefix(records, end) == SubSeq(records, 1, end)

Lesser(a, b) == IF a < b THEN a ELSE b
IsPrefix(a, b) == EndOffset(a) <= EndOffset(b) /\ a = Prefix(b, EndOffset(a))
Majority(voters) == 2 * Cardinality(voters) > Cardinality(Voters)

UpToDate(lastEpoch, end, v) ==
    \/ lastEpoch > LastEpoch(log[v])
    \/ lastEpoch = LastEpoch(log[v]) /\ end >= EndOffset(log[v])
    \/ On("VoteForShorterLog")

Init ==
    /\ epoch = [v \in Voters |-> 0]
    /\ votedFor = [v \in Voters |-> None]
    /\ log = [v \in Voters |-> <<>>]
    /\ role = [v \in Voters |-> "follower"]
    /\ votes = [v \in Voters |-> {}]
    /\ asked = {}
    /\ highWatermark = [v \in Voters |-> 0]
    /\ reached = [v \in Voters |-> [w \in Voters |-> 0]]
    /\ crashes = Crashes
    /\ step = [action |-> "Init"]

\* Any sign of a newer epoch makes a follower of it, with its vote to give.
JoinEpoch(v, newer) ==
    /\ epoch' = [epoch EXCEPT ![v] = newer]
    /\ votedFor' = [votedFor EXCEPT ![v] = IF newer > epoch[v] THEN None ELSE @]
    /\ role' = [role EXCEPT ![v] = "follower"]
    /\ votes' = [votes EXCEPT ![v] = {}]

-----------------------------------------------------------------------------
\* The fetch timeout has passed.  Before it disturbs the quorum the voter asks
\* whether the others would vote for it (pre-vote): no epoch is spent.
BecomeProspective(v) ==
    /\ role[v] = "follower"
    /\ epoch[v] < Epochs
    /\ role' = [role EXCEPT ![v] = "prospective"]
    /\ votes' = [votes EXCEPT ![v] = {v}]
    /\ Step("BecomeProspective", [from |-> v])
    /\ UNCHANGED <<epoch, votedFor, log, asked, highWatermark, reached, crashes>>

\* Granted by a voter whose fetch timeout has passed, too, and whose log is not ahead.
GrantPreVote(v, to) ==
    /\ role[to] = "prospective"
    /\ v \notin votes[to]
    /\ role[v] # "leader"
    /\ epoch[v] <= epoch[to]
    /\ UpToDate(LastEpoch(log[to]), EndOffset(log[to]), v)
    /\ votes' = [votes EXCEPT ![to] = @ \cup {v}]
    /\ Step("GrantPreVote", [from |-> v, to |-> to])
    /\ UNCHANGED <<epoch, votedFor, log, role, asked, highWatermark, reached, crashes>>

\* Only a candidate's newest round is of interest: a vote in an older one has no effect.
StillAsked(v) == {a \in asked : a.candidate # v}

BecomeCandidate(v) ==
    /\ role[v] = "prospective"
    /\ Majority(votes[v])
    /\ epoch' = [epoch EXCEPT ![v] = @ + 1]
    /\ votedFor' = [votedFor EXCEPT ![v] = v]
    /\ role' = [role EXCEPT ![v] = "candidate"]
    /\ votes' = [votes EXCEPT ![v] = {v}]
    /\ asked' = StillAsked(v) \cup
           {[candidate |-> v, epoch |-> epoch[v] + 1, lastEpoch |-> LastEpoch(log[v]), end |-> EndOffset(log[v])]}
    /\ Step("BecomeCandidate", [from |-> v, epoch |-> epoch[v] + 1])
    /\ UNCHANGED <<log, highWatermark, reached, crashes>>

\* One vote an epoch, written before it is sent.
GrantVote(v, request) ==
    LET c == request.candidate
        free == request.epoch > epoch[v] \/ votedFor[v] \in {None, c}
    IN  /\ request \in asked
        /\ v # c
        /\ request.epoch >= epoch[v]
        /\ role[v] # "leader" \/ request.epoch > epoch[v]
        /\ free
        /\ UpToDate(request.lastEpoch, request.end, v)
        /\ epoch' = [epoch EXCEPT ![v] = request.epoch]
        /\ votedFor' = [votedFor EXCEPT ![v] = c]
        /\ role' = [role EXCEPT ![v] = "follower"]
        /\ votes' = [votes EXCEPT ![v] = {},
                                  ![c] = IF role[c] = "candidate" /\ epoch[c] = request.epoch THEN @ \cup {v} ELSE @]
        /\ votes' # votes \/ epoch' # epoch \/ votedFor' # votedFor
        /\ Step("GrantVote", [from |-> v, to |-> c, epoch |-> request.epoch])
        /\ UNCHANGED <<log, asked, highWatermark, reached, crashes>>

BecomeLeader(v) ==
    /\ role[v] = "candidate"
    /\ Majority(votes[v])
    /\ role' = [role EXCEPT ![v] = "leader"]
    /\ reached' = [reached EXCEPT ![v] = [w \in Voters |-> 0]]
    /\ Step("BecomeLeader", [from |-> v, epoch |-> epoch[v]])
    /\ UNCHANGED <<epoch, votedFor, log, votes, asked, highWatermark, crashes>>

\* BeginQuorumEpoch, or an answer that names a newer epoch.
LearnEpoch(v, other) ==
    /\ epoch[other] > epoch[v]
    /\ JoinEpoch(v, epoch[other])
    /\ Step("LearnEpoch", [from |-> other, to |-> v, epoch |-> epoch[other]])
    /\ UNCHANGED <<log, asked, highWatermark, reached, crashes>>

-----------------------------------------------------------------------------
AppendRecord(l) ==
    /\ role[l] = "leader"
    /\ EndOffset(log[l]) < Records
    /\ log' = [log EXCEPT ![l] = Append(@, epoch[l])]
    /\ Step("AppendRecord", [from |-> l])
    /\ UNCHANGED <<epoch, votedFor, role, votes, asked, highWatermark, reached, crashes>>

MayFetch(f, l) ==
    /\ f # l
    /\ role[l] = "leader"
    /\ role[f] = "follower"
    /\ epoch[f] = epoch[l] \/ On("FetchAcrossEpochs")

InLine(f, l) == IsPrefix(log[f], log[l])

\* The leader takes a fetch of its epoch.
AnswerFetch(l, f) ==
    /\ MayFetch(f, l)
    /\ InLine(f, l)
    /\ reached[l][f] # EndOffset(log[f])
    /\ reached' = [reached EXCEPT ![l][f] = EndOffset(log[f])]
    /\ Step("AnswerFetch", [from |-> f, to |-> l, end |-> EndOffset(log[f])])
    /\ UNCHANGED <<epoch, votedFor, log, role, votes, asked, highWatermark, crashes>>

\* The follower's log becomes these records, and it learns how many are committed.
Take(f, records, committed) ==
    LET known == Lesser(committed, EndOffset(records))
    IN  /\ log' = [log EXCEPT ![f] = records]
        /\ highWatermark' = [highWatermark EXCEPT ![f] = IF known > @ THEN known ELSE @]

\* The follower appends the next record and flushes it, or cuts off what the
\* leader does not have; with it comes the high watermark.
ApplyFetch(f, l) ==
    /\ MayFetch(f, l)
    /\ LET common == CHOOSE n \in 0..EndOffset(log[f]) :
                        /\ n <= EndOffset(log[l]) /\ Prefix(log[f], n) = Prefix(log[l], n)
                        /\ \A m \in (n + 1)..EndOffset(log[f]) :
                               m > EndOffset(log[l]) \/ Prefix(log[f], m) # Prefix(log[l], m)
           records == IF InLine(f, l) THEN Prefix(log[l], Lesser(EndOffset(log[f]) + 1, EndOffset(log[l])))
                      ELSE Prefix(log[f], common)
       IN  Take(f, records, highWatermark[l])
    /\ log' # log \/ highWatermark' # highWatermark
    /\ Step("ApplyFetch", [from |-> l, to |-> f])
    /\ UNCHANGED <<epoch, votedFor, role, votes, asked, reached, crashes>>

\* A majority has it, and the last of it is of the leader's own epoch.
AdvanceHighWatermark(l) ==
    /\ role[l] = "leader"
    /\ \E end \in (highWatermark[l] + 1)..EndOffset(log[l]) :
        /\ Majority({l} \cup {f \in Voters : reached[l][f] >= end})
        /\ LastEpoch(Prefix(log[l], end)) = epoch[l] \/ On("CommitEarlierEpoch")
        /\ highWatermark' = [highWatermark EXCEPT ![l] = end]
        /\ Step("AdvanceHighWatermark", [from |-> l, highWatermark |-> end])
    /\ UNCHANGED <<epoch, votedFor, log, role, votes, asked, reached, crashes>>

-----------------------------------------------------------------------------
Restart(v) ==
    /\ crashes > 0
    /\ crashes' = crashes - 1
    /\ role' = [role EXCEPT ![v] = "follower"]
    /\ votes' = [votes EXCEPT ![v] = {}]
    /\ reached' = [reached EXCEPT ![v] = [w \in Voters |-> 0]]
    /\ highWatermark' = [highWatermark EXCEPT ![v] = 0]
    /\ votedFor' = IF On("ForgetVote") THEN [votedFor EXCEPT ![v] = None] ELSE votedFor
    /\ Step("Restart", [from |-> v])
    /\ UNCHANGED <<epoch, log, asked>>

Next ==
    \/ \E v \in Voters :
        \/ BecomeProspective(v) \/ BecomeCandidate(v) \/ BecomeLeader(v)
        \/ AppendRecord(v) \/ AdvanceHighWatermark(v) \/ Restart(v)
    \/ \E v, w \in Voters : GrantPreVote(v, w) \/ LearnEpoch(v, w) \/ AnswerFetch(v, w) \/ ApplyFetch(v, w)
    \/ \E v \in Voters, request \in asked : GrantVote(v, request)

Spec == Init /\ [][Next]_vars

-----------------------------------------------------------------------------
OneLeaderPerEpoch ==
    \A v, w \in Voters : role[v] = "leader" /\ role[w] = "leader" /\ epoch[v] = epoch[w] => v = w

LogMatching ==
    \A v, w \in Voters : \A i \in 1..Lesser(EndOffset(log[v]), EndOffset(log[w])) :
        LastEpoch(Prefix(log[v], i)) = LastEpoch(Prefix(log[w], i)) => Prefix(log[v], i) = Prefix(log[w], i)

Committed(v) == Prefix(log[v], highWatermark[v])

HighWatermarkBound == \A v \in Voters : highWatermark[v] <= EndOffset(log[v])

\* What is committed stays, in whatever any voter calls committed.
CommittedLogsAgree == \A v, w \in Voters : IsPrefix(Committed(v), Committed(w)) \/ IsPrefix(Committed(w), Committed(v))

\* The leader of the newest epoch has all that was ever committed.
LeaderCompleteness ==
    \A l, v \in Voters :
        role[l] = "leader" /\ (\A w \in Voters : epoch[w] <= epoch[l]) => IsPrefix(Committed(v), log[l])

EpochsNeverDecrease == [][\A v \in Voters : epoch'[v] >= epoch[v]]_vars

Symmetry == Permutations(Voters)
View == stateVars
=============================================================================
