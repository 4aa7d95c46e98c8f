"""Tools of the MCP server, from the manager's OpenAPI document. Pure.

A read is a tool. A write becomes a tool ``plan_…`` that changes nothing: see ``plans``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from moorage.cli.mcp.schemas import short_body, short_parameter
from moorage.common.model.errors import InvalidInput

# Operations about permissions or the platform itself. Keys and secrets stay with people. The
# catalogue is for forms; an agent writes the specification itself.
_WITHHELD = frozenset(
    {
        *(
            "audit",
            "ca",
            "calendar",
            "catalog",
            "cron-jobs",
            "events",
            "group-aliases",
            "join",
            "join-tokens",
            "keys",
            "peers",
            "qos",
            "secrets",
        ),
        *("service", "session", "ssh-keys", "subscriptions", "users"),
    }
)
# Writes to workloads.
WRITES = frozenset(
    {
        *(
            "create_session",
            "update_session",
            "stop_session",
            "extend_session",
            "execute_code",
            "interrupt_execution",
        ),
        *("create_endpoint", "update_endpoint", "scale_endpoint", "delete_endpoint"),
        *("undo_rollout", "promote_rollout"),
        *("create_pipeline", "stop_pipeline", "retry_pipeline"),
        *("start_template", "put_template"),
    }
)
# Secrets, segments that only a program can decode, and lists of thousands.
_UNREADABLE = frozenset(
    {
        *("list_access_tokens", "list_scheduler_decisions"),
        *("list_session_tasks", "get_session_task_summary"),
    }
)
# Long tables, for charts.
_FOR_CHARTS = frozenset({"get_occupancy_history"})
_READABLE = ("application/json", "text/plain")
# Fields that an agent does not write: thousands of lines.
_LONG = frozenset({"tasks"})
# Parameters of streams, which tools do not support.
_OMITTED = frozenset({"follow", "index", "elements", "live", "steps"})
# Parameters of every list, which the server's instructions describe once.
OF_LISTS = frozenset({"cursor", "sort"})
_SCHEMAS = "#/components/schemas/"
PLAN = "plan_"


@dataclass(frozen=True)
class Operation:
    """An operation of the API. ``path``: the path in the document, with ``{parameters}``.
    ``group``: its subject, the tag in the document. ``about``: the path of the resource that a
    write changes, if it can be read. ``plan_path``: the path that answers what a write would do."""

    name: str
    method: str
    path: str
    summary: str
    parameters: Mapping[str, Mapping[str, Any]]
    body: Mapping[str, Any] | None
    definitions: Mapping[str, Any]
    group: str = ""
    about: str | None = None
    plan_path: str | None = None
    versioned: bool = False
    idempotent: bool = False

    @property
    def writes(self) -> bool:
        return self.method != "get"

    @property
    def tool(self) -> str:
        return PLAN + self.name if self.writes else self.name

    def input_schema(self) -> dict[str, Any]:
        """JSON Schema of the tool's arguments: path and query parameters by name, and ``body``."""
        properties: dict[str, Any] = {
            name: dict(parameter["schema"]) for name, parameter in self.parameters.items()
        }
        for name, parameter in self.parameters.items():
            if text := parameter.get("description"):
                properties[name]["description"] = text

        required = [
            name for name, parameter in self.parameters.items() if parameter.get("required")
        ]
        if self.body is not None:
            properties["body"] = dict(self.body)
            required = [*required, "body"]

        schema: dict[str, Any] = {
            "type": "object",
            "properties": properties,
            "additionalProperties": False,
        }
        if required:
            schema["required"] = required
        if self.definitions:
            schema["$defs"] = dict(self.definitions)

        return schema

    def short_schema(self) -> dict[str, Any]:
        """``input_schema`` without the descriptions and inner fields of the body."""
        properties = {
            name: short_parameter(
                parameter["schema"], None if name in OF_LISTS else parameter.get("description")
            )
            for name, parameter in self.parameters.items()
        }
        if self.body is not None:
            resets = self.method == "patch"
            properties["body"] = short_body(self.body, self.definitions, with_null=resets)

        full = self.input_schema()
        return {
            "type": "object",
            "properties": properties,
            **({"required": full["required"]} if "required" in full else {}),
        }

    def pinned(self, arguments: Mapping[str, Any], found: Any) -> dict[str, Any]:
        """``arguments`` with the id of the resource ``found`` at ``about`` in place of its name,
        because another session or pipeline may have that name later."""
        given = dict(arguments)
        if "ref" in given and isinstance(found, dict) and isinstance(found.get("id"), str):
            given["ref"] = found["id"]
        return given

    def target(
        self, arguments: Mapping[str, Any], path: str | None = None
    ) -> tuple[str, dict[str, str]]:
        """The encoded path and the query of a request. Raises ``KeyError`` with the name of a
        missing parameter, and ``InvalidInput`` for a value that would address another resource."""
        filled = path or self.path
        query = {}
        for name, parameter in self.parameters.items():
            if parameter["in"] == "path":
                value = str(arguments[name])
                if value in ("", ".", ".."):
                    raise InvalidInput(
                        f"{name} = {value!r} names nothing", next_step="give a name or an id"
                    )

                filled = filled.replace(f"{{{name}}}", quote(value, safe=""))
            elif arguments.get(name) is not None:
                query[name] = _text(arguments[name])

        return filled, query


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def operations(document: Mapping[str, Any]) -> dict[str, Operation]:
    """The operations that are available as tools, by name."""
    return {operation.name: operation for operation in _operations(document)}


