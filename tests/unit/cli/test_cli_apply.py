"""``moorage apply`` and ``plan -f``: everything is checked first, correct objects stay, and the
shown plan is applied."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_manager import FakeManager
from hypothesis import given
from hypothesis import strategies as st
from invoke import Run
from tests.examples import examples

from moorage.cli import manifests
from moorage.common.model.errors import InvalidInput
from moorage.common.model.group_options import GroupOptions, QuotaLimits
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.identity import ProjectPatch

CLUSTER = """
kind: resource-group
name: training
spec: {hol: backfill, strategy: drf}
---
kind: quota
name: user/ann
spec: {slots: {cuda.device: 4, mem: 16GiB}, sessions: 10}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "cluster.yaml"
    made.write_text(CLUSTER)
    return made


def test_an_invalid_pipeline_is_named_with_the_other_documents(moorage: Run, file: Path) -> None:
    file.write_text(
        CLUSTER + "---\nkind: pipeline\nname: p\nsteps: [{name: a}]\n---\nkind: quota\nname: x\n"
    )
    for verb in ("plan", "apply"):
        refused = moorage(verb, "-f", str(file))
        assert refused.exit_code == 2
        assert "document 3: steps.0" in refused.stderr
        assert "document 4: name 'x'" in refused.stderr


def test_plan_writes_nothing_and_apply_is_idempotent(
    manager: FakeManager, moorage: Run, file: Path
) -> None:
    planned = moorage("plan", "-f", str(file))
    assert planned.exit_code == 0, planned.output
    assert (
        planned.stdout
        == "resource-group/training would be created\nquota/user/ann would be created\n"
    )
    assert "training" not in manager.store.groups.options
    assert (
        moorage("apply", "-f", str(file)).stdout
        == "resource-group/training created\nquota/user/ann created\n"
    )
    assert manager.store.groups.options["training"].strategy == "drf"
    again = "resource-group/training unchanged\nquota/user/ann unchanged\n"
    assert moorage("apply", "-f", str(file)).stdout == again
    file.write_text(CLUSTER.replace("drf", "fifo").replace("sessions: 10", "pending: 3"))
    assert moorage("plan", "-f", str(file)).stdout.splitlines() == [
        "resource-group/training would be changed",
        "  ~ strategy: 'drf' -> 'fifo'",
        "quota/user/ann would be changed",
        "  + pending: 3",
        "  - sessions: 10",
    ]
    assert "training changed" in moorage("apply", "-f", str(file)).stdout


def test_what_is_shown_as_yaml_applies_without_a_change(
    manager: FakeManager, moorage: Run, file: Path
) -> None:
    assert moorage("apply", "-f", str(file)).exit_code == 0
    shown = moorage("groups", "describe", "training", "-o", "yaml").stdout
    file.write_text(shown + "---\n" + moorage("quotas", "list", "-o", "yaml").stdout)
    assert moorage("apply", "-f", str(file)).stdout.splitlines() == [
        "resource-group/training unchanged",
        "quota/user/ann unchanged",
    ]


