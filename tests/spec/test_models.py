"""Small models are checked in each run of the tests, and their checks can fail."""

import re
from dataclasses import replace

import pytest

from spec.catalogue import MODELS, all_cases
from spec.checker import SHORT_RUN, Verdict
from spec.models import checked, only_property
from tests.kept import check

pytestmark = pytest.mark.java

SAMPLE = (
    "MCFailover",
    "TruncateToHighWatermark",
    "AdmitFencedBroker",
    "IgnoreProposedIsr",
    "IgnoreMinIsr",
    "EndReassignmentEarly",
    "UnfenceBeforeReplay",
    "MCMessages",
    "MCMessagesMinIsr",
    "FetchOfFormerIncarnation",
    "ForgetVote",
    "MCTransactionsLiveness",
    "BeforeKip890",
    "MCGroupsLiveness",
    "AssignBeforeRevocation",
    "MCZooKeeperReassignment",
    "WriteWithoutControllerEpoch",
    "TakeFromDeposedController",
    "StopReplicaWithoutLeaderEpoch",
    "IgnoreBrokerEpoch",
    "ExpiredSessionWrites",
)


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize("name", SAMPLE)
def test_a_model_comes_out_as_expected(name: str) -> None:
    case = all_cases()[name]
    outcome = check(replace(case.job(memory_mb=1500), jvm=SHORT_RUN))
    assert (outcome.verdict, outcome.violated or case.expected_property) == (case.expected, case.expected_property), (
        outcome.reason
    )
    assert outcome.distinct > 10


def test_the_state_in_which_logs_part_is_one_that_voters_come_to() -> None:
    """MCQuorumParted starts in a later state: the claim that the specification never reaches it is refuted."""
    job = all_cases()["MCQuorumParted"].job(memory_mb=1500)
    head = job.configuration.partition("INVARIANTS")[0].replace("SPECIFICATION SpecParted", "SPECIFICATION Spec")
    module = "---- MODULE Refuted ----\nEXTENDS MCQuorumParted\nNeverParted == ~Parted\n====\n"
    job = replace(job, module="Refuted", modules={"Refuted": module}, configuration=f"{head}INVARIANT NeverParted\n")
    outcome = check(replace(job, jvm=SHORT_RUN, coverage=False))
    assert (outcome.verdict, outcome.violated) == (Verdict.VIOLATED, "NeverParted"), outcome.reason


LIVENESS = ("MCLiveness", "MCTransactionsLiveness", "MCGroupsLiveness", "MCZooKeeperLiveness")


def live_properties() -> list[tuple[str, str]]:
    """Each property of each model that is fair."""
    reported = [(name, checked(all_cases()[name].configuration())) for name in LIVENESS]
    return [(name, promise) for name, promises in reported for promise, kind in promises.items() if kind == "PROPERTY"]


def test_the_models_with_fairness_are_those() -> None:
    fair = [model.name for model in MODELS if re.search(r"^SPECIFICATION FairSpec$", model.text, re.M)]
    assert sorted(fair) == sorted(LIVENESS)


@pytest.mark.sampled(days=6)
@pytest.mark.parametrize(("name", "promise"), live_properties())
def test_without_fairness_nothing_has_to_happen(name: str, promise: str) -> None:
    """A property that held here too would not depend on fairness."""
    job = all_cases()[name].job(memory_mb=1500)
    unfair = re.sub(r"^SPECIFICATION FairSpec$", "SPECIFICATION Spec", job.configuration, flags=re.M)
    outcome = check(replace(job, configuration=only_property(unfair, promise), jvm=SHORT_RUN, coverage=False))
    assert outcome.verdict == Verdict.VIOLATED
    assert outcome.loop_to > 0


def test_the_refinement_needs_the_messages_to_be_late() -> None:
    """Against the atomic grain without late messages the same refinement is refuted, so the check is not vacuous."""
    job = all_cases()["MCMessages"].job(memory_mb=1500)
    instant = re.sub(
        r"^  (MayFetch|FetchedLog|FetchedHighWatermarks|FetchesOf|WasRefused) <- .*\n",
        "",
        job.configuration,
        flags=re.M,
    )
    outcome = check(replace(job, configuration=only_property(instant, "LateSpec"), jvm=SHORT_RUN))
    assert outcome.verdict == Verdict.VIOLATED
