"""Who needs a program of its own."""

import pytest
from pydantic import ValidationError

from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.common.model.status import SessionType


def test_only_an_interactive_session_may_idle() -> None:
    assert SessionSpec(type=SessionType.INTERACTIVE).command == []
    for kind in (SessionType.BATCH, SessionType.INFERENCE):
        with pytest.raises(ValidationError, match="needs `command`"):
            SessionSpec(type=kind, probe=Probe())
    with pytest.raises(ValidationError, match="needs `command`"):
        EndpointSpec(name="served", engine="custom", probe=Probe())
    with pytest.raises(ValidationError, match="first word"):
        SessionSpec(type=SessionType.INTERACTIVE, command=[""])
