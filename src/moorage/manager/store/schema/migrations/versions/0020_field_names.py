"""Rename tables, columns and stored values to the terms of the field.

``link_members`` are renamed to peers, ``permits`` to access tokens, and reruns to requeues. The
codes of reasons, events and results follow Slurm and Kubernetes. Segments of the decision log in
format 1 hold the old codes inside compressed text. They are deleted, as retention would do within a
week.
"""

from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

REASONS = {
    "no-capacity": "insufficient-resources",
    "never-fits": "infeasible",
    "no-agent": "no-eligible-agent",
    "starts-later": "begin-time",
    "retry-pause": "backoff",
    "docker-away": "runtime-unavailable",
}
EVENTS = {"rerun": "requeue", "ended-badly": "failed"}

RENAMES = """
ALTER TABLE link_members RENAME TO link_peers
ALTER TABLE link_peers RENAME CONSTRAINT link_members_pkey TO link_peers_pkey
ALTER TABLE link_peers RENAME CONSTRAINT link_members_kind_check TO link_peers_kind_check
ALTER TABLE link_peers RENAME CONSTRAINT link_members_token_id_fkey TO link_peers_token_id_fkey
ALTER INDEX one_live_member_per_name RENAME TO one_live_peer_per_name
ALTER INDEX members_by_token RENAME TO peers_by_token
ALTER TABLE permits RENAME TO access_tokens
ALTER TABLE access_tokens RENAME CONSTRAINT permits_pkey TO access_tokens_pkey
ALTER TABLE access_tokens RENAME CONSTRAINT permits_sha256_key TO access_tokens_sha256_key
ALTER TABLE access_tokens RENAME CONSTRAINT permits_sha256_check TO access_tokens_sha256_check
ALTER TABLE access_tokens RENAME CONSTRAINT permits_session_id_fkey TO access_tokens_session_id_fkey
ALTER TABLE access_tokens RENAME CONSTRAINT permits_end TO access_tokens_end
ALTER INDEX permits_by_session RENAME TO access_tokens_by_session
ALTER TABLE sessions RENAME COLUMN reruns TO requeues
ALTER TABLE sessions RENAME COLUMN rerun_from TO requeued_from
ALTER TABLE sessions DROP CONSTRAINT sessions_result_check
UPDATE sessions SET result = 'FAILED' WHERE result = 'FAILURE'
ALTER TABLE sessions ADD CONSTRAINT sessions_result_check CHECK (result IN ('UNDEFINED', 'SUCCESS', 'FAILED'))
ALTER TABLE agent_slots RENAME COLUMN trouble TO unhealthy_reason
ALTER TABLE agent_slots RENAME COLUMN island TO nvlink_domain
ALTER TABLE idempotency_keys RENAME COLUMN asked TO request_digest
ALTER TABLE idempotency_keys RENAME CONSTRAINT idempotency_keys_asked_check TO request_digest_is_sha256
ALTER FUNCTION waiting_now(text[], text[]) RENAME TO lock_pending_quotas
DELETE FROM decisions WHERE format = 1
""".strip().splitlines()


DEPENDENCY_STATE = """
CREATE OR REPLACE FUNCTION dependency_state(condition text, status text, result text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE
        WHEN status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR') THEN 'unmet'
        WHEN condition = 'any' THEN 'met'
        WHEN condition = 'success' AND result = 'SUCCESS' THEN 'met'
        WHEN condition = 'failure' AND (result = 'FAILED' OR status = 'ERROR') THEN 'met'
        ELSE 'failed' END
$$
"""


def _case(column: str, values: dict[str, str]) -> str:
    whens = " ".join(f"WHEN '{old}' THEN '{new}'" for old, new in values.items())
    listed = ", ".join(f"'{old}'" for old in values)
    return f"{column} = CASE {column} {whens} END WHERE {column} IN ({listed})"


def upgrade() -> None:
    for statement in RENAMES:
        op.execute(statement)
    for table in ("sessions", "kernels", "session_history"):
        op.execute(f"UPDATE {table} SET {_case('reason', REASONS)}")
    op.execute(f"UPDATE session_history SET {_case('event', EVENTS)}")
    op.execute(DEPENDENCY_STATE)
    for old, new in REASONS.items():
        renamed = f"""jsonb_set(hold, '{{reason}}', '"{new}"')"""
        op.execute(f"UPDATE sessions SET hold = {renamed} WHERE hold ->> 'reason' = '{old}'")
