"""The API handlers' calls to the store and the services, found in their source text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

from moorage.manager import api
from moorage.manager.api.http.dependencies import ApiServices
from moorage.manager.store import Store

_SERVICES = get_type_hints(ApiServices)
_PLAIN = {
    "checks",
    "metrics",
    "tenant_metrics",
    "degraded",
    "clock",
    "limits",
    "cors",
    "models",
    "console",
    "tracer",
}
_PLAIN |= {"store", "validating", "max_body_bytes", "version", "currency", "on_plain_key"}


def called_by_the_api() -> set[tuple[str, str]]:
    """The name of each repository or service, and the method. Raises ``AssertionError`` if a
    repository or service is passed on, because its calls cannot be found then."""
    found = set[tuple[str, str]]()
    for path in sorted(Path(api.__path__[0]).rglob("*.py")):
        if path.name == "dependencies.py":
            continue

        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found |= set(_Uses(node, path.name).found())

    return found


def class_of(store: Store, name: str) -> type:
    """The class of a store repository or of a service."""
    if name not in _SERVICES:
        return type(getattr(store, name))
    declared = _SERVICES[name]
    return next(one for one in getattr(declared, "__args__", (declared,)) if one is not type(None))


class _Uses:
    """Calls in one function. ``call.deps`` and ``deps`` are the services, including ``store``."""

    def __init__(self, function: ast.AST, module: str) -> None:
        self._function = function
        self._module = module
        self._parents = {
            child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)
        }
        self._repositories = dict(self._aliases())

    def found(self) -> Iterator[tuple[str, str]]:
        for node in ast.walk(self._function):
            name = self._repository(node)
            if name is None:
                continue

            user = self._parents[node]
            if isinstance(user, ast.Attribute):
                yield name, user.attr
            else:
                where = f"{self._module}:{getattr(node, 'lineno', 0)}"
                assert self._is_known(user), f"{where}: {name} is handed on"

    def _aliases(self) -> Iterator[tuple[str, str]]:
        """Names that stand for a repository: ``keys, scope = call.deps.store.keys, call.scope``."""
        for node in ast.walk(self._function):
            if not isinstance(node, ast.Assign):
                continue

            target = node.targets[0]
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = [*zip(target.elts, node.value.elts, strict=True)]

            for to, value in pairs:
                name = self._direct(value)
                if name is not None and isinstance(to, ast.Name):
                    yield to.id, name

    def _is_known(self, user: ast.AST) -> bool:
        """An assignment to a name, or the check that a service exists."""
        return isinstance(user, (ast.Assign, ast.Tuple)) or _is_check(user)

    def _repository(self, node: ast.AST) -> str | None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            return self._repositories.get(node.id)
        if isinstance(node, ast.Call) and _is_check(node):
            return self._direct(node.args[0])
        return self._direct(node)

    def _direct(self, node: ast.AST) -> str | None:
        if not isinstance(node, ast.Attribute):
            return None
        if _is_services(node.value) and node.attr not in _PLAIN:
            return node.attr
        return node.attr if _is_store(node.value) else None


def _is_check(node: ast.AST) -> bool:
    """``_require(call.deps.registration)``"""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "_require"
    )


def _is_services(node: ast.AST) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == "deps") or (
        isinstance(node, ast.Name) and node.id == "deps"
    )


def _is_store(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return node.id == "store"
    return isinstance(node, ast.Attribute) and node.attr in ("store", "_store")
