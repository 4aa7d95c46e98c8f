"""Class names: a word has one meaning in the whole tree, so a public class name is defined once."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import moorage

SOURCE = Path(moorage.__file__).parent

# Names used for several classes, and why.
SEVERAL: dict[str, str] = {
    "Execution": "what a runtime runs in a kernel; in the SDK, the result of a run of code",
    "Quotas": "those of a snapshot; in the SDK, the calls about them",
    "Workspaces": "those of a node; in the SDK, the calls about them",
}


def class_names(texts: Mapping[str, str]) -> dict[str, list[str]]:
    """Where each public class is defined at module level."""
    found = defaultdict(list)
    for path, text in texts.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return found


def sources() -> dict[str, str]:
    files = [file for file in SOURCE.rglob("*.py") if "pb" not in file.parts]
    return {str(file.relative_to(SOURCE)): file.read_text() for file in files}


def test_a_class_name_is_defined_once() -> None:
    """Otherwise rename the newer one after what it is, or add both to the list with the reason."""
    found = {name: paths for name, paths in class_names(sources()).items() if len(paths) > 1}
    assert {name: paths for name, paths in found.items() if name not in SEVERAL} == {}
    assert SEVERAL.keys() - found.keys() == set(), "defined once now: remove it from the list"


def test_two_classes_of_a_name_are_found() -> None:
    texts = {
        "a.py": "class Hold: pass\nclass _Own: pass",
        "b.py": "class Hold: pass\nclass _Own: pass",
    }
    assert class_names(texts) == {"Hold": ["a.py", "b.py"]}
