"""A consumer that polls several times within a transaction reads on from poll to poll, also where the transaction is aborted."""

from __future__ import annotations

import pytest

from linearizability.history.notation import history
from linearizability.pipeline.engine import judge_history

SENT = "\n".join(f"0 send t-0:{value}@{value}" for value in range(6))
READ = "3 [300 310] poll t-0:0@0 t-0:1@1 t-0:2@2 t-0:3@3 t-0:4@4 t-0:5@5"
TWO_POLLS = """
    1 assign t-0
    1 poll t-0:0@0
    1 begin txn=a
    1 poll t-0:1@1 t-0:2@2 txn=a
    1 poll t-0:{second}@{second} txn=a
    1 end txn=a commit=false
    {between}
    1 begin txn=b
    1 poll t-0:{third}@{third} txn=b
    1 end txn=b commit=false
"""
BACK = "1 seek t-0 to=committed"


@pytest.mark.parametrize(
    ("second", "between", "third", "skipped"),
    [
        (3, BACK, 1, 0),
        (3, "", 1, 0),  # given back without a word
        (4, BACK, 1, 1),
        (3, "", 4, 1),  # and not behind the records that were given back
    ],
)
def test_the_next_poll_starts_behind_the_one_before(second: int, between: str, third: int, skipped: int) -> None:
    lines = TWO_POLLS.format(second=second, between=between, third=third)
    judgement = judge_history(history(f"{SENT}\n{lines}\n{READ}"))
    assert judgement.anomalies == ({"poll-skip": skipped} if skipped else {})
