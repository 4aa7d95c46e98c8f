"""Messages on a proxy's link to a manager: load, usage in numbered batches, and shares of
limits."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.ids import KernelId, SessionId


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """``failing_s``: how long it has failed all requests; 0 if it is not failing. ``answers``: it
    has answered within the last few seconds."""

    session_id: SessionId
    in_flight: int = 0  # requests sent to it and not completely answered, including streams
    failing_s: float = 0.0
    answers: bool = False


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """Load of one model on one proxy: the sum over its workers. It describes state, not events, so
    a lost message costs only time."""

    model: str  # ModelRoute.name
    in_flight: int = 0  # sent to a replica
    waiting: int = 0  # held by the proxy: no replica is ready, or all are full
    requests: int = 0  # counter since the start of the proxy process, never reset
    # from the last start or end of a request until the message is sent; 0 while in_flight or
    # waiting
    idle_s: float = 0.0
    # p90 over the last minute's requests; None if there were none
    first_token_ms: int | None = None
    replicas: tuple[
        ReplicaLoad, ...
    ] = ()  # replicas with in_flight > 0, including draining ones, or with results
    # counters like requests: responses with a status of 500 or more; tokens, 0 without metering
    errors: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Proxy → manager. ``incarnation``: a random value, new at each start of the proxy process.
    ``routes_generation``: generation of the table that the proxy used when it made this report.
    ``whole``: the report contains all models with a request since the proxy's start, as the first
    report on each stream does; otherwise it contains only those that changed since the last report.
    ``apps``: sessions whose apps have open connections, or had traffic since the last report.
    ``tells_apps``: False for a proxy whose release does not fill ``apps``."""

    proxy_id: str
    incarnation: str
    routes_generation: int
    models: tuple[ModelLoad, ...]
    whole: bool = False
    apps: tuple[str, ...] = ()
    tells_apps: bool = False


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """Usage of requests in an interval (Unix milliseconds), summed by key, model and replica.
    ``sequence``: its number within its epoch, from 1. ``tokens_cached``: the part of ``tokens_in``
    found in a cache. ``session_id``: the replica's session, "" if no replica received the
    requests."""

    sequence: int
    began_ms: int
    ended_ms: int
    project: str
    user: str
    key_id: str
    model: str
    requests: int
    tokens_in: int
    tokens_out: int
    tokens_cached: int
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class UsageBatch:
    """Records with consecutive numbers. ``epoch``: one run of one worker of a proxy."""

    epoch: str
    records: tuple[UsageRecord, ...]


@dataclass(frozen=True, slots=True)
class RecordsAck:
    """Acknowledges that the batch of ``epoch`` whose last record has this number has been
    stored."""

    epoch: str
    sequence: int


@dataclass(frozen=True, slots=True)
class LimitNeed:
    """A proxy's use of a subject's limits in the last minute, its demand for the next minute, and
    its current share."""

    subject: str
    limit_requests: int = 0
    limit_tokens: int = 0
    limit_concurrent: int = 0
    used_requests: int = 0
    used_tokens: int = 0
    used_concurrent: int = 0
    wanted_requests: int = 0
    wanted_tokens: int = 0
    wanted_concurrent: int = 0
    held_requests: int = 0
    held_tokens: int = 0
    held_concurrent: int = 0


@dataclass(frozen=True, slots=True)
class LimitShare:
    """Part of a subject's limits that one proxy may grant in any minute, and concurrently."""

    subject: str
    requests: int = 0
    tokens: int = 0
    concurrent: int = 0


@dataclass(frozen=True, slots=True)
class ProxyReport:
    """Proxy → manager. ``dialout``: address for agents that only dial out; empty if none.
    ``unreached``: addresses in its table that do not answer. A proxy of the previous release also
    names agents that dial out and whose own address answers."""

    proxy_id: str = ""
    load: LoadReport | None = None
    usage: tuple[UsageBatch, ...] = ()
    needs: tuple[LimitNeed, ...] = ()
    dialout: str = ""
    unreached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EngineRequests:
    """Requests in one engine, as it counts them. ``kv_cache``: use of its KV cache in 1/1000; None
    if it does not report it."""

    kernel_id: KernelId
    running: int
    waiting: int
    kv_cache: int | None = None


@dataclass(frozen=True, slots=True)
class ProxyReply:
    """Manager → proxy. ``proxies``: number of proxies connected to any manager; 0 if unknown.
    ``managers``: the addresses of all managers; empty if unknown. ``manager``: address of the
    manager to switch to if this one has more proxies than its share; empty means stay.
    ``engines``: the loads of engines that may have changed since the last reply with any."""

    acks: tuple[RecordsAck, ...] = ()
    shares: tuple[LimitShare, ...] = ()
    proxies: int = 0
    managers: tuple[str, ...] = ()
    manager: str = ""
    engines: tuple[EngineRequests, ...] = ()
