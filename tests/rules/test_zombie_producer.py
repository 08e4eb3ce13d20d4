"""A producer's epochs begin again with a new producer id."""

from __future__ import annotations

import pytest

from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history

READ = "2 poll t-0:1@0 t-0:2@1"


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ("epoch=7", "epoch=6", "invalid"),
        ("epoch=32765", "epoch=0", "invalid"),
        ("epoch=32766", "epoch=0", "unknown"),
        ("epoch=7 producer_id=1", "epoch=6 producer_id=1", "invalid"),
        ("epoch=32766 producer_id=1", "epoch=0 producer_id=2", "valid"),
    ],
)
def test_an_epoch_that_begins_again_is_no_zombie(first: str, second: str, verdict: str) -> None:
    plain = f"0 send t-0:1@0 producer=p {first}\n1 send t-0:2@1 producer=p {second}\n{READ}"
    stepwise = f"""
        0 begin txn=a producer=p {first}
        0 send t-0:1@0 txn=a
        0 end txn=a commit=true
        1 begin txn=b producer=p {second}
        1 send t-0:2@1 txn=b
        1 end txn=b commit=true
        {READ}
    """
    for events in (plain, stepwise):
        judgement = judge_history(history(events))
        assert judgement.verdict == verdict, judgement.to_json()
