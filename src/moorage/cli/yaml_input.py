"""YAML files that people write: plain data, in which each key of a mapping occurs once."""

from __future__ import annotations

from typing import Any

import yaml


class _UniqueKeys(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """PyYAML keeps the last of two equal keys. YAML forbids them."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # The constructor is too late, because it adds the keys of merged mappings.
        node = super().compose_mapping_node(anchor)
        seen = set[tuple[str, Any]]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if (key.tag, key.value) in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"the key {key.value[:100]!r} occurs twice in one mapping",
                    problem_mark=key.start_mark,
                )
            seen.add((key.tag, key.value))

        return node


def load(text: str) -> Any:
    """The only document of a file. Raises ``yaml.YAMLError``, ``ValueError`` or
    ``RecursionError``."""
    return yaml.load(text, Loader=_UniqueKeys)


def load_all(text: str) -> list[Any]:
    """The documents of a file. Raises the errors of ``load``."""
    return list(yaml.load_all(text, Loader=_UniqueKeys))
