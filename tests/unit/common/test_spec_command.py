"""Validation of a session's command."""

import pytest
from pydantic import ValidationError

from moorage.common.model.spec import EndpointSpec, Probe, SessionSpec
from moorage.common.model.status import SessionType


def test_only_interactive_sessions_may_omit_the_command() -> None:
    assert SessionSpec(type=SessionType.INTERACTIVE).command == []
    for kind in (SessionType.BATCH, SessionType.INFERENCE):
        with pytest.raises(ValidationError, match="requires `command`"):
            SessionSpec(type=kind, probe=Probe())
    with pytest.raises(ValidationError, match="requires `command`"):
        EndpointSpec(name="served", engine="custom", probe=Probe())
    with pytest.raises(ValidationError, match="first element"):
        SessionSpec(type=SessionType.INTERACTIVE, command=[""])
