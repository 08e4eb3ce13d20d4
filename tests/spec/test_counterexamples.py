"""The recorded counterexamples are those of today's specification."""

import pytest

from tests.spec.counterexamples import NAMES, digest_of, found_by_tlc, records


def test_every_record_is_of_todays_text() -> None:
    """If this fails: `python -m tests.spec.counterexamples`."""
    assert {name: row["digest"] for name, row in records().items()} == {name: digest_of(name) for name in NAMES}


@pytest.mark.java
@pytest.mark.sampled(days=7)
@pytest.mark.parametrize("name", NAMES)
def test_tlc_finds_what_is_recorded(name: str) -> None:
    assert found_by_tlc(name) == records()[name]["schedule"]
