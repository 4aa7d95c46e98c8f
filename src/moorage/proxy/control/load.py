"""A proxy's load, for the manager: which models are requested, and how busy their replicas are."""

from __future__ import annotations

from moorage.common.link.messages import ModelRoute
from moorage.common.link.proxy_messages import LoadReport, ModelLoad, ReplicaLoad
from moorage.proxy.core.limits.reservation import RequestLimiter
from moorage.proxy.core.request_router import RequestRouter

# A difference only in ``idle_s`` is not a change, because that value always grows.
_Seen = tuple[tuple[int, ...], int | None, tuple[ReplicaLoad, ...]]


class LoadMeter:
    """The meter. ``name``: this worker's name, unique among all workers of all proxies.
    ``incarnation``: identifies this run."""

    def __init__(
        self, router: RequestRouter, limiter: RequestLimiter, name: str, incarnation: str
    ) -> None:
        self._router = router
        self._limiter = limiter
        self._name = name
        self._incarnation = incarnation
        self._seen: dict[str, _Seen] = {}
        self._changing: set[str] = set()  # models whose load may change without a request

    @property
    def waiting(self) -> frozenset[str]:
        """Models with requests that wait for a replica."""
        return frozenset(self._router.held)

    @property
    def drained(self) -> frozenset[str]:
        """Draining replicas without requests."""
        table = self._router.table
        in_flight = self._router.in_flight
        if table is None:
            return frozenset()
        return frozenset(kernel_id for kernel_id in table.draining if not in_flight.get(kernel_id))

    def read(self, now: float, *, whole: bool) -> LoadReport | None:
        """The models whose load has changed since the last call, or all; None if there is nothing
        to report."""
        router = self._router
        table = self._router.table
        if table is None:
            return None

        activity = self._limiter.activity
        touched = activity.take_touched()
        names = set(activity.models) if whole else touched | self._changing | held_or_busy(router)
        self._changing = set()
        models = []
        for name in names:
            if (of_model := activity.models.get(name)) is None:
                continue

            route = table.model(name)
            if route is None and name not in held_or_busy(router):
                del activity.models[name]  # the endpoint is gone
                (busy, waiting, *_), *_ = self._seen.pop(name, ((0, 0), None, ()))
                if busy or waiting:
                    # The manager keeps the last report, even for the next endpoint with this name.
                    models.append(
                        ModelLoad(
                            name,
                            0,
                            waiting=0,
                            requests=of_model.requests,
                            idle_s=max(0.0, now - of_model.last),
                            first_token_ms=None,
                        )
                    )

                continue

            replicas = self._replicas(route, now)
            busy = router.in_flight_by_model.get(name, 0)
            waiting = router.held.get(name, 0)
            first_token_ms = of_model.first_token_ms(now)
            is_failing = any(replica.failing_s for replica in replicas)
            if busy or waiting or is_failing or first_token_ms is not None:
                self._changing.add(name)

            errors = router.metrics.errors(name)
            counts = (busy, waiting, of_model.requests, errors)
            tokens = (of_model.tokens_in, of_model.tokens_out)
            seen: _Seen = ((*counts, *tokens), first_token_ms, replicas)
            if whole or self._seen.get(name) != seen:
                self._seen[name] = seen
                idle_s = 0.0 if busy or waiting else max(0.0, now - of_model.last)
                models.append(
                    ModelLoad(
                        name,
                        busy,
                        waiting=waiting,
                        requests=of_model.requests,
                        idle_s=idle_s,
                        first_token_ms=first_token_ms,
                        replicas=replicas,
                        errors=errors,
                        tokens_in=of_model.tokens_in,
                        tokens_out=of_model.tokens_out,
                    )
                )

        if not (models or whole or router.apps.touched):
            return None

        return self._report(table.generation, tuple(models), whole=whole)

    def _replicas(self, route: ModelRoute | None, now: float) -> tuple[ReplicaLoad, ...]:
        """The replicas that have requests, and those with information from recent ones."""
        found = []
        answering = self._router.answering
        for target in route.targets if route is not None else ():
            kernel_id = target.kernel_id
            since = answering.failing_since(kernel_id)

            # At least a whole second, so that requests that have just started are included.
            failing_s = 0.0 if since is None else max(1.0, float(round(now - since)))
            replica = ReplicaLoad(
                target.session_id,
                self._router.in_flight.get(kernel_id, 0),
                failing_s,
                answering.has_answered(kernel_id, now),
            )
            if replica.in_flight or replica.failing_s or replica.answers:
                found.append(replica)

        return tuple(found)

    def heartbeat(self) -> LoadReport | None:
        """A report without models, which shows that this worker exists and uses this table."""
        table = self._router.table
        return None if table is None else self._report(table.generation, ())

    def _report(
        self, generation: int, models: tuple[ModelLoad, ...], *, whole: bool = False
    ) -> LoadReport:
        apps = self._router.apps.take(whole=whole)
        return LoadReport(
            self._name,
            self._incarnation,
            routes_generation=generation,
            models=models,
            whole=whole,
            apps=apps,
            tells_apps=True,
        )


def held_or_busy(router: RequestRouter) -> set[str]:
    return router.held.keys() | router.in_flight_by_model.keys()
