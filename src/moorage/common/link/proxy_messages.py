"""Messages of a proxy's link to a manager: load, usage in numbered batches, and shares of
limits."""

from __future__ import annotations

from dataclasses import dataclass

from moorage.common.model.ids import SessionId


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """``failing_s``: for how long it has failed everybody who asked; 0: it does not. ``answers``:
    it has answered within the last seconds."""

    session_id: SessionId
    in_flight: int = 0  # requests sent to it and not answered in full, streams included
    failing_s: float = 0.0
    answers: bool = False


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """Load of one model at one proxy: the sum over its workers. State, not events; a lost one costs
    only time."""

    model: str  # ModelRoute.name
    in_flight: int = 0  # with a replica
    waiting: int = 0  # held by the proxy: no replica is ready, or all are full
    requests: int = 0  # counter since the start of the proxy process, never reset
    # since the last request began or ended, at sending; 0 while in_flight or waiting
    idle_s: float = 0.0
    first_token_ms: int | None = None  # p90 over the requests of the last minute; None: no request
    replicas: tuple[
        ReplicaLoad, ...
    ] = ()  # those with in_flight > 0, draining ones included, or with results


@dataclass(frozen=True, slots=True)
class LoadReport:
    """Proxy → manager. ``incarnation``: random per start of the proxy process.
    ``routes_generation``: of the table that the proxy picked by when it took this report.
    ``whole``: all models with a request since the start of the proxy, as in the first report on
    each stream; else: those that changed since the last. ``apps``: sessions whose apps have open
    connections, or had traffic since the last report. ``tells_apps``: False for a proxy of a
    release that does not fill ``apps``."""

    proxy_id: str
    incarnation: str
    routes_generation: int
    models: tuple[ModelLoad, ...]
    whole: bool = False
    apps: tuple[str, ...] = ()
    tells_apps: bool = False


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """What requests used in an interval (unix milliseconds), summed by key, model and replica.
    ``sequence``: its number within its epoch, from 1. ``tokens_cached``: those of ``tokens_in``
    that a cache had. ``session_id``: of the replica, "" if none had the requests."""

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
    """The batch of ``epoch`` whose last record has this number is stored."""

    epoch: str
    sequence: int


@dataclass(frozen=True, slots=True)
class LimitNeed:
    """What a proxy has used of the limits of a subject in the last minute, what it wants in the
    next, and its share now."""

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
    """How much of the limits of a subject one proxy may grant in any minute, and at one time."""

    subject: str
    requests: int = 0
    tokens: int = 0
    concurrent: int = 0


@dataclass(frozen=True, slots=True)
class ProxyReport:
    """Proxy → manager. ``dialout``: where agents reach it that only dial out; empty: nowhere.
    ``unreached``: addresses in its table that do not answer. A proxy of the previous release also
    names agents that dial out and whose own address answers."""

    proxy_id: str = ""
    load: LoadReport | None = None
    usage: tuple[UsageBatch, ...] = ()
    needs: tuple[LimitNeed, ...] = ()
    dialout: str = ""
    unreached: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProxyReply:
    """Manager → proxy. ``proxies``: how many are connected to any manager; 0: not said.
    ``managers``: the addresses of all; empty: not said. ``manager``: of the one to go to, where
    this one has more proxies than its share; empty: stay."""

    acks: tuple[RecordsAck, ...] = ()
    shares: tuple[LimitShare, ...] = ()
    proxies: int = 0
    managers: tuple[str, ...] = ()
    manager: str = ""
