"""Brokers for the tests of client code, by the name of the distribution: see `linearizability.testing`."""

from linearizability.testing import History, reference_broker

__all__ = ["History", "reference_broker"]
