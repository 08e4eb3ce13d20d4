"""`--rewrite` writes the stories anew as they happen now; the diff is what is to be reviewed."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write tests/scenarios and SCENARIOS.md anew")
