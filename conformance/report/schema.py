"""The published JSON schema of `report.json`, made from the models: `python -m conformance.report.schema` writes it."""

import json
from pathlib import Path

from conformance.results import Run

SCHEMA = Path(__file__).parent / "schema.json"


def schema_text() -> str:
    """The text that `schema.json` must have."""
    schema = Run.model_json_schema(mode="serialization", by_alias=True)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "A run of the tidegauge conformance suite"
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(schema_text())
