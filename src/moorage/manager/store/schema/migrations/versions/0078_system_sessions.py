"""System sessions: no devices, a quota of their own, idle criteria, and a price of 0 unless one is
set.

The ledger says `system` where other sessions have no device, and only a price that names it
applies.
"""

from alembic import op

revision = "0078"
down_revision = "0077"
branch_labels = None
depends_on = None

_RUNNING = "type IN ('interactive', 'system') AND status = 'RUNNING'"
RATES = """
CREATE OR REPLACE FUNCTION ledger_rates(kernel uuid, job boolean) RETURNS TABLE
    (unit text, device text, rate bigint)
LANGUAGE sql STABLE AS $$
    SELECT CASE a.slot WHEN 'cpu' THEN 'cpu' WHEN 'mem' THEN 'memory' ELSE 'gpu' END,
           CASE WHEN a.slot NOT IN ('cpu', 'mem') THEN coalesce(g.model, '')
                WHEN (SELECT s.type FROM kernels k JOIN sessions s ON s.id = k.session_id
                      WHERE k.id = kernel) = 'system' THEN 'system' ELSE '' END,
           sum(CASE a.slot WHEN 'mem' THEN (a.amount + 1048575) / 1048576 ELSE a.amount END)::bigint
    FROM allocations a LEFT JOIN agent_slots g USING (agent_id, slot, device_id)
    WHERE a.kernel_id = kernel AND a.slot <> 'jobs' GROUP BY 1, 2
    UNION ALL SELECT 'node', '', 1000 WHERE job
$$
"""
PRICE = """
CREATE OR REPLACE FUNCTION ledger_price(u text, d text, g text, t timestamptz) RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT p.price FROM prices p
        WHERE p.unit = u
          AND (p.device = d OR (p.device = '' AND NOT (u IN ('cpu', 'memory') AND d = 'system')))
          AND p.resource_group IN ('', g) AND p.since <= t
        ORDER BY p.resource_group <> '' DESC, p.device <> '' DESC, p.since DESC LIMIT 1), 0)
$$
"""


def upgrade() -> None:
    op.execute(
        "ALTER TABLE sessions DROP CONSTRAINT sessions_type_check, "
        "ADD CONSTRAINT sessions_type_check "
        "CHECK (type = ANY (ARRAY['interactive', 'batch', 'inference', 'system'])) NOT VALID, "
        "ADD CONSTRAINT system_sessions_hold_no_devices CHECK (type <> 'system' OR NOT "
        "jsonb_path_exists(slots, '$.keyvalue() ? (@.key like_regex \"[.]\" && @.value > 0)')) "
        "NOT VALID"
    )
    op.execute("ALTER TABLE sessions VALIDATE CONSTRAINT sessions_type_check")
    op.execute("ALTER TABLE sessions VALIDATE CONSTRAINT system_sessions_hold_no_devices")
    op.execute("ALTER TABLE quotas ADD COLUMN system_sessions integer CHECK (system_sessions >= 0)")
    op.execute("DROP INDEX sessions_interactive")
    op.execute("DROP INDEX sessions_with_idle")
    op.execute(f"CREATE INDEX sessions_interactive ON sessions (resource_group) WHERE {_RUNNING}")
    op.execute(
        f"CREATE INDEX sessions_with_idle ON sessions (id) WHERE {_RUNNING} AND spec ? 'idle'"
    )
    op.execute(RATES)
    op.execute(PRICE)
    op.execute("DROP TRIGGER quotas_take_version ON quotas")
    op.execute(
        "CREATE TRIGGER quotas_take_version BEFORE UPDATE OF slots, sessions, pending, "
        "node_seconds, "
        "system_sessions ON quotas FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) "
        "EXECUTE FUNCTION take_version()"
    )
