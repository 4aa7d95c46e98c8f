"""Client for the management API (``/v1``)."""

from __future__ import annotations

from moorage.sdk.agents import AgentCalls
from moorage.sdk.apps import AppCalls
from moorage.sdk.budgets import BudgetCalls
from moorage.sdk.code import CodeCalls
from moorage.sdk.groups import GroupCalls
from moorage.sdk.identity import IdentityCalls
from moorage.sdk.keys import KeyCalls
from moorage.sdk.managers import ManagerCalls
from moorage.sdk.metering import MeteringCalls
from moorage.sdk.peers import PeerCalls
from moorage.sdk.pipelines import PipelineCalls
from moorage.sdk.scheduler import SchedulerCalls
from moorage.sdk.secrets import SecretCalls
from moorage.sdk.ssh_keys import SshKeyCalls
from moorage.sdk.templates import TemplateCalls
from moorage.sdk.waiting import WaitCalls
from moorage.sdk.watching import WatchCalls


class Client(
    WaitCalls,
    WatchCalls,
    CodeCalls,
    AgentCalls,
    GroupCalls,
    AppCalls,
    KeyCalls,
    PeerCalls,
    ManagerCalls,
    SchedulerCalls,
    SecretCalls,
    SshKeyCalls,
    IdentityCalls,
    MeteringCalls,
    BudgetCalls,
    TemplateCalls,
    PipelineCalls,
):
    """Typed calls to one manager: ``async with Client(url, key) as client``.

    ``timeout`` in seconds bounds each call; for followed logs it bounds only the connection.
    ``ca_file``: an authority in PEM that signed the manager's certificate, beside those of the
    system. ``verify``: False accepts any certificate. ``retries``: how often a call is repeated,
    with growing pauses, that reads or creates and met an outage: creations carry an idempotency key
    then, so that none happens twice. Every call raises ``ApiError`` when the manager refuses it and
    ``Unreachable`` when the manager does not answer.
    """
