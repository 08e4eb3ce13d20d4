"""Reasons that mutants of several books have survived for (`survivors.py`)."""

from __future__ import annotations

UNCHANGED = "the step then changes nothing, which is no behaviour"
SWITCHED = "looked at only with a switch on"
NAMED = "an argument of the step's name, for the reader"
CHOSEN = "the next-state relation takes the step for no other"
RATION = "the ration of a fault, or the model's bound: no rule"
ENVIRONMENT = "the environment's: it loses less, or spends a fault without effect"
