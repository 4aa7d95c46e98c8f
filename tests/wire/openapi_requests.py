"""Requests made from an OpenAPI document: valid, almost valid and hostile ones, as hypothesis
strategies.

Covers the part of JSON Schema that our document uses; an unknown keyword is an error, not a gap.

Schemathesis (4.32) does the same for any document, with more kinds of damage, but depends on seven
packages, one of them compiled. Here the route table is available, so an answer is parsed with its
route's model. If the document outgrows this module, Schemathesis should replace it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

_ANNOTATIONS = {"default", "description", "discriminator", "examples", "title", "writeOnly"}
_KNOWN = _ANNOTATIONS | {
    "$ref", "additionalProperties", "allOf", "anyOf", "const", "enum", "exclusiveMaximum", "exclusiveMinimum",
    "format", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems", "minLength",
    "minProperties", "minimum", "oneOf", "pattern", "patternProperties", "prefixItems", "properties",
    "propertyNames",
    "required", "type", "uniqueItems",
}  # fmt: skip
# Dates at the limits of calendars, years and offsets.
TIMES = (
    "0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z",
    "2026-01-01T00:00:00.123456789+05:30", "2038-01-19T03:14:08Z", "9999-12-31T23:59:59-14:00",
    "9999-12-31T23:59:59Z", "2026-02-30T00:00:00Z", "2026-01-01", "0000-01-01T00:00:00Z",
)  # fmt: skip
HOSTILE = (
    "", "\n", "a\n", "default\n", " ", "\0", "a\0b", "\x1b[2J", "\u202e", "\ufeff", "ü", "日本", "%",
    "%00", "..", "../..", "/", "//", "a" * 300, "a" * 40_000, "'; DROP TABLE sessions; --", "{{7*7}}", "-1",
)  # fmt: skip
_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(HOSTILE + TIMES),
)
_ANY = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = None


class Requests:
    """``names``: values that are meaningful to the server under test, such as names of existing
    objects."""

    def __init__(self, document: dict[str, Any], names: tuple[str, ...]) -> None:
        self._document = document
        self._words = st.sampled_from(names) | st.sampled_from(HOSTILE) | st.text(max_size=12)
        self._names = st.sampled_from(names)

    def of(self, path: str, method: str) -> st.SearchStrategy[Request]:
        operation = self._document["paths"][path][method]
        return st.composite(lambda draw: self._request(draw, path, method, operation))()

    def _request(self, draw: Any, path: str, method: str, operation: dict[str, Any]) -> Request:
        query = []
        headers = {}
        for parameter in operation["parameters"]:
            if parameter["in"] == "path":
                name = draw(self._names | self._names | self._words) or "x"
                path = path.replace(f"{{{parameter['name']}}}", _segment(name))
                continue

            if not (parameter["required"] or draw(st.booleans())):
                continue

            value = draw(self.values(parameter["schema"]) | self._words)
            if parameter["in"] == "header":
                headers[parameter["name"]] = (
                    "".join(c for c in str(value) if " " <= c <= "~") or "x"
                )
            else:
                values = value if isinstance(value, list) else [value]
                query += [(parameter["name"], _text(one)) for one in values]

        if draw(st.integers(0, 15)) == 0:
            query.append((draw(self._words), draw(self._words)))

        body = None
        content = operation.get("requestBody", {}).get("content", {})
        if "application/json" in content:  # and not the bytes of a file
            schema = content["application/json"]["schema"]
            body = draw(self.values(schema))
            if draw(st.integers(0, 3)) == 0:
                body = draw(self._damaged(body))

        return Request(method.upper(), path, query=query, headers=headers, body=body)

    def _damaged(self, body: Any) -> st.SearchStrategy[Any]:
        """``body`` with one field replaced, added or removed; or something else."""
        if not isinstance(body, dict) or not body:
            return _ANY

        replaced = st.builds(
            lambda name, value: body | {name: value}, st.sampled_from(sorted(body)), _ANY
        )
        added = st.builds(lambda name, value: body | {name: value}, st.text(max_size=8), _ANY)
        removed = st.sampled_from(sorted(body)).map(
            lambda name: {k: v for k, v in body.items() if k != name}
        )
        return replaced | added | removed | _ANY

    def values(self, schema: Any) -> st.SearchStrategy[Any]:
        if schema is True or not set(schema) - _ANNOTATIONS:
            return _ANY

        unknown = set(schema) - _KNOWN
        assert not unknown, f"the strategies do not know {unknown}"
        if "$ref" in schema:
            name = schema["$ref"].rpartition("/")[2]
            return st.deferred(lambda: self.values(self._document["components"]["schemas"][name]))
        if "const" in schema:
            return st.just(schema["const"])
        if "enum" in schema:
            return st.sampled_from(schema["enum"])

        for several in ("anyOf", "oneOf", "allOf"):
            if several in schema:
                return st.one_of([self.values(one) for one in schema[several]])

        return getattr(self, f"_{schema['type']}")(schema)  # type: ignore[no-any-return]

    def _null(self, schema: Any) -> st.SearchStrategy[Any]:
        return st.none()

    def _boolean(self, schema: Any) -> st.SearchStrategy[Any]:
        return st.booleans()

    def _integer(self, schema: Any) -> st.SearchStrategy[Any]:
        return st.integers(schema.get("minimum", -10), schema.get("maximum", 2**63))

    def _number(self, schema: Any) -> st.SearchStrategy[Any]:
        low = schema.get("minimum", schema.get("exclusiveMinimum", -1e6))
        high = schema.get("maximum", schema.get("exclusiveMaximum", 1e6))
        return st.floats(low, high, allow_nan=False)

    def _string(self, schema: Any) -> st.SearchStrategy[Any]:
        if schema.get("format") == "date-time":
            return st.sampled_from(TIMES)
        if "pattern" in schema:
            exact = st.from_regex(schema["pattern"], fullmatch=True).filter(
                lambda text: "\n" not in text
            )
            return exact | exact.map(lambda text: f"{text}\n")
        return self._names | self._words

    def _array(self, schema: Any) -> st.SearchStrategy[Any]:
        low = schema.get("minItems", 0)
        return st.lists(self.values(schema.get("items", True)), min_size=low, max_size=max(low, 2))

    def _object(self, schema: Any) -> st.SearchStrategy[Any]:
        properties = schema.get("properties", {})
        if "patternProperties" in schema:
            [(pattern, inner)] = schema["patternProperties"].items()
            exact = st.from_regex(pattern, fullmatch=True).filter(lambda text: "\n" not in text)
            return st.dictionaries(exact | self._words, self.values(inner), max_size=2)

        if not properties:
            more = schema.get("additionalProperties", True)
            return st.dictionaries(self._names | self._words, self.values(more), max_size=2)

        required = {name: self.values(properties[name]) for name in schema.get("required", [])}
        optional = {
            name: self.values(one) for name, one in properties.items() if name not in required
        }

        # Few optional fields at a time, because otherwise nearly every object breaks a rule that
        # relates two of them.
        few = st.lists(st.sampled_from(sorted(optional) or ["-"]), max_size=3, unique=True)
        return few.flatmap(
            lambda names: st.fixed_dictionaries(
                required | {n: optional[n] for n in names if n in optional}
            )
        )


def _segment(name: str) -> str:
    encoded = quote(name, safe="", errors="surrogatepass")
    return encoded if name.strip(".") else name.replace(".", "%2E")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
