"""A program with the generated Python client: ``python program.py URL KEY``."""

import json
import sys

from moorage_api import AuthenticatedClient
from moorage_api.api.sessions import (
    create_session,
    explain_session,
    get_session,
    list_sessions,
    plan_session,
    stop_session,
)
from moorage_api.models import PlanView, Problem, SessionPage, SessionSpec, SessionView, WhyView


def main(url: str, key: str) -> None:
    client = AuthenticatedClient(base_url=url, token=key)
    spec = SessionSpec(name="generated-python", command=["sleep", "1d"])

    plan = plan_session.sync(client=client, body=spec)
    assert isinstance(plan, PlanView), plan

    made = create_session.sync(client=client, body=spec)
    assert isinstance(made, SessionView), made
    found = get_session.sync(made.name, client=client)
    assert isinstance(found, SessionView), found

    page = list_sessions.sync(client=client, name=made.name)
    assert isinstance(page, SessionPage), page
    why = explain_session.sync(made.id, client=client)
    assert isinstance(why, WhyView), why

    stopped = stop_session.sync(made.id, client=client)
    assert isinstance(stopped, SessionView), stopped
    missing = get_session.sync("no-such-session", client=client)
    assert isinstance(missing, Problem), missing

    print(
        json.dumps(
            {
                "places": [place.agent_id for place in plan.places],
                "priority": found.priority,
                "listed": [one.name for one in page.items],
                "stopped": stopped.status,
                "missing": missing.code,
            }
        )
    )


main(sys.argv[1], sys.argv[2])
