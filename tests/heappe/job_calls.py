"""JobManagement of the test server."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.heappe.call import Call, Endpoint
from tests.heappe.cluster import Refused, Submission
from tests.heappe.database import (
    BY_POLL,
    BY_USER,
    CANCELED,
    CONFIGURING,
    DELETED,
    ENDED,
    NAMES,
    RUNNING,
    SUBMITTED,
    WAITING,
    Job,
    Task,
)  # fmt: skip
from tests.heappe.site import User
from tests.heappe.tunnels import EmptyError
from tests.heappe.wire import NAME, BindingFailed, Member, Problem, reply, require

if TYPE_CHECKING:
    from tests.heappe.server import HeappeServer

_VARIABLES = Member(
    "EnvironmentVariables", list, members=(Member("Name", str, 50), Member("Value", str, 100))
)
_TASK = (
    Member("Name", str, 50), Member("MinCores", int), Member("MaxCores", int), Member("WalltimeLimit", int),
    Member("Priority", int), Member("ProgressFile", str, 50), Member("LogFile", str, 50),
    Member("StandardOutputFile", str, 30), Member("StandardErrorFile", str, 30),
    Member("ClusterTaskSubdirectory", str, 50), Member("ClusterNodeTypeId", int),
    Member("CommandTemplateId", int),
    Member("TemplateParameterValues", list,
           members=(Member("CommandParameterIdentifier", str, 20), Member("ParameterValue", str, 1000))),
    _VARIABLES, Member("IsExclusive", bool), Member("IsRerunnable", bool), Member("CpuHyperThreading", bool),
)  # fmt: skip
_JOB = Member("JobSpecification", dict, members=(
    Member("Name", str, 50), Member("ProjectId", int), Member("SubProjectIdentifier", str, 50),
    Member("WaitingLimit", int), Member("ClusterId", int), Member("FileTransferMethodId", int),
    Member("IsExtraLong", bool), Member("NotificationEmail", str, 50), Member("PhoneNumber", str, 20),
    _VARIABLES, Member("Tasks", list, members=_TASK), Member("Reservation", str, 1000),
))  # fmt: skip
_SESSION = Member("SessionCode", str, 50)
_CREATED = Member("CreatedJobInfoId", int)
_SUBMITTED = Member("SubmittedJobInfoId", int)


class JobCalls:
    def __init__(self, server: HeappeServer) -> None:
        self._server = server

    def endpoints(self) -> list[Endpoint]:
        at = "JobManagement/"
        id_and_code = (_SESSION, _SUBMITTED)
        return [
            Endpoint("POST", at + "CreateJob", self.create, 250_000, (_SESSION, _JOB)),
            Endpoint("PUT", at + "SubmitJob", self.submit, 94, (_SESSION, _CREATED)),
            Endpoint("PUT", at + "CancelJob", self.cancel, 98, id_and_code),
            Endpoint(
                "DELETE",
                at + "DeleteJob",
                self.delete,
                120,
                (*id_and_code, Member("ArchiveLogs", bool)),
            ),
            Endpoint("GET", at + "CurrentInfoForJob", self.info, 98),
            Endpoint("GET", at + "ListJobsForCurrentUser", self.list, 60),
            Endpoint("GET", at + "AllocatedNodesIPs", self.addresses, 98),
        ]

    def job(self, number: int) -> Job:
        job = self._server.database.jobs.get(number)
        if job is None:  # before authentication, so for any caller
            raise Problem("validation", f"Submitted job info with ID '{number}' does not exist.")
        return job

    def _own(self, call: Call, number: int) -> tuple[Job, User]:
        job = self.job(number)
        user = call.user()
        self._server.sessions.require(user, job.project)
        if job.owner != user:
            raise Problem("not-yours", f"User is not authorised to work with the job '{job.id}'.")
        return job, user

    async def create(self, call: Call) -> web.Response:
        server = self._server
        given = call.body.get("jobspecification")
        if not isinstance(given, dict):
            raise BindingFailed({"JobSpecification": ["The JobSpecification field is required."]})

        user = call.user()
        tasks = self._validated(given, user)
        if server.switches.create_slow_s:
            await asyncio.sleep(server.switches.create_slow_s)

        server.ssh()
        now = server.clock.now()
        number = server.database.next_job
        server.database.next_job += 1
        directory = server.root / str(number)
        project = server.site.project(given["projectid"])
        job = Job(
            number,
            given["name"],
            owner=user,
            project=project,
            tasks=[],
            directory=directory,
            waiting_limit_s=given.get("waitinglimit") or 0,
        )
        job.sub_project = given.get("subprojectidentifier")
        job.created = now
        job.updated = now
        job.source = BY_USER
        for task in tasks:
            job.tasks.append(self._task(job, task))

        server.database.jobs[number] = job
        if server.switches.take("create_leaves_row"):
            if server.profile == "6.5":
                del server.database.jobs[number]
            raise Problem("ssh", "Cannot create the job directory.")

        return reply(server.views.job(job, now, fresh=True))

    def _task(self, job: Job, given: dict[str, Any]) -> Task:
        server = self._server
        number = server.database.next_task
        server.database.next_task = server.database.next_task + 1
        template = server.site.template(given["commandtemplateid"])
        kind = server.site.node_type(given["clusternodetypeid"])
        values = {
            value.get("commandparameteridentifier"): value.get("parametervalue") or ""
            for value in given.get("templateparametervalues") or []
        }
        directory = job.directory / str(number)
        directory.mkdir(parents=True)
        directory.chmod(0o777)
        cores = given.get("maxcores") or given.get("mincores") or 1
        spec = Submission(
            job.name, given["name"], given["walltimelimit"], -(-cores // kind.cores), kind.queue,
            template.command, tuple(values.get(name, "") for name in template.parameters), directory,
            given.get("standardoutputfile") or "stdout.txt", given.get("standarderrorfile") or "stderr.txt",
            given["progressfile"],
        )  # fmt: skip
        task = Task(
            number,
            spec,
            template=template,
            node_type=kind,
            project=job.project,
            log=given["logfile"],
        )
        task.priority = given["priority"] if given.get("priority") is not None else 4

        return task

    def _validated(self, given: dict[str, Any], user: User) -> list[dict[str, Any]]:
        server = self._server
        name = given.get("name") or ""
        require(NAME.fullmatch(name), "Name contains illegal characters or is not set.")
        require((given.get("projectid") or 0) > 0, "ProjectId is not set.")
        server.sessions.require(user, server.site.project(given["projectid"]))
        require(
            given.get("clusterid") in server.site.clusters,
            f"Cluster '{given.get('clusterid')}' does not exist.",
        )
        if given.get("filetransfermethodid") is None:
            raise Problem("problem", "Nullable object must have a value.")

        require((given.get("waitinglimit") or 0) >= 0, "WaitingLimit must not be negative.")
        tasks: list[dict[str, Any]] = given.get("tasks") or []
        require(tasks, "Each job has to contain at least one task.")
        for task in tasks:
            self._validate_task(task, given["filetransfermethodid"], given["clusterid"])

        return tasks

    def _validate_task(self, task: dict[str, Any], file_transfer: int, cluster_id: int) -> None:
        server = self._server
        require(
            NAME.fullmatch(task.get("name") or ""),
            "Task Name contains illegal characters or is not set.",
        )
        if server.profile == "6.3.2" or task.get("maxcores") is not None:
            require((task.get("maxcores") or 0) > 0, "MaxCores is not set.")

        for member in ("ProgressFile", "LogFile"):
            require(task.get(member.lower()), f"{member} is not set.")

        require((task.get("walltimelimit") or 0) > 0, "WalltimeLimit is not set.")
        require(0 <= (task.get("priority") or 0) <= 8, "Priority is out of range.")
        if task.get("clusternodetypeid") is None:
            raise Problem("problem", "Nullable object must have a value.")

        kind = server.site.node_type(task["clusternodetypeid"])
        require(kind, f"Node type '{task['clusternodetypeid']}' does not exist.")
        require(
            (kind.cluster_id or server.site.cluster_id) == cluster_id,
            "Node type is not of this cluster.",
        )
        require(
            task["walltimelimit"] <= kind.max_walltime_s,
            "WalltimeLimit exceeds the node type's MaxWalltime.",
        )
        require(
            file_transfer == server.site.file_transfer,
            "FileTransferMethodId does not fit the node type.",
        )
        template = server.site.template(task.get("commandtemplateid") or 0)
        require(template, f"Command template '{task.get('commandtemplateid')}' does not exist.")
        require(template.node_type == kind.id, "Command template is not for this node type.")
        values = [
            v.get("commandparameteridentifier") for v in task.get("templateparametervalues") or []
        ]
        if set(values) - set(template.parameters):
            raise Problem("problem", "Sequence contains no matching element")

        require(set(template.parameters) <= set(values), "A template parameter has no value.")

    async def submit(self, call: Call) -> web.Response:
        server = self._server
        switches = self._server.switches
        job, _ = self._own(call, call.body.get("createdjobinfoid") or 0)
        if job.state not in (CONFIGURING, WAITING):
            detail = f"Submitting job '{job.id}' is not in the configuring state."
            raise Problem("validation", detail, code="SubmittingJobNotInConfiguringState")
        if any(not task.template.enabled for task in job.tasks):
            raise Problem("state", "Command template is not enabled.")
        if switches.account_busy:
            job.state = WAITING
            return reply(server.views.job(job, server.clock.now()))

        server.ssh()
        if switches.submit_refused:
            raise Problem("slurm", switches.submit_refused)

        ids = await self.place(job)
        if switches.take("submit_doubled"):
            ids = await self.place(job)

        if switches.take("submit_lost"):
            # HEAppE saves the row only after sbatch and scontrol have both succeeded, so it stays
            # Configuring.
            match switches.submit_lost_as:
                case "slurm":
                    raise Problem("slurm", "sbatch: warning: Invalid output of the submission.")
                case "ssh-command":
                    raise Problem("ssh-command", "The command has failed.")
                case _:
                    raise EmptyError

        await self.accepted(job, ids)
        return reply(server.views.job(job, server.clock.now()))

    async def place(self, job: Job) -> list[str]:
        server = self._server
        now = self._server.clock.now()
        if len(job.tasks) > 1 and server.profile == "6.3.2":
            for task in job.tasks:
                await server.cluster.submit(task.spec, now)
            raise Problem("state", "ErrorCombiningJobInfoFromCluster")

        try:
            return [await server.cluster.submit(task.spec, now) for task in job.tasks]
        except Refused as refused:
            raise Problem("slurm", str(refused)) from refused

    async def accepted(self, job: Job, ids: list[str]) -> None:
        server = self._server
        now = self._server.clock.now()
        job.submitted = now
        job.state = SUBMITTED
        for task, scheduler_id in zip(job.tasks, ids, strict=True):
            task.scheduler_id = scheduler_id
            task.state = SUBMITTED
        server.database.copy(job, server.truths(), now, BY_USER)
        server.forget_cached(job.id)

    async def cancel(self, call: Call) -> web.Response:
        server = self._server
        job, _ = self._own(call, call.body.get("submittedjobinfoid") or 0)
        now = server.clock.now()

        if job.state in ENDED:
            raise Problem(
                "state", f"Cannot cancel job '{job.id}', this job is in state '{NAMES[job.state]}'."
            )

        if job.state in (CONFIGURING, WAITING):
            unsaved = server.switches.cancel_unsaved
            if server.profile == "6.3.2" if unsaved is None else unsaved:
                return reply(server.views.job(job, now) | {"State": CANCELED})

            server.database.cancel(job, now)
        else:
            server.ssh()
            for task in job.tasks:
                try:
                    await server.cluster.cancel(task.scheduler_id, now)
                except Refused as refused:
                    raise Problem("slurm", str(refused)) from refused

            await server.cluster.settle(now)
            server.database.copy(job, server.truths(), now, BY_USER)

        server.forget_cached(job.id)
        return reply(server.views.job(job, now))

    async def delete(self, call: Call) -> web.Response:
        server = self._server
        job, _ = self._own(call, call.body.get("submittedjobinfoid") or 0)
        if job.state not in ENDED | {CONFIGURING} or job.state == DELETED:
            raise Problem(
                "state", f"Cannot delete job '{job.id}', this job is in state '{NAMES[job.state]}'."
            )

        server.ssh()
        job.state = DELETED
        server.remove_directory(job.directory)
        server.forget_cached(job.id)

        return reply("Job was deleted")

    async def info(self, call: Call) -> web.Response:
        server = self._server
        number = call.number("SubmittedJobInfoId")
        job = self.job(number)
        user = call.user()
        server.sessions.require(user, job.project)
        if job.owner != user and not server.sessions.sees_everybody(user):
            raise Problem("not-yours", f"User is not authorised to work with the job '{job.id}'.")

        if server.switches.ssh_ca or server.switches.live_info:
            server.ssh()
            server.database.copy(job, server.truths(), server.clock.now(), BY_USER)
            return reply(server.views.job(job, server.clock.now()))

        return reply(
            server.cached(("job", job.id), lambda: server.views.job(job, server.clock.now()))
        )

    async def list(self, call: Call) -> web.Response:
        server = self._server
        user = call.user()
        text = call.first("jobstates")
        if text and not re.fullmatch(r"\d+(,\d+)*", text):
            raise Problem("problem", "Input string was not in a correct format.")

        states = {int(part) for part in text.split(",")} if text else None
        jobs = [job for job in server.database.jobs.values() if job.state != DELETED]
        paged = server.profile == "6.5"
        everybody = server.switches.everybody_for_manager
        everybody = (paged if everybody is None else everybody) and server.sessions.sees_everybody(
            user
        )
        wanted_user = call.number("UserId") if paged else 0
        if wanted_user or not everybody:
            jobs = [job for job in jobs if job.owner.id == (wanted_user or user.id)]
            if wanted_user != user.id and not everybody:
                jobs = [job for job in jobs if job.owner == user]

        if states is not None:
            jobs = [job for job in jobs if job.state in states]

        if paged:
            if project := call.number("ProjectId"):
                jobs = [job for job in jobs if job.project.id == project]
            if sub := call.first("subprojectidentifier"):
                jobs = [job for job in jobs if job.sub_project == sub]

            jobs.sort(key=lambda job: -job.id)
            start = call.number("Offset")
            jobs = (
                jobs[start : start + call.number("Limit")] if call.first("limit") else jobs[start:]
            )

        now = server.clock.now()
        key = ("list", user.id, str(sorted(call.query.items())))
        return reply(server.cached(key, lambda: [server.views.job(job, now) for job in jobs]))

    async def addresses(self, call: Call) -> web.Response:
        server = self._server
        found = server.database.task(call.number("SubmittedTaskInfoId"))
        if found is None:
            raise Problem(
                "validation", "Submitted task info does not exist.", code="NotExistingTaskInfo"
            )

        job, task = found
        user = call.user()
        server.sessions.require(user, job.project)

        if task.state != RUNNING:
            raise Problem(
                "validation", "Allocated nodes IP addresses are provided only for running task."
            )

        server.ssh()
        server.tunnels.last_use = server.clock.now()
        names = server.switches.node_names
        return reply(list(task.addresses) if names is None else names)

    async def rotate(self) -> None:
        """The service that submits jobs that waited for a service account."""
        server = self._server
        for job in [job for job in server.database.jobs.values() if job.state == WAITING]:
            if not server.switches.account_busy and not server.in_trouble():
                await self.accepted(job, await self.place(job))

    async def expire_waiting(self) -> None:
        server = self._server
        now = self._server.clock.now()
        for job in server.database.overdue_waiting(now):
            for task in job.tasks:
                await server.cluster.cancel(task.scheduler_id, now)
            server.database.copy(job, server.truths(), now, BY_POLL)
