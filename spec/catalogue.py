"""All models and all switches: replication's, then those of the shorter books."""

from __future__ import annotations

from dataclasses import replace

from spec import other_catalogue, replication_catalogue
from spec.edited_switches import edited_switches
from spec.models import Case, Model, cases

MODELS: tuple[Model, ...] = tuple(
    replace(model, switches=model.switches + edited_switches(model.folder, model.name))
    for model in (*replication_catalogue.MODELS, *other_catalogue.MODELS)
)


def all_cases() -> dict[str, Case]:
    """Every case by its name; names are unique."""
    found = {case.name: case for case in cases(MODELS)}
    if len(found) != sum(1 for _ in cases(MODELS)):
        raise ValueError("two cases have one name")
    return found
