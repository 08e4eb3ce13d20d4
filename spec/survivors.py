"""Why each mutant that no model noticed is no fault: read one by one.

A row names mutants by how their names begin, and holds for each of them; the tests see that each row has a survivor. Where a row
says that another rule implies the one that was changed, the models that the mutant met have the same states and steps with it.
"""

from __future__ import annotations

from spec import zookeeper_survivors
from spec.reasons import CHOSEN, ENVIRONMENT, NAMED, RATION, SWITCHED, UNCHANGED

GONE = "a process that is gone has no metadata (MemoryFitsRole), so the step's other conditions refuse it"
NOT_TRUNCATING = "only the switches of before KIP-595 ever have a replica truncate before it may fetch (MemoryFitsRole)"
KEPT = "which records are kept only distinguishes states by their past: each step that takes one asks whether it may be replayed"
JUDGES = "what the judge remembers of lost tails, not a broker: kept longer, it excuses more"
EVEN = "of two partitions and two members each has one, by either rule"
LESS = "less is allowed, which no promise notices: traces of clusters need it (TraceQuorum)"
STANDING = "a pre-vote is no vote: standing costs a voter its role at most, and votes alone decide"
REJOINED = "a voter joins its own epoch again: it keeps its vote (JoinEpoch), and gives up its role"
TAKEN = (
    "TakeAnswer's last condition keeps what both have, and what comes is the leader's or the voter's own: "
    "records that part are replaced in one step, not in two"
)
RARE = (
    "what one follower of three voters has, a majority has: it can only be lost from an earlier epoch than the leader's, and to "
    "lead over it twice takes five epochs, which no model of rules has"
)
LEARNED = "the voter may first learn of the newer epoch, and has its vote to give then (LearnEpoch)"
ASKED = (
    "the producer has asked, or was aborted, until its transaction is complete: the state is prepared then, not ongoing"
)
EMPTY = (
    "a transaction without partitions is decided and complete at once: no marker is written, and no record speaks of it"
)
EARLIER = "a write that comes before the marker of its partition is still of the transaction, as a late one is"
EQUAL = "where both are equal, either will do"

