"""Histories of any size; `facts`, `check` and `anomalies` are the interface by Spark's DataFrames (see `frames`)."""

from typing import Any

WHERE = {"facts": "frames", "check": "frames_check", "anomalies": "frames_check"}


def __getattr__(name: str) -> Any:  # so that a module of this package does not bring in all others
    from importlib import import_module

    if name not in WHERE:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{WHERE[name]}"), name)
