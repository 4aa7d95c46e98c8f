"""Lists of some sessions and endpoints: by owner and group, sorted, or only their names."""

from __future__ import annotations

import json

import pytest
from fake_manager import FakeManager
from invoke import Run
from scripted_session import CREATED_AT, ROOT, batch

from moorage.cli.list_order import parse_order
from moorage.cli.plain_reads import Record
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.views.console import WhoAmI
from moorage.manager.identity.keys import Owner

OWNERS = (Owner("ann", "vision"), Owner("ann", "speech"), Owner("bob", "vision"))


def of_several(manager: FakeManager) -> None:
    """A session and an endpoint of each owner; bob's are named first and made last."""
    for number, owner in enumerate(OWNERS):
        name = f"{9 - number}-{owner.user}-{owner.project}"
        manager.add_session(batch(name), owner=owner)
        model = EndpointSpec(
            name=f"model-{name}", engine="custom", command=["serve"], probe=Probe(), replicas=0
        )
        manager.add_endpoint(model, owner=owner)


@pytest.mark.parametrize(
    ("args", "shown"),
    [
        ("ps --user ann", ["9-ann-vision", "8-ann-speech", "m9-ann-vision", "m8-ann-speech"]),
        ("ps --project vision", ["9-ann-vision", "7-bob-vision", "m9-ann-vision", "m7-bob-vision"]),
        ("ps --user ann --project vision", ["9-ann-vision", "m9-ann-vision"]),
        ("ps --group default --user bob", ["7-bob-vision"]),
        ("ps --group other", []),
        ("sessions list --user bob", ["7-bob-vision"]),
        ("sessions list --project speech --group default", ["8-ann-speech"]),
    ],
)
def test_lists_are_filtered_by_owner_and_group(
    manager: FakeManager, moorage: Run, args: str, shown: list[str]
) -> None:
    of_several(manager)
    expected = sorted(name.replace("m", "model-", 1) if name[0] == "m" else name for name in shown)
    for names in ("-q", "--quiet"):
        result = moorage(*args.split(), names)
        assert sorted(result.stdout.split()) == expected
        assert result.stderr == ""

    found = json.loads(moorage(*args.split(), "-o", "json").stdout)
    assert sorted(v["name"] for views in found.values() for v in views) == expected


@pytest.mark.parametrize("command", ["ps", "sessions list"])
def test_ones_own_are_those_of_the_key(manager: FakeManager, moorage: Run, command: str) -> None:
    of_several(manager)
    manager.add_session(batch("mine"), owner=ROOT)
    me = WhoAmI(kind="key", user=ROOT.user, project=ROOT.project, role="admin", now=CREATED_AT)
    manager.can("GET", "/v1/session", 200, me)
    listed = [*command.split(), "--mine"]
    assert moorage(*listed, "-q").stdout == "mine\n"
    assert [v["name"] for v in json.loads(moorage(*listed, "-o", "json").stdout)["sessions"]] == [
        "mine"
    ]
    refused = moorage(*listed, "--user", "ann")
    assert refused.exit_code == 2
    assert "--mine and --user exclude each other" in refused.stderr


def test_ps_shows_whose_sessions_they_are_if_they_are_of_several(
    manager: FakeManager, moorage: Run
) -> None:
    def titles(*arguments: str) -> set[str]:
        return {"USER", "PROJECT"} & set(moorage(*arguments).stdout.split())

    manager.add_session(batch("one"), owner=OWNERS[0])
    assert titles("ps") == set()
    assert titles("ps", "-o", "wide") == {"USER", "PROJECT"}
    manager.add_session(batch("two"), owner=OWNERS[1])
    assert titles("ps") == {"PROJECT"}
    manager.add_session(batch("three"), owner=OWNERS[2])
    assert titles("ps") == {"USER", "PROJECT"}
    assert titles("sessions") == {"USER", "PROJECT"}
    assert moorage("ps").stdout.splitlines()[1].split()[:4] == ["three", "bob", "vision", "batch"]


def test_lists_are_sorted_by_the_manager(manager: FakeManager, moorage: Run) -> None:
    for given, order in (
        ("name", "name"),
        ("-name", "-name"),
        ("created_at", "created_at"),
        ("-created", "-created_at"),
        ("age", "-created_at"),
        ("-age", "created_at"),
        ("-user", "-user"),
        ("project", "project"),
    ):
        assert moorage("ps", "--sort", given).exit_code == 0
        asked = [request for request in manager.requests if f"sort={order}" in request]
        assert [request.split("?")[0] for request in asked] == [
            "GET /v1/endpoints",
            "GET /v1/sessions",
        ]
        manager.requests.clear()

    for given, order in (("group", "resource_group"), ("-state", "-status"), ("-priority",) * 2):
        assert moorage("sessions", "list", "--sort", given).exit_code == 0
        assert any(f"sort={order}" in request for request in manager.requests)

    for command in ("ps", "sessions list"):
        refused = moorage(*command.split(), "--sort", "-cost")
        assert refused.exit_code == 2
        assert "--sort '-cost' is not possible" in refused.stderr
        assert "sort by name, created, age, state, user, project, group" in refused.stderr


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("gpus", ["d", "b", "a", "c"]),
        ("-gpus", ["c", "a", "b", "d"]),
        ("duration", ["c", "a", "b", "d"]),
        ("-duration", ["d", "b", "a", "c"]),
    ],
)
def test_the_rest_is_sorted_on_the_complete_list(key: str, expected: list[str]) -> None:
    """The id breaks ties, also in descending order, as in the manager's."""
    rows = [("a", 2, 3), ("b", 1, 1), ("c", 3, 5), ("d", 0, 1)]
    order = parse_order(key)
    views = [
        Record(
            id=name,
            slots={"cuda.device": gpus, "cpu": 9 - gpus},
            status_since=f"2026-05-04T13:00:0{second}Z",
        )
        for name, gpus, second in rows
    ]
    assert [view.id for view in order.sessions(views)] == expected
    assert order.of_sessions is None


def test_names_and_another_format_exclude_each_other(moorage: Run) -> None:
    refused = moorage("ps", "-q", "-o", "json")
    assert refused.exit_code == 2
    assert "-q prints names, and -o json prints more" in refused.stderr
    assert moorage("ps", "-q", "-o", "name").exit_code == 0


def test_a_filter_that_finds_nothing_is_named(manager: FakeManager, moorage: Run) -> None:
    manager.add_session(batch("job"))
    assert "nothing matches" in moorage("ps", "--user", "nobody").stderr
