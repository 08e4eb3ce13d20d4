"""All models and all switches: replication's, then those of the shorter books."""

from __future__ import annotations

from spec import other_catalogue, replication_catalogue
from spec.models import Case, Model, cases

MODELS: tuple[Model, ...] = (*replication_catalogue.MODELS, *other_catalogue.MODELS)


def all_cases() -> dict[str, Case]:
    """Every case by its name; names are unique."""
    found = {case.name: case for case in cases(MODELS)}
    if len(found) != sum(1 for _ in cases(MODELS)):
        raise ValueError("two cases have one name")
    return found
