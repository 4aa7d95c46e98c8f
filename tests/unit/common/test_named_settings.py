"""Settings named in errors and help texts exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import moorage
from moorage.common.config.settings import Settings

SETTING = re.compile(r"(?<![\w./-])((?:agent|common|manager|proxy)\.[a-z]\w+)(?![\w(])")


def sentences(path: Path) -> list[str]:
    """The texts of a module except its docstrings."""
    source = path.read_text()
    if not SETTING.search(source):
        return []

    tree = ast.parse(source)
    documentation = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
    }  # including those of settings' fields
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    texts = [
        node.value
        for node in constants
        if isinstance(node.value, str) and id(node) not in documentation
    ]

    return [text for text in texts if " " in text]


def test_named_settings_exist() -> None:
    known = {
        f"{section}.{name}"
        for section, field in Settings.model_fields.items()
        for name in field.annotation.model_fields  # type: ignore[union-attr]
    }
    unknown = [
        f"{path.name}: {name}"
        for path in sorted(Path(moorage.__file__).parent.rglob("*.py"))
        for text in sentences(path)
        for name in SETTING.findall(text)
        if name not in known and name.removesuffix("_file") not in known
    ]
    assert unknown == []