def chosen(found: Mapping[str, Operation], names: Collection[str]) -> dict[str, Operation]:
    """The operations among ``found`` that ``names`` names: tools, and groups for all of their
    tools. Raises ``InvalidInput`` for a name that is neither."""
    known = {
        name
        for operation in found.values()
        for name in (operation.group, operation.name, operation.tool)
    }
    if unknown := sorted(set(names) - known):
        groups = sorted({operation.group for operation in found.values()})
        tools = sorted(operation.tool for operation in found.values())
        raise InvalidInput(
            f"--tools {unknown[0]!r} is neither a tool nor a group of tools",
            next_step=f"groups: {', '.join(groups)}; tools: {', '.join(tools)}",
        )

    return {
        name: operation
        for name, operation in found.items()
        if not {operation.group, operation.name, operation.tool}.isdisjoint(names)
    }


def _operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    paths = document["paths"]
    schemas = document["components"]["schemas"]
    for path, methods in paths.items():
        for method, described in methods.items():
            if not _is_tool(method, described):
                continue

            given = {parameter["name"]: parameter for parameter in described.get("parameters", ())}
            name = described["operationId"]
            content = described.get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("schema")
            definitions: dict[str, Any] = {}
            yield Operation(
                name=name,
                method=method,
                path=path,
                summary=described["summary"].rstrip(".") + ".",
                parameters={
                    name: parameter
                    for name, parameter in given.items()
                    if parameter["in"] in ("path", "query") and name not in _OMITTED
                },
                body=_local(body, schemas, definitions) if body is not None else None,
                definitions=definitions,
                group=described["tags"][0],
                about=_readable_above(path, paths) if method != "get" else None,
                plan_path=f"{path}/plan" if "post" in paths.get(f"{path}/plan", {}) else None,
                versioned="If-Match" in given,
                idempotent="Idempotency-Key" in given,
            )


def _is_tool(method: str, described: Mapping[str, Any]) -> bool:
    if described["operationId"] in WRITES:
        return True
    if described["operationId"] in _UNREADABLE | _FOR_CHARTS:
        return False

    content = [
        kind for response in described["responses"].values() for kind in response.get("content", ())
    ]
    return (
        method == "get"
        and described["tags"][0] not in _WITHHELD
        and any(k in _READABLE for k in content)
    )


def _readable_above(path: str, paths: Mapping[str, Any]) -> str | None:
    """The longest prefix of ``path`` that names a readable resource."""
    parts = path.split("/")
    for length in range(len(parts), 2, -1):
        above = "/".join(parts[:length])
        if "get" in paths.get(above, {}) and parts[length - 1].startswith("{"):
            return above
    return None


def _local(schema: Any, schemas: Mapping[str, Any], definitions: dict[str, Any]) -> Any:
    """``schema`` with its references pointing to ``definitions``, to which the referenced schemas
    are added."""
    if isinstance(schema, list):
        return [_local(part, schemas, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema

    found: dict[str, Any] = {}
    for key, part in schema.items():
        if key == "properties" and isinstance(part, dict):
            part = {name: field for name, field in part.items() if name not in _LONG}
        if key == "$ref" and isinstance(part, str) and part.startswith(_SCHEMAS):
            name = part.removeprefix(_SCHEMAS)
            if name not in definitions:
                definitions[name] = {}  # a schema may refer to itself
                definitions[name] = _local(schemas[name], schemas, definitions)

            found[key] = f"#/$defs/{name}"
        elif key == "mapping" and isinstance(part, dict):
            found[key] = {k: str(v).replace(_SCHEMAS, "#/$defs/") for k, v in part.items()}
            for target in part.values():
                _local({"$ref": target}, schemas, definitions)
        else:
            found[key] = _local(part, schemas, definitions)

    return found
