"""Lists read without the client: the same output, and the client's errors if a read fails."""

from __future__ import annotations

import socket
from urllib.parse import unquote

import pytest
from fake_manager import FakeManager
from invoke import Run
from scripted_session import CREATED_AT, ROOT, batch

from moorage.cli import plain_reads
from moorage.common.model.reasons import Reason
from moorage.common.model.spec import EndpointSpec, Probe
from moorage.common.model.status import Status
from moorage.common.views.console import WhoAmI
from moorage.common.views.resources import Hold
from moorage.common.views.steps import StepRef

LISTS = (
    ("ps",),
    ("ps", "--all"),
    ("ps", "-a", "-o", "wide"),
    ("ps", "-o", "name"),
    ("ps", "-a", "-l", "team=vision"),
    ("sessions",),
    ("sessions", "list", "-a", "-o", "wide"),
    ("ps", "--mine", "--project", ROOT.project, "-g", "default", "--sort", "-name"),
    ("ps", "-q", "--user", ROOT.user),
    ("sessions", "list", "--mine"),
    ("endpoints", "-o", "wide"),
    ("endpoints", "list", "-o", "name"),
)


def fill(manager: FakeManager) -> None:
    """Sessions and endpoints that do not change while they are read."""
    place = StepRef(id="p-1", name="train", step="part", index=3, run=2)
    hold = Hold(
        reason=Reason.NO_ELIGIBLE_AGENT, text="no agent has 9 GPUs", attempts=3, at=CREATED_AT
    )
    manager.add_session(batch("going"), status=Status.RUNNING, script=[])
    manager.add_session(batch("part-3"), pipeline=place, status=Status.RUNNING, script=[])
    manager.add_session(batch("waits"), hold=hold, status=Status.PENDING, script=[])
    manager.add_session(
        batch("failed"), status=Status.ERROR, script=[], reason=Reason.OOM, detail="9 GiB"
    )

    for name in ("tiny", "team"):
        manager.add_endpoint(
            EndpointSpec(name=name, engine="custom", command=["serve"], probe=Probe())
        )


@pytest.mark.parametrize("args", LISTS, ids=" ".join)
def test_output_is_that_of_the_client(
    args: tuple[str, ...], manager: FakeManager, moorage: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(manager)
    me = WhoAmI(kind="key", user=ROOT.user, project=ROOT.project, role="admin", now=CREATED_AT)
    manager.can("GET", "/v1/session", 200, me)
    for _ in range(5):  # reading moves the endpoints' replicas to their last status
        moorage("ps", "-a", "-o", "json")

    manager.requests.clear()
    plain = moorage(*args)
    asked = [unquote(request) for request in manager.requests]

    def refuse(*_: object, **__: object) -> None:
        raise ConnectionError

    monkeypatch.setattr(plain_reads, "PlainReads", refuse)
    manager.requests.clear()
    complete = moorage(*args)
    assert (plain.stdout, plain.stderr, plain.exit_code) == (complete.stdout, complete.stderr, 0)
    assert sorted(unquote(request) for request in manager.requests) == sorted(asked)


def test_pages_are_read_to_the_last(manager: FakeManager, moorage: Run) -> None:
    for number in range(1005):
        manager.add_session(batch(f"job-{number}"))
    assert len(moorage("ps", "-o", "name").stdout.splitlines()) == 1005
    assert sum(request.startswith("GET /v1/sessions") for request in manager.requests) == 3


@pytest.mark.parametrize(
    ("status", "answer"),
    [(200, "<html>hello</html>"), (200, "{}"), (200, '{"items": [{}], "next": null}')],
)
def test_other_answers_are_reported_by_the_client(
    status: int, answer: str, manager: FakeManager, moorage: Run
) -> None:
    manager.can("GET", "/v1/sessions", status, answer)
    result = moorage("sessions", "list")
    assert result.exit_code == 1
    assert "is not a Moorage manager of this version" in result.stderr


def test_a_wrong_key_and_a_missing_manager_are_reported_by_the_client(moorage: Run) -> None:
    assert moorage("ps", MOORAGE_API_KEY="wrong").exit_code == 4
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = moorage("ps", MOORAGE_URL=f"http://127.0.0.1:{port}")
    assert result.exit_code == 1
    assert f"no manager answers at http://127.0.0.1:{port}" in result.stderr
