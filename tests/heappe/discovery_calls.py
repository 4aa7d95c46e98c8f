"""ClusterInformation, UserAndLimitationManagement, Health and DryRunJob of the test server."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.heappe.call import Call, Endpoint
from tests.heappe.cluster import active
from tests.heappe.sessions import HEADER_AUTH_NEEDED
from tests.heappe.site import cluster_view, project_view, stamp
from tests.heappe.wire import Member, Problem, reply, require

if TYPE_CHECKING:
    from tests.heappe.server import HeappeServer

_SESSION = Member("SessionCode", str, 50)
_PASSWORD = (
    Member(
        "Credentials", dict, members=(Member("Username", str, 50), Member("Password", str, 100))
    ),
)
_TOKEN = (Member("Credentials", dict, members=(Member("OpenIdAccessToken", str),)),)
_DRY_RUN = (
    _SESSION, Member("ProjectId", int), Member("ClusterNodeTypeId", int), Member("Nodes", int),
    Member("TasksPerNode", int), Member("WallTimeInMinutes", int),
)  # fmt: skip
_TEMPLATE = (
    _SESSION,
    Member("CommandTemplateId", int),
    Member("ProjectId", int),
    Member("UserScriptPath", str),
)


class DiscoveryCalls:
    def __init__(self, server: HeappeServer) -> None:
        self._server = server
        self._clusters: dict[str, tuple[Any, Any]] = {}

    def endpoints(self) -> list[Endpoint]:
        users = "UserAndLimitationManagement/"
        clusters = "ClusterInformation/"
        return [
            Endpoint("GET", "Health", self.health),
            Endpoint("POST", users + "AuthenticateUserPassword", self.password, 148, _PASSWORD),
            Endpoint("POST", users + "AuthenticateLexisToken", self.token, 2048, _TOKEN),
            Endpoint("POST", users + "AuthenticateUserOpenId", self.token, 4096, _TOKEN),
            Endpoint("GET", users + "CurrentUserInfo", self.user),
            Endpoint("GET", users + "ProjectsForCurrentUser", self.projects),
            Endpoint("GET", users + "CurrentUsageAndLimitationsForCurrentUser", self.usage_of_user),
            Endpoint("GET", clusters + "ListAvailableClusters", self.clusters, 0),
            Endpoint("GET", clusters + "CurrentClusterNodeUsage", self.usage, 94),
            Endpoint(
                "POST",
                clusters + "RequestCommandTemplateParametersName",
                self.parameters,
                2_000,
                _TEMPLATE,
            ),
            Endpoint("POST", "JobManagement/DryRunJob", self.dry_run, 250_000, _DRY_RUN),
        ]

    def clear(self) -> None:
        self._clusters.clear()

    async def health(self, call: Call) -> web.Response:
        server = self._server
        now = server.clock.now() + timedelta(seconds=server.switches.clock_skew_s)
        vault = {
            "Initialized": True,
            "Sealed": False,
            "StandBy": False,
            "PerformanceStandby": False,
        }
        return reply(
            {
                "IsHealthy": True,
                "Timestamp": stamp(now, "Z"),
                "Version": "V6.3.2" if server.profile == "6.3.2" else "V6.5.0",
                "InstanceIdentifier": "bench",
                "Component": {
                    "Database": {"IsHealthy": True},
                    "Vault": {"IsHealthy": True, "Info": vault},
                },
            }
        )

    async def password(self, call: Call) -> web.Response:
        given = call.body.get("credentials") or {}
        name = given.get("username") or ""
        plain = name.replace("_", "").replace("-", "").replace(" ", "").replace(".", "")
        require(plain.isalnum() and plain.isascii(), "Username contains illegal characters.")
        return reply(self._server.sessions.login(name, given.get("password") or ""))

    async def token(self, call: Call) -> web.Response:
        if self._server.site.bearer:
            return reply(HEADER_AUTH_NEEDED)
        token = (call.body.get("credentials") or {}).get("openidaccesstoken") or ""
        user = self._server.site.user(token.removeprefix("jwt-"))
        if user is None:
            raise Problem("wrong-password", "The token is not valid.")
        return reply(self._server.sessions.code_for(user))

    async def user(self, call: Call) -> web.Response:
        user = call.user()
        site = self._server.site
        groups = [
            {
                "Id": project.id,
                "Name": project.accounting,
                "Description": "",
                "Project": project_view(site, project, self._server.clock.now()),
                "Roles": list(user.roles),
            }
            for project in site.projects
        ]
        return reply(
            {
                "Id": user.id,
                "Username": user.name,
                "PublicKey": None,
                "Email": f"{user.name}@example.org",
                "UserType": 1,
                "AdaptorUserGroups": groups,
            }
        )

    async def projects(self, call: Call) -> web.Response:
        user = call.user()
        site = self._server.site
        now = self._server.clock.now()
        return reply(
            [
                {
                    "Project": project_view(site, project, now),
                    "Role": {"Name": role, "Description": f"Role {role}"},
                }
                for project in site.projects
                for role in user.roles
            ]
        )

    async def usage_of_user(self, call: Call) -> web.Response:
        call.user()
        return reply([])

    async def clusters(self, call: Call) -> web.Response:
        server = self._server
        user = call.user()
        wanted = call.query.get("accountingstring", [])
        now = server.clock.now()
        filters = {
            name: value
            for name, value in call.query.items()
            if name not in ("sessioncode", "forcerefresh")
        }
        if server.switches.clusters_need_accounting and filters and not wanted:
            return reply([])

        key = f"{user.id} {sorted(filters.items())}"
        made, value = self._clusters.get(key, (None, None))
        fresh = made is not None and now - made < timedelta(seconds=server.timing.clusters_cache_s)
        if not fresh or call.first("forcerefresh").lower() == "true":
            name = call.first("clustername")
            value = [
                cluster_view(
                    server.site, cluster_id, now, server.switches.callback_cluster, wanted=wanted
                )
                for cluster_id, known in server.site.clusters.items()
                if name in ("", known)
            ]
            self._clusters[key] = (now, value)

        return reply(value)

    async def usage(self, call: Call) -> web.Response:
        server = self._server
        number = call.number("ClusterNodeId")
        server.sessions.require(call.user(), server.site.project(call.number("ProjectId")))
        server.ssh()
        kind = server.site.node_type(number)
        require(kind, f"Node type '{number}' does not exist.")
        tasks = [
            task
            for job in server.database.jobs.values()
            for task in job.tasks
            if task.node_type == kind
        ]
        here = {task.scheduler_id for task in tasks}
        used = [job for job in active(server.cluster.jobs) if job.scheduler_id in here]

        return reply(
            {
                "Id": kind.id,
                "Name": kind.name,
                "Description": f"Node type {kind.name}",
                "Priority": 0,
                "CoresPerNode": kind.cores,
                "MaxWalltime": kind.max_walltime_s,
                "NumberOfNodes": kind.nodes,
                "NumberOfUsedNodes": sum(len(job.nodes) for job in used),
                "TotalJobs": len(used),
            }
        )

    async def parameters(self, call: Call) -> web.Response:
        server = self._server
        server.sessions.require(call.user(), server.site.project(call.body.get("projectid") or 0))
        template = server.site.template(call.body.get("commandtemplateid") or 0)
        require(template, "Command template does not exist.")
        return reply(list(template.parameters))

    async def dry_run(self, call: Call) -> web.Response:
        server = self._server
        body = call.body
        server.sessions.require(call.user(), server.site.project(body.get("projectid") or 0))
        for name in ("Nodes", "TasksPerNode", "WallTimeInMinutes"):
            require((body.get(name.lower()) or 0) > 0, f"{name} must be greater than 0.")

        server.ssh()
        kind = server.site.node_type(body.get("clusternodetypeid") or 0)
        require(kind, "Node type does not exist.")

        if server.switches.dry_run_unparsable:
            answer = {"JobId": 0, "StartTime": "0001-01-01T00:00:00", "Processors": 0, "Node": None,
                      "Partition": None, "Message": "allocation failure: node not available"}  # fmt: skip
            return reply(answer)

        start = server.clock.now() + timedelta(seconds=server.queue_estimate_s)
        return reply(
            {
                "JobId": 1,
                "StartTime": server.views.time(start),
                "Processors": body["nodes"] * kind.cores,
                "Node": "cn001",
                "Partition": kind.queue,
                "Message": "",
            }
        )
