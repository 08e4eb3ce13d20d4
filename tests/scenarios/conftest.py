"""Adds `--rewrite`, which stores the events of this run in the scenarios; review the diff."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write tests/scenarios and SCENARIOS.md again")
