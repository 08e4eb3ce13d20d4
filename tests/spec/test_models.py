"""Small models are checked anew in every run of the tests; and what checks them can fail."""

import re
from dataclasses import replace

import pytest

from spec.catalogue import all_cases
from spec.checker import SHORT_RUN, Verdict, check
from spec.models import only_property

pytestmark = pytest.mark.java

SAMPLE = (
    "MCFailover",
    "TruncateToHighWatermark",
    "AdmitFencedBroker",
    "IgnoreProposedIsr",
    "IgnoreMinIsr",
    "MCMessages",
    "ForgetVote",
    "MCTransactionsLiveness",
    "BeforeKip890",
    "MCGroupsLiveness",
    "AssignBeforeRevocation",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_model_comes_out_as_expected(name: str) -> None:
    case = all_cases()[name]
    outcome = check(replace(case.job(memory_mb=1500), jvm=SHORT_RUN))
    assert (outcome.verdict, outcome.violated or case.expected_property) == (case.expected, case.expected_property), (
        outcome.reason
    )
    assert outcome.distinct > 10


@pytest.mark.parametrize("name", ["MCTransactionsLiveness", "MCGroupsLiveness", "MCLiveness"])
def test_without_fairness_nothing_has_to_happen(name: str) -> None:
    """Were liveness to hold here too, it would hold for no reason."""
    job = all_cases()[name].job(memory_mb=1500)
    unfair = re.sub(r"^SPECIFICATION FairSpec$", "SPECIFICATION Spec", job.configuration, flags=re.M)
    outcome = check(replace(job, configuration=unfair, jvm=SHORT_RUN))
    assert outcome.verdict == Verdict.VIOLATED
    assert outcome.loop_to > 0


def test_the_refinement_needs_the_messages_to_be_late() -> None:
    """Against the atomic grain without lateness the same refinement is refuted: the check looks at something."""
    job = all_cases()["MCMessages"].job(memory_mb=1500)
    instant = re.sub(
        r"^  (Hears|HeardLog|HeardHighWatermarks|ToldBy|WasRefused) <- .*\n", "", job.configuration, flags=re.M
    )
    outcome = check(replace(job, configuration=only_property(instant, "LateSpec"), jvm=SHORT_RUN))
    assert outcome.verdict == Verdict.VIOLATED
