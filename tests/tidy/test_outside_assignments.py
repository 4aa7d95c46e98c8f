"""Assignments from outside: an object gets its parts through its constructor.

A module may change the records that it defines itself. Objects from other modules are changed by
calling them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import moorage

SOURCE = Path(moorage.__file__).parent
# Where the rule applies. The other packages follow.
PACKAGES = ("proxy",)
# (file, assigned attribute): third-party objects that have no method for it.
FOREIGN = {
    ("proxy/apps/request_context.py", "self.request.writer.output_size"): "aiohttp's writer",
    ("proxy/control/feed.py", "request.without_credentials"): "a message of protobuf",
    ("proxy/ssh/server.py", "key.verify"): "asyncssh's key, which has no other hook",
}


def own_attributes(tree: ast.Module) -> set[str]:
    """The attributes of the classes that a module defines."""
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            found |= {
                field.target.id
                for field in node.body
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
            }
        elif is_assigned(node) and ast.unparse(node.value) == "self":
            found.add(node.attr)
    return found


def is_assigned(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)


def outside_assignments(text: str) -> Iterator[str]:
    tree = ast.parse(text)
    own = own_attributes(tree)
    for node in ast.walk(tree):
        if not is_assigned(node):
            continue

        if ast.unparse(node.value) != "self" and node.attr not in own:
            yield ast.unparse(node)


def test_nothing_is_assigned_from_outside() -> None:
    """Pass it to the constructor, or call a method that says what happens."""
    found = {
        (str(file.relative_to(SOURCE)), target)
        for package in PACKAGES
        for file in (SOURCE / package).rglob("*.py")
        for target in outside_assignments(file.read_text())
    }
    assert found == FOREIGN.keys()


def test_an_assignment_from_outside_is_found() -> None:
    text = (
        "class Own:\n"
        "    def __init__(self) -> None:\n"
        "        self.count = 0\n\n"
        "def build(own: Own, router: Router) -> None:\n"
        "    own.count += 1\n"
        "    router.limiter = own\n"
        "    router.links.dialout, _ = None, 1\n"
    )
    assert sorted(outside_assignments(text)) == ["router.limiter", "router.links.dialout"]
