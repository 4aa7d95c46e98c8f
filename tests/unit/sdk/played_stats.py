"""What the played manager says that is used."""

from typing import Any

from aiohttp import web
from played import BORN

from moorage.common.model.status import AgentStatus, Status
from moorage.common.views.resources import Page
from moorage.common.views.usage import (
    AgentStats,
    DeviceStats,
    KernelStats,
    LatestUsage,
    SessionStats,
    SessionUsage,
)

GIB = 1024**3
USED = LatestUsage(at=BORN, cpu=1500, memory=2 * GIB, rx=2048, tx=1024, gpu=750, gpu_memory=40 * GIB)


def routes(manager: Any) -> list[web.RouteDef]:
    async def session(request: web.Request) -> web.Response:
        view = manager._session(request).view()
        kernels = [
            KernelStats(
                id=k.id,
                hostname=k.hostname,
                attempt=k.attempt,
                status=k.status,
                agent_id=k.agent_id,
                latest=USED,
            )
            for k in view.kernels
        ]
        return _shown(
            SessionStats(id=view.id, name=view.name, status=view.status, slots=view.slots, kernels=kernels)
        )

    async def agent(request: web.Request) -> web.Response:
        return _shown(_agent(request.match_info["id"], 2000))

    async def sessions(request: web.Request) -> web.Response:
        views = [one.view() for one in manager.sessions.values()]
        running = [view for view in views if view.status is Status.RUNNING]
        found = [
            SessionUsage(
                id=view.id,
                name=view.name,
                type=view.type,
                status=view.status,
                resource_group=view.resource_group,
                user="ada",
                agents=["agent-1"],
                slots={"cpu": 3000, "mem": 8 * GIB},
                created_at=BORN,
                latest=USED,
            )
            for view in running
        ]
        return _shown(Page[SessionUsage](items=found[: int(request.query["limit"])]))

    async def agents(request: web.Request) -> web.Response:
        return _shown(Page[AgentStats](items=[_agent("agent-1", 1000), _agent("agent-2", 3000)]))

    return [
        web.get("/v1/sessions/{ref}/stats", session),
        web.get("/v1/agents/{id}/stats", agent),
        web.get("/v1/stats/sessions", sessions),
        web.get("/v1/stats/agents", agents),
    ]


def _agent(name: str, cpu: int) -> AgentStats:
    device = DeviceStats(
        device_id=f"GPU-{name}",
        slot="cuda.device",
        model="H100",
        memory_bytes=80 * GIB,
        memory=20 * GIB,
        gpu=420,
        temperature=55,
        power=70_000,
    )
    return AgentStats(
        id=name,
        status=AgentStatus.ALIVE,
        resource_group="default",
        at=BORN,
        cpu=cpu,
        memory=4 * GIB,
        offered_cpu=4000,
        offered_memory=16 * GIB,
        devices=[device],
    )


def _shown(model: Any) -> web.Response:
    return web.Response(text=model.model_dump_json(), content_type="application/json")
