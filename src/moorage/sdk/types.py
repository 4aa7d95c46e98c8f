"""Types of arguments for the client's calls, and statuses for conditions on the answers.

The answers are in ``moorage.common.views``.
"""

from moorage.common.model.commands import ExecSpec
from moorage.common.model.cron_jobs import CronJobSpec, CronTimesSpec, NewCronJob
from moorage.common.model.group_options import QuotaLimits
from moorage.common.model.pipelines import PipelineSpec
from moorage.common.model.program_ports import Probe
from moorage.common.model.qos import QosOptions
from moorage.common.model.spec import EndpointSpec, SessionSpec
from moorage.common.model.spec_fields import Resources
from moorage.common.model.status import LIVE, TERMINAL, Outcome, SessionType, Status
from moorage.common.model.templates import TemplateSpec
from moorage.common.views.budgets import BudgetSpec, PriceSpec
from moorage.common.views.endpoints import EndpointPatch
from moorage.common.views.executions import ExecutionSpec
from moorage.common.views.identity import ProjectSpec, UserSpec
from moorage.common.views.keys import KeyLimits, KeySpec
from moorage.common.views.resources import GroupOptions, NewGroup

__all__ = [
    "LIVE",
    "TERMINAL",
    "BudgetSpec",
    "CronJobSpec",
    "CronTimesSpec",
    "EndpointPatch",
    "EndpointSpec",
    "ExecSpec",
    "ExecutionSpec",
    "GroupOptions",
    "KeyLimits",
    "KeySpec",
    "NewCronJob",
    "NewGroup",
    "Outcome",
    "PipelineSpec",
    "PriceSpec",
    "Probe",
    "ProjectSpec",
    "QosOptions",
    "QuotaLimits",
    "Resources",
    "SessionSpec",
    "SessionType",
    "Status",
    "TemplateSpec",
    "UserSpec",
]
