"""Checks JSON documents against a schema and reports a mistake in one line."""

from __future__ import annotations

import json

import jsonschema

from kvreplay.errors import UserError, nearest_first

TYPES = {"object": "an object", "array": "a list", "string": "a text", "number": "a number",
         "integer": "a whole number", "boolean": "true or false", "null": "null"}


def check(document: object, schema: dict, file: object) -> None:
    """Raises UserError for the mistake nearest to the root: the file, the JSON path, what was found
    and what is allowed, which is the schema's `description` where it has one."""
    errors = list(jsonschema.Draft202012Validator(schema).iter_errors(document))
    if errors:
        error = max(errors, key=jsonschema.exceptions.relevance)
        path = "".join(f"/{step}" for step in error.absolute_path)
        raise UserError(": ".join(filter(None, (str(file), path, _text(error)))))


def _text(error: jsonschema.ValidationError) -> str:
    found, rule = error.instance, error.validator_value
    if error.validator == "additionalProperties":
        names = error.schema["properties"]
        key = next(key for key in found if key not in names)
        return f"unknown key '{key}'; allowed: {nearest_first(key, names)}"
    if error.validator in ("required", "dependentRequired"):
        needed = rule if error.validator == "required" else [
            name for key, names in rule.items() if key in found for name in names]
        missing = next(name for name in needed if name not in found)
        return f"no '{missing}'; allowed: an object that has it"
    allowed = error.schema.get("description")
    if not allowed and error.validator == "enum":
        allowed = nearest_first(found, rule)
    elif not allowed:
        allowed = TYPES.get(rule, error.message) if error.validator == "type" else error.message
    return f"found {_short(found)}; allowed: {allowed}"


def _short(value: object) -> str:
    if isinstance(value, dict):
        return f"an object with {', '.join(value)}" if value else "an empty object"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