def test_conflict_is_reported_and_ends_nothing(
    manager: FakeManager, moorage: Run, file: Path
) -> None:
    moorage("apply", "-f", str(file))
    file.write_text(CLUSTER.replace("drf", "fifo").replace("sessions: 10", "sessions: 11"))
    manager.store.groups.changed_by_others = True
    done = moorage("apply", "-f", str(file))
    assert done.exit_code == 1
    assert done.stdout.startswith("resource-group/training conflict: ")
    assert done.stdout.endswith("quota/user/ann changed\n")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no documents"),
        ("a: [", "not YAML"),
        ("- 1", "document 1: it: Input should be"),
        ("kind: pod\nname: x", "document 1: kind"),
        ("kind: quota\nname: ann", "write user/NAME"),
        ("kind: quota\nname: user/ann\nfor_all: true", "`for_all` is for templates"),
        ("kind: resource-group\nname: g\nspec: {strategies: x}", "document 1: strategies"),
        (
            "kind: resource-group\nname: g\n---\nkind: resource-group\nname: g",
            "resource-group/g occurs twice",
        ),
        (
            "kind: quota\nname: user/a\n---\nkind: quota\nname: user/b\nspec: {sessions: -1}",
            "document 2: sessions",
        ),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
        ("kind: quota\nname: user/ann\nname: user/bob", "the key 'name' occurs twice"),
        ("kind: quota\nname: user/ann\nspec: {a: 1, 'a': 2}", "the key 'a' occurs twice"),
    ],
)
def test_nothing_is_written_of_an_invalid_file(
    manager: FakeManager, moorage: Run, file: Path, text: str, problem: str
) -> None:
    file.write_text(text)
    before = dict(manager.store.groups.options)
    for verb in ("apply", "plan"):
        result = moorage(verb, "-f", str(file))
        assert result.exit_code == 2, result.output
        assert problem in result.stderr
    assert manager.store.groups.options == before


NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
GROUPS = st.builds(
    GroupOptions,
    hol=st.sampled_from(["strict", "skip", "backfill"]),
    description=st.text("aä: #-'\"\n", max_size=12),
    weights=st.dictionaries(NAMES, st.integers(1, 9), max_size=2),
    projects=st.none() | st.lists(NAMES, max_size=2, unique=True),
)
QUOTAS = st.builds(
    QuotaLimits,
    slots=st.dictionaries(
        st.sampled_from(["cpu", "mem", "cuda.device"]), st.integers(0, 64), max_size=3
    ).map(lambda slots: {slot: n << 30 if slot == "mem" else n for slot, n in slots.items()}),
    sessions=st.none() | st.integers(0, 99),
    node_hours=st.none() | st.sampled_from([0, 0.5, 100]),
)
PROJECTS = st.builds(
    ProjectPatch,
    status=st.sampled_from(["active", "disabled"]),
    max_priority=st.none() | st.integers(0, 100),
    resource_groups=st.none() | st.lists(NAMES, max_size=2),
)
TEMPLATES = st.builds(
    TemplateSpec,
    description=st.text("a: {}\n", max_size=8),
    spec=st.dictionaries(NAMES, st.text("{} ~'", max_size=6) | st.integers(), max_size=3),
)
MANIFESTS = st.one_of(
    st.builds(manifests.Manifest, st.just("resource-group"), NAMES, GROUPS),
    st.builds(manifests.Manifest, st.just("quota"), NAMES.map("user/{}".format), QUOTAS),
    st.builds(manifests.Manifest, st.just("project"), NAMES, PROJECTS),
    st.builds(manifests.Manifest, st.just("template"), NAMES, TEMPLATES, st.booleans()),
)


@given(st.lists(MANIFESTS, min_size=1, max_size=4, unique_by=lambda one: one.title))
@examples(40)
def test_rendered_manifests_are_read_as_they_were(given_: list[manifests.Manifest]) -> None:
    again = manifests.parse(manifests.render(given_))
    for before, after in zip(given_, again, strict=True):
        assert (after.title, after.for_all) == (before.title, before.for_all)
        assert after.spec.model_dump() == before.spec.model_dump()


def test_a_large_file_is_refused() -> None:
    with pytest.raises(InvalidInput, match="larger than 16 MiB"):
        manifests.parse("#" * (17 << 20))


def test_merged_keys_may_be_overridden(manager: FakeManager, moorage: Run, file: Path) -> None:
    """Only keys that are written twice in one mapping are ambiguous; a file may also begin with a
    byte order mark."""
    file.write_bytes(
        b"\xef\xbb\xbfkind: quota\nname: user/ann\nspec:\n  <<: {sessions: 2}\n  sessions: 3\n"
    )
    result = moorage("apply", "-f", str(file))
    assert (result.exit_code, result.stdout) == (0, "quota/user/ann created\n"), result.output