REASONS: tuple[tuple[str, str], ...] = (
    # Log and Controller
    ("Log.Min.comparison1", EQUAL),
    (
        "Controller.Replayable.guard3",
        "the steps that replay a record ask again: for a newer leader epoch, a leader, or a record without the broker",
    ),
    (
        "Controller.Replayable.comparison2",
        "a follower has records of its own leader epoch to replay then, and no step that does so: each asks for a newer one",
    ),
    ("Controller.Completed.alternative1", "where nothing comes or goes, completing changes nothing"),
    (
        "Controller.Completed.alternative2",
        "something is needed always: what is added, or what stays, which is never nothing (AddedUntilInSync); it is not in an "
        "empty ISR",
    ),
    ("Controller.IsrWithout.guard1", SWITCHED),
    ("Controller.Elections.guard1", SWITCHED),
    ("Controller.Decide.reset1", KEPT),
    (
        "Controller.UnfenceBroker.guard1",
        "who is not running has forgotten its metadata (Halt), and has therefore replayed nothing",
    ),
    (
        "Controller.UnfenceBroker.guard2",
        "of an unfenced broker nothing is changed, and the controller has decided already",
    ),
    (
        "Controller.FenceBroker.guard1",
        "a fenced broker is in no ISR and does not lead: fencing it again changes nothing",
    ),
    (
        "Controller.ControlledShutdown.guard1",
        "a broker that is gone is fenced anyway (FenceBroker), with the same record",
    ),
    (
        "Controller.ControlledShutdown.guard2",
        "a fenced broker is in no ISR and does not lead: fencing it again changes nothing",
    ),
    (
        "Controller.IsForThisEpoch.guard1",
        "a leader epoch begins with a record, and the partition epoch grows with each: equal partition epochs are of one "
        "leader epoch",
    ),
    (
        "Controller.AlterPartition.guard2",
        "a proposal of the present leader epoch is its leader's, for a leader epoch has one leader",
    ),
    ("Controller.AlterPartition.reset1", JUDGES),
    (
        "Controller.ElectLeader.guard1",
        "a leader may be elected again, in a leader epoch more: so it is where a replica is removed",
    ),
    (
        "Controller.CallOffReassignment.guard1",
        "where nothing is being reassigned, what is decided is the record as it is: the ration of the fault is spent",
    ),
    (
        "Controller.ChangeMinIsr.alternative2",
        "nothing of the record but min.insync.replicas changes; the last known leader, which Kafka forgets, is not in it",
    ),
    # Replica
    ("Replica.Learnt.guard1", SWITCHED),
    ("Replica.Replay.reset2", KEPT),
    ("Replica.BecomeLeader.reset3", NOT_TRUNCATING),
    (
        "Replica.BecomeFollower.guard3",
        "by a record that names it the broker does what BecomeLeader does: it leads if the record names it",
    ),
    (
        "Replica.BecomeFollower.guard4",
        "a replica has records of its own leader epoch to replay only while it leads (Replayable), and those name it",
    ),
    ("Replica.BecomeFollower.reset3", NOT_TRUNCATING),
    ("Replica.BecomeFollower.reset4", SWITCHED),
    (
        "Replica.BecomeFollower.comparison1",
        "a replica has records of its own leader epoch to replay only while it leads (Replayable), and those name it",
    ),
    (
        "Replica.CommitIsr.guard2",
        "a replica has records of its own leader epoch to replay only while it leads (Replayable)",
    ),
    ("Replica.LearnMinIsr.guard1", "a follower may know min.insync.replicas as well: only leaders act by it"),
    ("Replica.LearnMinIsr.guard3", UNCHANGED),
    ("Replica.LearnMinIsr.reset2", KEPT),
    ("Replica.GiveUpReplica.reset5", NOT_TRUNCATING),
    ("Replica.LogsPart.comparison1", SWITCHED),
    ("Replica.MayFetch.guard1", GONE),
    (
        "Replica.MayFetch.guard2",
        "what a leader would learn of itself is not read: EndOf and Propose take its own log and registration",
    ),
    ("Replica.MayFetch.guard3", "in one leader epoch all replicas follow the same leader"),
    (
        "Replica.MayFetch.guard4",
        "a broker that is named as the leader, and acts in the same leader epoch, has replayed that it leads",
    ),
    (
        "Replica.MayFetch.guard5",
        "a new replica may fetch before the leader has replayed that it is one: it gets the leader's records, and AnswerFetch "
        "does not count it",
    ),
    ("Replica.FetchesOf.alternative2", NOT_TRUNCATING),
    (
        "Replica.AnswerFetch.guard1",
        "in the atomic grain MayFetch asks for it; of messages TakeFetch does, which refines this step",
    ),
    (
        "Replica.AnswerFetch.guard2",
        "in the atomic grain MayFetch asks for it; of messages TakeFetch does, which refines this step",
    ),
    ("Replica.AnswerFetch.guard3", CHOSEN),
    (
        "Replica.AnswerFetch.guard4",
        "in the atomic grain each fetch is of the present incarnation; of messages TakeFetch asks, which refines this step",
    ),
    ("Replica.AnswerFetch.guard6", UNCHANGED),
    ("Replica.IsInLine.guard2", NOT_TRUNCATING),
    ("Replica.AppendFetched.comparison1", "the log is in line with the leader's: up to its own end it is the same"),
    ("Replica.AppendFetched.count1", SWITCHED),
    ("Replica.AppendFetched.bound1", "a fetch may bring any number of the next records"),
    ("Replica.AdoptHighWatermark.guard2", CHOSEN),
    ("Replica.AdoptHighWatermark.guard3", UNCHANGED),
    ("Replica.Truncate.alternative1", NOT_TRUNCATING),
    ("Replica.Truncate.guard3", NOT_TRUNCATING),
    ("Replica.Truncate.alternative3", NOT_TRUNCATING),
    ("Replica.Truncate.guard5", NOT_TRUNCATING),
    ("Replica.Truncate.reset3", NOT_TRUNCATING),
    ("Replica.AdvanceHighWatermark.comparison2", UNCHANGED),
    (
        "Replica.ExpandIsr.guard1",
        "only leaders know of progress (MemoryFitsRole), and a follower of unknown progress cannot join",
    ),
    (
        "Replica.ExpandIsr.guard5",
        "no fault of the rule: MCExpansion, dearer than the models met so far, breaks by it (the switch ExpandBelowEpochStart)",
    ),
    ("Replica.ShrinkIsr.guard4", "no promise rests on why a member leaves; how long it has lagged is a matter of time"),
    (
        "Replica.ShrinkIsr.comparison1",
        "no promise rests on why a member leaves; how long it has lagged is a matter of time",
    ),
    (
        "Replica.WasRefused.guard2",
        "in the atomic grain the controller reads a proposal where it lies: what is withdrawn is not judged later. Of messages "
        "LateWasRefused takes its place",
    ),
    (
        "Replica.RollBackIsr.guard1",
        "what a broker that does not lead has pending is the last request of a process that is gone; it need not arrive",
    ),
    ("Replica.Halt.reset4", NOT_TRUNCATING),
    ("Replica.Halt.reset5", KEPT),
    ("Replica.Crash.guard1", ENVIRONMENT),
    ("Replica.Crash.guard2", ENVIRONMENT),
    ("Replica.Restart.reset2", ENVIRONMENT),
    ("Replica.Restart.bound1", ENVIRONMENT),
    # Client
    ("Client.Produce.guard4", SWITCHED),
    ("Client.Produce.reset2", SWITCHED),
    ("Client.Produce.comparison1", RATION),
    ("Client.Produce.count2", NAMED),
    (
        "Client.Retry.guard1",
        "a producer that is not idempotent may retry as well: NoDuplicateOrGap does not speak of it",
    ),
    (
        "Client.Retry.guard2",
        "the leader has what is acknowledged (NoAcknowledgedRecordLost): its number is not the next one",
    ),
    (
        "Client.Acknowledge.guard1",
        "what is below the high watermark of any broker is committed, whether it leads or not",
    ),
    ("Client.Acknowledge.guard2", "what is below the high watermark is committed, however small the ISR has become"),
    ("Client.Acknowledge.guard3", "what is acknowledged again stays acknowledged"),
    ("Client.Acknowledge.guard4", "a record of acks=1 may be acknowledged when it is committed, too"),
    ("Client.Consume.guard1", GONE),
    (
        "Client.Consume.guard2",
        "a checkpoint's high watermark is of committed records, also before metadata is replayed",
    ),
    (
        "Client.Consume.comparison1",
        "a checkpoint's high watermark is of committed records, also before metadata is replayed",
    ),
    # Messages
    ("Messages.SendFetch.guard1", GONE),
    ("Messages.SendFetch.guard3", UNCHANGED),
    (
        "Messages.TakeFetch.guard1",
        "a fetch is sent to the leader of its leader epoch: a broker that acts in that epoch leads it",
    ),
    ("Messages.TakeFetch.guard2", CHOSEN),
    ("Messages.TakeFetch.alternative2", UNCHANGED),
    ("Messages.TakeFetch.guard6", UNCHANGED),
    ("Messages.Fits.guard1", GONE),
    ("Messages.Fits.guard2", CHOSEN),
    (
        "Messages.TakeDivergence.reset1",
        "the message grain promises what it refines, not what must happen: that a follower gets in line is MCLiveness's",
    ),
    (
        "Messages.TakeDivergence.reset2",
        "where no unclean leader is elected nothing committed is cut: the high watermark is not above the point",
    ),
    ("Messages.TakeDivergence.guard2", "where the logs do not part, the point is the log's own end: nothing is cut"),
    ("Messages.TakeRecords.bound1", "a fetch may bring any number of the next records"),
    ("Messages.TakeHighWatermark.guard3", UNCHANGED),
    (
        "Messages.TakeHighWatermark.reset1",
        "the message grain promises what it refines, not what must happen: that high watermarks catch up is MCLiveness's",
    ),
    (
        "Messages.TakeProposal.guard1",
        "a proposal of the present leader epoch is its leader's, for a leader epoch has one leader",
    ),
    ("Messages.TakeProposal.reset1", JUDGES),
    (
        "Messages.RefuseProposal.guard1",
        "a proposal of the present leader epoch is its leader's, for a leader epoch has one leader",
    ),
    (
        "Messages.RefuseProposal.guard",
        "a refusal may have any cause: what is refused is not judged later, and its leader takes it back",
    ),
    # Transactions
    (
        "Transactions.Admits.guard2",
        "while a decision is being marked no write has the coordinator's epoch: it was raised with the decision",
    ),
    ("Transactions.Complete.reset3", "read only while a transaction is prepared, and Prepare sets it"),
    ("Transactions.Complete.reset4", "read only while a transaction is prepared, and Prepare sets it"),
    (
        "Transactions.Reload.reset",
        "the coordinator may as well be replaced before it has learned of a marker: the states are the same",
    ),
    ("Transactions.SendWrite.guard3", UNCHANGED),
    ("Transactions.SendWrite.comparison1", RATION),
    ("Transactions.AddPartitions.guard1", CHOSEN),
    ("Transactions.AddPartitions.guard2", UNCHANGED),
    ("Transactions.AppendWrite.guard1", CHOSEN),
    (
        "Transactions.AppendWrite.reset2",
        "the step does what DropWrite does; that promises are asked of records at all is another check (promises.py)",
    ),
    ("Transactions.DropWrite.guard1", CHOSEN),
    ("Transactions.DropWrite.reset1", ENVIRONMENT),
    ("Transactions.EndTransaction.guard1", EMPTY),
    (
        "Transactions.EndTransaction.guard2",
        "the one live producer has the coordinator's epoch, unless it has asked or was aborted",
    ),
    ("Transactions.EndTransaction.guard3", ASKED),
    (
        "Transactions.EndTransaction.guard4",
        "a write that is not appended by then is refused by its epoch: none of it is ever visible, only its producer misses it",
    ),
    ("Transactions.EndTransaction.reset1", EARLIER),
    ("Transactions.TimeOut.guard1", EMPTY),
    ("Transactions.TimeOut.guard2", ASKED),
    ("Transactions.TimeOut.guard3", RATION),
    ("Transactions.TimeOut.reset1", RATION),
    ("Transactions.TimeOut.reset2", EARLIER),
    ("Transactions.TimeOut.comparison1", RATION),
    ("Transactions.TimeOut.count1", RATION),
    ("Transactions.NewSession.guard2", RATION),
    ("Transactions.NewSession.guard3", RATION),
    ("Transactions.NewSession.reset1", RATION),
    ("Transactions.NewSession.reset2", EARLIER),
    ("Transactions.NewSession.reset4", "no partition has joined, so no record speaks of the transaction's outcome"),
    ("Transactions.NewSession.reset5", "the new session does nothing, as if its process had ended at once"),
    ("Transactions.NewSession.comparison", RATION),
    ("Transactions.NewSession.count1", RATION),
    ("Transactions.AppendMarker.guard1", "where nothing is open a marker ends nothing"),
    ("Transactions.AppendMarker.guard2", "a marker may be written any number of times: the first of them decides"),
    ("Transactions.WriteMarker.guard1", UNCHANGED),
    (
        "Transactions.WriteMarker.guard2",
        "only while it is prepared has the coordinator a marker that a log could end with",
    ),
    ("Transactions.TakeOver.guard1", RATION),
    ("Transactions.TakeOver.reset1", RATION),
    ("Transactions.TakeOver.comparison1", RATION),
    ("Transactions.TakeOver.count1", RATION),
    # Quorum
    ("Quorum.Lesser.comparison1", EQUAL),
    ("Quorum.UpToDate.alternative1", "fewer votes are given: no promise speaks of an election that must succeed"),
    ("Quorum.JoinEpoch.comparison1", "a voter joins only newer epochs (LearnEpoch)"),
    ("Quorum.BecomeProspective.guard1", STANDING),
    ("Quorum.BecomeProspective.guard2", RATION),
    ("Quorum.BecomeProspective.comparison1", RATION),
    ("Quorum.GrantPreVote.guard2", UNCHANGED),
    (
        "Quorum.GrantPreVote.",
        "a pre-vote is no vote: granted too often it disturbs the quorum, and LateQuorum grants any",
    ),
    (
        "Quorum.BecomeCandidate.guard1",
        "a voter that has a majority may go on to the next epoch, in which it has not voted",
    ),
    ("Quorum.BecomeCandidate.guard2", "the pre-vote spares epochs; votes alone decide"),
    ("Quorum.BecomeCandidate.count3", NAMED),
    ("Quorum.GrantVote.alternative1", LEARNED),
    ("Quorum.GrantVote.guard1", CHOSEN),
    ("Quorum.GrantVote.alternative4", LEARNED),
    ("Quorum.GrantVote.comparison3", "a leader has voted for itself (RolesFitVotes): in its own epoch it is not free"),
    ("Quorum.BecomeLeader.reset2", RARE),
    ("Quorum.LearnEpoch.comparison1", REJOINED),
    ("Quorum.AppendRecord.guard2", RATION),
    ("Quorum.AppendRecord.comparison1", RATION),
    ("Quorum.MayFetch.guard1", "a voter is not leader and follower at once"),
    (
        "Quorum.MayFetch.guard3",
        "the epoch has its leader, so a candidate or prospective voter may follow as well: LateQuorum allows it (TakeAnswer)",
    ),
    ("Quorum.AnswerFetch.guard3", UNCHANGED),
    (
        "Quorum.ApplyFetch.guard2",
        "CHOOSE tries 0, 1, … in order, and comes to `common` before it is past the leader's log",
    ),
    (
        "Quorum.ApplyFetch.guard3",
        "the condition below refuses what is less than `common`, and CHOOSE takes the least that is left",
    ),
    ("Quorum.ApplyFetch.bound9", "a fetch may bring any number of the next records"),
    ("Quorum.AdvanceHighWatermark.guard1", RARE),
    ("Quorum.AdvanceHighWatermark.count1", UNCHANGED),
    ("Quorum.Restart.guard1", RATION),
    ("Quorum.Restart.comparison1", RATION),
    ("Quorum.Restart.reset4", "what others have reached is looked at in a leader, and BecomeLeader begins it again"),
    ("Quorum.Restart.reset5", "what was committed before the restart still is"),
    ("Quorum.Restart.reset6", SWITCHED),
    ("Quorum.Take.comparison1", EQUAL),
    # LateQuorum, which allows more than Quorum does, for traces
    ("LateQuorum.Stand.", STANDING),
    ("LateQuorum.ReceivePreVote.", STANDING),
    ("LateQuorum.LearnNewerEpoch.count1", REJOINED),
    ("LateQuorum.Leave.count1", REJOINED),
    ("LateQuorum.Leave.guard1", "any voter may come to a newer epoch, in which it has not voted"),
    ("LateQuorum.Led.guard2", "asked in Leave, which any voter may do, and by promises, which get weaker"),
    ("LateQuorum.AppendUpTo.guard2", UNCHANGED),
    ("LateQuorum.AppendUpTo.comparison1", UNCHANGED),
    (
        "LateQuorum.TakeFetch.guard1",
        "what others have reached is looked at in a leader, and BecomeLeader begins it again",
    ),
    ("LateQuorum.TakeFetch.bound1", LESS),
    ("LateQuorum.Shares.guard2", LESS),
    (
        "LateQuorum.Brings.guard1",
        "all of the voter's log is in the leader's then, and TakeAnswer's last condition keeps what both have",
    ),
    (
        "LateQuorum.Brings.guard2",
        "the records begin the leader's log, or the voter's own, which begins the leader's in this branch",
    ),
    ("LateQuorum.Brings.bound1", TAKEN),
    ("LateQuorum.Brings.bound2", LESS),
    ("LateQuorum.TakeAnswer.guard1", "the leader of the voter's epoch is another one (guard3)"),
    (
        "LateQuorum.TakeAnswer.guard3",
        "else l is only named; and a voter that led the epoch, and restarted, has the records of its leadership",
    ),
    ("LateQuorum.TakeAnswer.guard5", TAKEN),
    ("LateQuorum.TakeAnswer.bound1", TAKEN),
    ("LateQuorum.TakeAnswer.bound2", TAKEN),
    ("LateQuorum.TakeAnswer.bound3", LESS),
    ("LateQuorum.TakeAnswer.alternative1", LESS),
    (
        "LateQuorum.TakeAnswer.reset1",
        "a candidate cannot win an epoch that has its leader, and any other voter may stand again at any time (Stand)",
    ),
    (
        "LateQuorum.TakeAnswer.reset2",
        "a follower's votes become pre-votes at most (ReceivePreVote), and BecomeCandidate begins them again (VotesWereGiven)",
    ),
    ("LateQuorum.TakeAnswer.comparison2", LESS),
    ("LateQuorum.TakeAnswer.comparison3", LESS),
    ("LateQuorum.StandsAgain.guard1", "a candidate that comes back counts only votes that were given (VotesFor)"),
    (
        "LateQuorum.StandsAgain.guard2",
        "a candidate that comes back counts only votes that were given (VotesFor): it wins no epoch but the one that it led",
    ),
    ("LateQuorum.ComeBack.reset1", "epoch, vote and log survive: a leader that restarts may as well lead on"),
    (
        "LateQuorum.ComeBack.reset3",
        "what others have reached is looked at in a leader, and BecomeLeader begins it again",
    ),
    ("LateQuorum.ComeBack.reset4", "what was committed before the restart still is"),
    ("LateQuorum.ComeBack.comparison1", LESS),
    # Groups
    ("Groups.Balanced.comparison1", EVEN),
    ("Groups.Balanced.count1", EVEN),
    ("Groups.RaiseGroupEpoch.guard1", "a group without members has nothing to assign, in whatever epoch"),
    ("Groups.RaiseGroupEpoch.reset1", ENVIRONMENT),
    ("Groups.RaiseGroupEpoch.count1", ENVIRONMENT),
    ("Groups.LoseAnswer.guard1", ENVIRONMENT),
    ("Groups.LoseAnswer.reset1", ENVIRONMENT),
    ("Groups.Remove.guard1", "who is no member has nothing (OnlyMembersHave): the group epoch alone is raised"),
    (
        "Groups.Admits.guard1",
        "a member that owns no more than it was given may say any epoch: by what it owns it is reconciled",
    ),
    (
        "Groups.Admits.guard2",
        "where the two epochs differ the member has nothing to give back (Reconcile): what it owns it was given (OwnedIsGiven)",
    ),
    ("Groups.Admits.guard3", "a member that owns nothing may begin again, whatever epoch it says"),
    ("Groups.Admits.guard4", "who says 0 has no epoch, and so owns nothing (MemoryFitsMembership)"),
    (
        "Groups.Reconcile.guard2",
        "a member that is to give something back is behind the target (MemoryFitsMembership), so the first condition is false",
    ),
    (
        "Groups.Reconcile.alternative2",
        "the epoch before is forgotten one heartbeat earlier: a member that then loses an answer begins again (LetGo)",
    ),
    (
        "Groups.ReceiveHeartbeat.guard2",
        "what a member owns is known to the coordinator (OwnedIsGiven), and reconciled whatever epoch it says",
    ),
    ("Groups.JoinGroup.guard2", "who is no member has no answer on its way (MemoryFitsMembership)"),
    ("Groups.LeaveGroup.guard1", "a member may leave before it has learned its epoch"),
    ("Groups.LeaveGroup.reset2", "the member lets go of its epoch later, as one that was lost does (LetGo)"),
    ("Groups.Heartbeat.guard1", "an answer that the next one replaces is lost, as by LoseAnswer"),
    ("Groups.LetGo.guard1", UNCHANGED),
    (
        "Groups.LetGo.alternative1",
        "who is no member has epoch 0 (OnlyMembersHave), and is not admitted with another one",
    ),
    ("Groups.LetGo.guard2", "the member takes the answer after it: it is then what the coordinator takes it for"),
    ("Groups.Enter.reset3", "Remove has set it to 0 (OnlyMembersHave)"),
    ("Groups.Enter.reset4", "Remove has set it to 0 (OnlyMembersHave)"),
    ("Groups.Assign.guard1", "without members there is no assignment to choose (UpdateTarget)"),
    *zookeeper_survivors.REASONS,
)
"""How the mutants' names begin, and the reason."""


def reason_of(mutant: str) -> str:
    """The reason of the longest row that fits; empty where there is none."""
    found = [(len(begins), reason) for begins, reason in REASONS if mutant.startswith(begins)]
    return max(found)[1] if found else ""
