"""The JSON Schemas of docs/, for documents that must be valid."""

import json
from pathlib import Path
from typing import Any

import jsonschema_rs

DOCS = Path(__file__).parents[2] / "docs"


def schema_of(kind: str) -> dict[str, Any]:
    """The schema of a command's documents."""
    schema: dict[str, Any] = json.loads((DOCS / f"{kind}.schema.json").read_text())
    return schema


def validator_of(kind: str) -> jsonschema_rs.Validator:
    """A validator of a command's documents. The schema itself is checked as well."""
    schema, run = schema_of(kind), schema_of("run")
    jsonschema_rs.meta.validate(schema)
    known = jsonschema_rs.Registry([(run["$id"], run)])
    return jsonschema_rs.validator_for(schema, registry=known, base_uri="json-schema:///")


def first_error(validator: jsonschema_rs.Validator, document: Any) -> str | None:
    """The first error of a document against its schema, with its place; None if it is valid."""
    for error in validator.iter_errors(document):
        return f"{error.instance_path}: {error.message[:300]}"
    return None
