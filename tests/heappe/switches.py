"""Switches of the test server: each turns one trap of HEAppE on or off while the server runs.

A number counts down: the trap catches that many calls. ``README.md`` lists all of them with the
pitfall or correction that they represent; ``test_server.py`` keeps the list and this class in step.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Switches:
    # Submit, create, cancel.
    submit_refused: str = ""
    submit_lost: int = 0
    submit_lost_as: str = "slurm"
    submit_doubled: int = 0
    create_leaves_row: int = 0
    create_slow_s: float = 0.0
    account_busy: bool = False
    cancel_unsaved: bool | None = None
    cancelled_reads: int = 32
    # The database's view of the cluster.
    ssh_ca: bool = False
    live_info: bool = False
    callback_cluster: bool = False
    callbacks_lost: bool = False
    cache_survives_writes: bool = False
    false_failed: int = 0
    # Sessions.
    sessions_expire: int = 0
    # Tunnels and calls through them.
    tunnels_die: int = 0
    other_user_closes: int = 0
    ports_taken: int = 0
    node_names: list[str] | None = None
    stream_split: int = 0
    stream_cut_after: int = -1
    stream_error_after: int = -1
    stream_error: str = "ResponseNotOk"
    # Discovery and times.
    clusters_need_accounting: bool = False
    linux_local: bool = False
    dry_run_unparsable: bool = False
    local_times: bool | None = None
    times_with_offset: bool = False
    clock_skew_s: float = 0.0
    everybody_for_manager: bool | None = None
    # Sites in trouble.
    maintenance: bool = False
    slurm_down: bool = False
    pool_full: int = 0
    rate_limited: int = 0
    account_uninitialised: bool = False
    gateway_html: int = 0
    gateway_status: int = 502
    resets: int = 0
    hangs: int = 0
    empty_500: int = 0
    answers_lost: int = 0
    only: str = ""
    stream_idle_cut_s: float = 0.0

    def take(self, name: str) -> bool:
        """Whether the counted trap ``name`` catches this call."""
        left: int = getattr(self, name)
        if left > 0:
            setattr(self, name, left - 1)
        return left > 0
