"""The same as ``codec.py`` for what proxies are told."""

from __future__ import annotations

from moorage.common.link import messages as m
from moorage.common.link.codec import read_protocol
from moorage.common.link.pb import routes_pb2 as r
from moorage.common.model.ids import KernelId, SessionId


def routes_to_wire(table: m.RouteTable) -> r.RouteTable:
    return r.RouteTable(
        generation=table.generation,
        models=[
            r.ModelRoute(
                name=model.name,
                created=model.created,
                targets=[
                    r.Target(
                        session_id=t.session_id,
                        kernel_id=t.kernel_id,
                        host=t.host,
                        port=t.port,
                        key=t.key,
                        engine=t.engine,
                        draining=t.draining,
                    )
                    for t in model.targets
                ],
            )
            for model in table.models
        ],
        keys=[
            r.KeyGrant(
                sha256=k.sha256, expires_at=k.expires_at, user=k.user, project=k.project, admin=k.admin
            )
            for k in table.keys
        ],
        apps=[
            r.AppRoute(
                session_id=app.session_id,
                app=app.app,
                protocol=app.protocol,
                base_path=app.base_path,
                host=app.host,
                port=app.port,
                key=app.key,
                user=app.user,
                project=app.project,
            )
            for app in table.apps
        ],
        access_tokens=[
            r.AccessTokenGrant(sha256=p.sha256, session_id=p.session_id, app=p.app, expires_at=p.expires_at)
            for p in table.access_tokens
        ],
    )


def routes_from_wire(wire: r.RouteTable) -> m.RouteTable:
    return m.RouteTable(
        generation=wire.generation,
        models=tuple(
            m.ModelRoute(
                model.name,
                model.created,
                tuple(
                    m.Target(
                        SessionId(t.session_id),
                        KernelId(t.kernel_id),
                        t.host,
                        t.port,
                        t.key,
                        t.engine,
                        t.draining,
                    )
                    for t in model.targets
                ),
            )
            for model in wire.models
        ),
        keys=tuple(m.KeyGrant(k.sha256, k.expires_at, k.user, k.project, k.admin) for k in wire.keys),
        apps=tuple(
            m.AppRoute(
                SessionId(app.session_id),
                app.app,
                read_protocol(app.protocol),
                app.base_path,
                app.host,
                app.port,
                app.key,
                app.user,
                app.project,
            )
            for app in wire.apps
        ),
        access_tokens=tuple(
            m.AccessTokenGrant(p.sha256, SessionId(p.session_id), p.app, p.expires_at)
            for p in wire.access_tokens
        ),
    )
