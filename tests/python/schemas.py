"""The JSON Schemas of docs/, for documents that must be valid."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs

DOCS = Path(__file__).parents[2] / "docs"


def schema_of(kind: str) -> dict[str, Any]:
    """The schema of the documents of a command."""
    schema: dict[str, Any] = json.loads((DOCS / f"{kind}.schema.json").read_text())
    return schema


def validator_of(kind: str) -> jsonschema_rs.Validator:
    """A validator of the documents of a command; checks the schema itself, too."""
    schema, run = schema_of(kind), schema_of("run")
    jsonschema_rs.meta.validate(schema)
    known = jsonschema_rs.Registry([(run["$id"], run)])
    return jsonschema_rs.validator_for(schema, registry=known, base_uri="json-schema:///")


def first_error(validator: jsonschema_rs.Validator, document: Any) -> str | None:
    """The faults of a document against its schema, with their places; none in a valid one."""
    for error in validator.iter_errors(document):
        return f"{error.instance_path}: {error.message[:300]}"
    return None
