"""Examples of answers, composed from their schemas, so that they follow every change of a model.
Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Values by the name of a field, for fields whose type alone says little.
_VALUES: Mapping[str, Any] = {
    "id": "01JD4W8Z7H3K5M9QX2R6T0V1BC",
    "session_id": "01JD4W8Z7H3K5M9QX2R6T0V1BC",
    "kernel_id": "01JD4W8Z8A1N4P7SW3Y5Z9C2DE",
    "endpoint_id": "01JD4W8Z9C6F2G8HJ4K7M1N3PQ",
    "run_id": "01JD4W90AB3C5D7E9F1G2H4J6K",
    "agent": "gpu-01",
    "agent_id": "gpu-01",
    "agents": ["gpu-01"],
    "address": "192.0.2.11:31001",
    "app": "jupyter",
    "certificate": "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n",
    "authority": "-----BEGIN CERTIFICATE-----\n…\n-----END CERTIFICATE-----\n",
    "challenge": "moorage-ssh-key-challenge-5f0c",
    "count": 1,
    "created_by": "key:admin",
    "cursor": "eyJhZnRlciI6NDJ9",
    "device": "NVIDIA H100 80GB HBM3",
    "device_id": "GPU-5c8f0a1e",
    "endpoint": "assistant",
    "email": "ann@example.org",
    "engine": "vllm",
    "family": "cuda",
    "fingerprint": "SHA256:uNiVztksCsDhcc0u9e8BrqXVUDPBZ3Qnb1JQh0Q4xUo",
    "from_address": "192.0.2.5",
    "host": "manager-1",
    "hostname": "gpu-01",
    "image": "docker.io/library/python:3.13-slim",
    "key": "ann-laptop",
    "model": "Qwen/Qwen3-0.6B",
    "manager": "manager-1",
    "name": "train",
    "next_step": "wait, or ask for fewer resources",
    "owner": "ann",
    "pipeline": "digits",
    "port": 8888,
    "project": "vision",
    "projects": ["vision"],
    "request_id": "7f9c3b1e",
    "resource_group": "default",
    "resource_groups": ["default"],
    "resources": {"cpu": "4", "mem": "16GiB", "cuda.device": "1"},
    "role": "member",
    "slot": "cuda.device",
    "status": "RUNNING",
    "step": "train",
    "template": "notebook@1",
    "type": "batch",
    "text": "waits for 1 cuda.device",
    "unit": "gpu",
    "user": "ann",
    "version": 1,
}
# Of texts without a better value; otherwise the name stands for the value.
_TEXTS: Mapping[str, str] = {
    "arch": "x86_64",
    "detail": "",
    "reason": "",
    "title": "Not Found",
    "version": "0.1.0",
}
_TIME = "2026-11-28T09:30:00Z"
_DEPTH = 6  # models refer to themselves at most this deep


class Examples:
    """``schemas``: the document's schemas, by name. ``objects``: further values by the
    name of the field or by MODEL.FIELD, which follow from other models."""

    def __init__(self, schemas: Mapping[str, Any], objects: Mapping[str, Any]) -> None:
        self._schemas = schemas
        self._objects = objects

    def of(self, schema: Mapping[str, Any], name: str = "", depth: int = 0) -> Any:
        """A value that the schema allows. ``name``: of the field that has it."""
        schema = self._resolved(schema)
        if (kinds := schema.get("anyOf") or schema.get("oneOf")) is not None:
            return self._choice(schema, kinds, name, depth)

        if schema.get("type") == "object" and "properties" in schema:
            return self._object(schema, depth)
        if "const" in schema:
            return schema["const"]
        for value in (_VALUES.get(name), self._objects.get(name)):
            if fits(value, schema):
                return value

        if "enum" in schema:
            return schema["enum"][0]
        if "default" in schema:
            return schema["default"]

        return self._plain(schema, name, depth)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """The schema that a reference names, with what stands beside the reference."""
        if "$ref" not in schema:
            return schema
        named = self._schemas[schema["$ref"].rpartition("/")[2]]
        return {**named, **{key: part for key, part in schema.items() if key != "$ref"}}

    def _choice(
        self, schema: Mapping[str, Any], kinds: list[Mapping[str, Any]], name: str, depth: int
    ) -> Any:
        """Null where a field usually has no value."""
        if any(fits(_VALUES.get(name), self._resolved(kind)) for kind in kinds):
            return _VALUES[name]
        if "default" in schema:
            return schema["default"]
        if any(kind.get("type") == "null" for kind in kinds):
            return None
        return self.of(kinds[0], name, depth)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        of_model = {name: f"{schema.get('title')}.{name}" for name in schema["properties"]}
        return {
            name: self._objects.get(of_model[name]) or self.of(part, name, depth + 1)
            for name, part in schema["properties"].items()
        }

    def _plain(self, schema: Mapping[str, Any], name: str, depth: int) -> Any:
        kind = schema.get("type")
        if kind == "array":
            if depth >= _DEPTH:
                return []
            return [self.of(schema.get("items", {}), name.removesuffix("s"), depth + 1)]

        if kind in ("integer", "number"):
            return max(schema.get("minimum", 0), schema.get("exclusiveMinimum", -1) + 1)

        if kind == "boolean":
            return False
        if kind == "string":
            return _TIME if schema.get("format") == "date-time" else _TEXTS.get(name, name)
        return {}


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value has the type of a schema that refers to no other."""
    kind = schema.get("type")
    if value is None or "enum" in schema or "const" in schema:
        return value is not None and value in schema.get("enum", [schema.get("const")])

    if kind == "object":
        return isinstance(value, dict) and "properties" not in schema
    if kind == "array":
        items = schema.get("items", {})
        return isinstance(value, list) and all(fits(item, items) for item in value)
    if kind == "string":
        return isinstance(value, str) and "format" not in schema and "pattern" not in schema
    return kind in ("integer", "number") and isinstance(value, int)
