"""Actions of the command line, and where the web console has them.

A test holds this table to the commands that exist. ``Performed``: the functions of the drive scripts
that perform the action in a real browser and read its result by REST. ``Shown``: a list or a page
that other drives open. ``Outside``: why it does not belong in a browser. ``Missing``: the console
lacks it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Performed:
    page: str
    by: str


@dataclass(frozen=True)
class Shown:
    page: str


@dataclass(frozen=True)
class Outside:
    reason: str


@dataclass(frozen=True)
class Missing:
    note: str = ""


DAEMON = Outside("runs on a machine of the installation")
DATABASE = Outside("works on the database, without a manager")
TERMINAL = Outside("connects programs of the user's own machine")
CONTEXT = Outside("settings of the command line itself")

PARITY: dict[str, Performed | Shown | Outside | Missing] = {
    # Daemons, installation and tools
    "agent doctor": DAEMON,
    "agent install-engine": DAEMON,
    "agent join": DAEMON,
    "config history": DAEMON,
    "config rollback": DAEMON,
    "config set": DAEMON,
    "config show": DAEMON,
    "config unset": DAEMON,
    "demo": DAEMON,
    "doctor": DAEMON,
    "manager": DAEMON,
    "proxy join": DAEMON,
    "simulate": DAEMON,
    "up": DAEMON,
    "upgrade plan": DAEMON,
    "db backup": DATABASE,
    "db check": DATABASE,
    "db downgrade": DATABASE,
    "db recover": DATABASE,
    "db restore": DATABASE,
    "db rotate-secrets-key": DATABASE,
    "db upgrade": DATABASE,
    "db verify": DATABASE,
    "scheduler replay": DATABASE,
    "scheduler simulate": Outside("compares policies with files of its user"),
    "contexts add": CONTEXT,
    "contexts list": CONTEXT,
    "contexts remove": CONTEXT,
    "contexts use": CONTEXT,
    "version": CONTEXT,
    "bench": TERMINAL,
    "claude": TERMINAL,
    "codex": TERMINAL,
    "cp": Performed("sessions/NAME, Files", "drive_files.uploads"),
    "mcp": TERMINAL,
    "port-forward": TERMINAL,
    "ssh": TERMINAL,
    # Sessions
    "describe": Shown("sessions/NAME and endpoints/NAME"),
    "events": Outside("pages follow the events by themselves"),
    "exec": Performed("sessions/NAME, Terminal", "drive_changes.shell"),
    "extend": Performed("sessions/NAME", "forms_of_sessions.extend"),
    "label": Performed("sessions/NAME, Labels", "forms_of_sessions.page_of_a_session"),
    "logs": Shown("sessions/NAME, Log"),
    "open": Shown("sessions/NAME, Connect"),
    "plan": Performed("new-session, Dry run", "forms_of_sessions.form"),
    "ps": Shown("sessions"),
    "reload": Performed("sessions/NAME", "workload_pages.reloads"),
    "requeue": Performed("sessions/NAME, Requeue", "forms_of_sessions.changes"),
    "resume": Performed("sessions/NAME, Resume", "forms_of_sessions.changes"),
    "suspend": Performed("sessions/NAME, Suspend", "forms_of_sessions.changes"),
    "update": Performed("sessions/NAME, Change, Hold and Release", "forms_of_sessions.changes"),
    "rename": Performed("sessions/NAME", "forms_of_sessions.page_of_a_session"),
    "run": Outside("`start` is in the console; `run` follows the output in a terminal"),
    "sessions list": Shown("sessions"),
    "start": Performed("new-session", "forms_of_sessions.form"),
    "stop": Performed("sessions/NAME", "drive_parity.sessions"),
    "load": Performed("endpoints/NAME, Load over time", "drive_load.charts"),
    "top": Shown("sessions/NAME, Usage, and agents/NAME"),
    "why": Performed("sessions/NAME", "drive_console.see_it_wait"),
    "workspaces delete": Performed("workspaces", "drive_parity.workspaces"),
    "workspaces list": Performed("workspaces", "drive_parity.workspaces"),
    "notifications create": Performed("notifications", "drive_parity.notifications"),
    "notifications delete": Performed("notifications", "drive_parity.notifications"),
    "notifications list": Performed("notifications", "drive_parity.notifications"),
    "notifications log": Performed("notifications", "drive_parity.notifications"),
    "notifications rotate": Performed("notifications", "drive_parity.notifications"),
    "notifications test": Performed("notifications", "drive_parity.notifications"),
    "notifications update": Performed("notifications", "drive_parity.notifications"),
    "secrets delete": Performed("secrets", "drive_parity.secrets"),
    "secrets list": Performed("secrets", "drive_parity.secrets"),
    "secrets set": Performed("secrets", "drive_parity.secrets"),
    "tasks list": Performed("sessions/NAME, Tasks", "drive_parity.tasks"),
    "tasks logs": Performed("sessions/NAME, Tasks, Output", "drive_parity.tasks"),
    "tasks retry": Performed("sessions/NAME, Tasks, Retry", "drive_parity.tasks"),
    "templates delete": Performed("templates/NAME", "forms_of_templates.delete"),
    "templates describe": Performed("templates/NAME", "forms_of_templates.start"),
    "templates list": Performed("templates", "forms_of_templates.create"),
    "templates set": Performed(
        "new-template and templates/NAME, New version", "forms_of_templates.change"
    ),
    "templates versions": Shown("templates/NAME"),
    "pipelines describe": Performed("pipelines/NAME", "workload_pages.pipelines"),
    "pipelines list": Performed("pipelines", "workload_pages.pipelines"),
    "pipelines logs": Shown("pipelines/NAME: the failed step and its log"),
    "pipelines retry": Performed("pipelines/NAME", "workload_pages.pipelines"),
    "pipelines stop": Performed("pipelines/NAME", "workload_pages.pipelines"),
    "pipelines submit": Performed("new-pipeline", "forms_of_templates.pipelines"),
    "cron create": Performed("new-cron-job", "forms_of_cron_jobs.create"),
    "cron delete": Performed("cron-jobs/NAME", "forms_of_cron_jobs.run_and_delete"),
    "cron describe": Performed("cron-jobs/NAME", "forms_of_cron_jobs.run_and_delete"),
    "cron list": Performed("cron-jobs", "forms_of_cron_jobs.suspend"),
    "cron resume": Performed("cron-jobs/NAME", "forms_of_cron_jobs.suspend"),
    "cron suspend": Performed("cron-jobs/NAME", "forms_of_cron_jobs.suspend"),
    "cron trigger": Performed("cron-jobs/NAME", "forms_of_cron_jobs.run_and_delete"),
    "cron update": Performed("cron-jobs/NAME, Change", "forms_of_cron_jobs.change"),
    "apply": Outside("applies files of the user's own machine"),
    # Models
    "chat": Performed("endpoints/NAME, Try it", "drive_console.chat"),
    "endpoints list": Shown("endpoints"),
    "endpoints set": Performed("endpoints/NAME, Change", "forms_of_endpoints.change"),
    "models list": Performed("catalog", "forms_of_endpoints.catalog"),
    "models show": Performed("catalog, and new-endpoint", "forms_of_endpoints.catalog"),
    "rollout canary": Performed("endpoints/NAME, Canary share", "forms_of_rollouts.canary"),
    "rollout history": Performed("endpoints/NAME, Revisions", "drive_console.roll_out"),
    "rollout promote": Performed("endpoints/NAME, Promote", "forms_of_rollouts.promote"),
    "rollout status": Shown("endpoints/NAME"),
    "rollout undo": Performed("endpoints/NAME, Roll back", "forms_of_endpoints.roll_back"),
    "scale": Performed("endpoints/NAME, Scale", "forms_of_rollouts.scale"),
    "serve": Performed("new-endpoint", "forms_of_endpoints.create"),
    # Nodes
    "agents cordon": Performed("agents/NAME", "drive_parity.agents"),
    "agents describe": Performed("agents/NAME", "drive_parity.agents"),
    "agents drain": Performed("agents/NAME", "drive_parity.agents"),
    "agents forget": Performed("agents/NAME", "drive_parity.forget"),
    "agents load": Performed("agents/NAME, Load over time", "drive_load.charts"),
    "agents history": Shown("agents/NAME"),
    "agents list": Shown("agents"),
    "agents set": Performed("agents/NAME, Move", "drive_parity.agents"),
    "agents uncordon": Performed("agents/NAME", "drive_parity.agents"),
    "groups create": Performed("groups", "drive_parity.groups"),
    "groups delete": Performed("groups/NAME, Retire", "drive_changes.retire"),
    "groups describe": Performed("groups/NAME", "drive_parity.groups"),
    "groups forget": Performed("groups/NAME, Former names", "drive_parity.former_names"),
    "groups list": Performed("groups", "drive_parity.groups"),
    "groups rename": Performed("groups/NAME, Rename", "drive_changes.rename"),
    "groups set": Performed("groups/NAME, Edit", "drive_parity.groups"),
    "join-tokens create": Performed("connections", "drive_parity.join_tokens"),
    "join-tokens delete": Performed("connections", "drive_parity.connections"),
    "join-tokens list": Performed("connections", "drive_parity.connections"),
    "managers list": Performed("connections", "drive_parity.connections"),
    "peers list": Performed("connections", "drive_parity.connections"),
    "peers revoke": Performed("connections", "drive_parity.connections"),
    "peers rotate-ca": Performed("connections", "drive_parity.connections"),
    "scheduler log": Performed(
        "groups/NAME, Scheduler log, and sessions/NAME, Scheduling", "drive_parity.scheduler_log"
    ),
    # Access and operations
    "audit": Shown("audit"),
    "budgets delete": Performed("usage", "drive_parity.budgets"),
    "budgets list": Performed("usage", "drive_parity.budgets"),
    "budgets set": Performed("usage", "drive_parity.budgets"),
    "keys add-ssh": Performed("keys", "drive_console.register_ssh_key"),
    "keys create": Performed("keys", "drive_parity.keys"),
    "keys list": Performed("keys", "drive_parity.keys"),
    "keys list-ssh": Performed("keys", "drive_console.register_ssh_key"),
    "keys remove-ssh": Performed("keys", "drive_console.register_ssh_key"),
    "keys revoke": Performed("keys", "drive_parity.keys"),
    "keys rotate": Performed("keys", "drive_parity.keys"),
    "keys set": Performed("keys, Edit", "drive_parity.keys"),
    "limits list": Performed("quotas, Request limits", "drive_parity.limits"),
    "limits set": Performed("keys, Edit, and projects/NAME, Edit", "drive_parity.keys"),
    "prices list": Performed("prices", "drive_parity.prices"),
    "prices set": Performed("prices", "drive_parity.prices"),
    "projects archive": Performed("projects/NAME", "drive_parity.archives"),
    "projects create": Performed("projects", "drive_parity.projects"),
    "projects delete": Performed("projects/NAME", "drive_parity.deletions"),
    "projects list": Performed("projects", "drive_parity.projects"),
    "projects members delete": Performed("projects/NAME", "drive_parity.projects"),
    "projects members list": Performed("projects/NAME", "drive_parity.projects"),
    "projects members set": Performed("projects/NAME", "drive_parity.projects"),
    "projects restore": Performed("projects/NAME", "drive_parity.archives"),
    "projects set": Performed("projects/NAME, Edit", "drive_parity.projects"),
    "qos delete": Performed("quotas, Quality of service", "drive_parity.qos"),
    "qos describe": Performed("quotas, Quality of service", "drive_parity.qos"),
    "qos list": Performed("quotas, Quality of service", "drive_parity.qos"),
    "qos set": Performed("quotas, Quality of service", "drive_parity.qos"),
    "quotas delete": Performed("quotas", "drive_parity.quotas"),
    "quotas list": Performed("quotas", "drive_parity.quotas"),
    "quotas set": Performed("quotas", "drive_parity.quotas"),
    "usage": Shown("usage"),
    "users archive": Performed("users", "drive_parity.archives"),
    "users create": Performed("users", "drive_parity.users"),
    "users delete": Performed("users", "drive_parity.deletions"),
    "users list": Performed("users", "drive_parity.users"),
    "users passwd": Performed("users, Set password", "drive_parity.users"),
    "users restore": Performed("users", "drive_parity.archives"),
    "users set": Performed("users, Edit", "drive_parity.users"),
}
