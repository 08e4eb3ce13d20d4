"""Bugs that no simulated client can show are found by the state machine that they name."""

import importlib

import pytest

from linearizability.mutants.registry import MUTANTS
from tests.mutants.machines import look_for

WITH_MACHINE = [name for name, mutant in MUTANTS.items() if mutant.machine]
SAMPLE = {"held-partitions-called-free": 100, "revoked-partitions-given-at-once": 500}
"""Mutant -> the runs within which CI must find it."""


@pytest.mark.parametrize("name", SAMPLE)
def test_the_machine_finds(name: str):
    assert look_for(name, SAMPLE[name]).what


@pytest.mark.parametrize("name", WITH_MACHINE)
def test_the_machine_is_there(name: str):
    module, _, machine = MUTANTS[name].machine.partition(":")
    assert hasattr(importlib.import_module(module), machine)
