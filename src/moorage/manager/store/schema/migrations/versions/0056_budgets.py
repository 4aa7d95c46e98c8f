"""Prices of the units of the ledger, and budgets.

Money is in millionths. A price is that of an hour (gpu, cpu, node), of a GiB for an hour (memory),
or of a million (requests, tokens), from a full hour on. Of those that apply, the one for the
resource group comes first, then the one for the device, then the newest.
"""

from alembic import op

revision = "0056"
down_revision = "0055"
branch_labels = None
depends_on = None

UNITS = "'gpu', 'cpu', 'memory', 'node', 'requests', 'tokens_in', 'tokens_out', 'tokens_cached'"
PRICES = f"""
CREATE TABLE prices (
    unit           text NOT NULL CHECK (unit IN ({UNITS})),
    device         text NOT NULL,
    resource_group text NOT NULL,
    since          timestamptz NOT NULL CHECK (since = date_trunc('hour', since, 'UTC')),
    price          bigint NOT NULL CHECK (price >= 0),
    changed_at     timestamptz NOT NULL DEFAULT now(),
    changed_by     text NOT NULL,
    PRIMARY KEY (unit, device, resource_group, since)
)
"""
BUDGETS = """
CREATE TABLE budgets (
    scope       text NOT NULL CHECK (scope IN ('project', 'user', 'key')),
    name        text NOT NULL,
    unit        text NOT NULL CHECK (unit IN
        ('gpu', 'cpu', 'memory', 'node', 'requests', 'tokens', 'tokens_in', 'tokens_out', 'money')),
    period      text NOT NULL CHECK (period IN ('day', 'week', 'month', 'year')),
    soft        bigint CHECK (soft >= 0),
    hard        bigint CHECK (hard >= 0),
    policy      text NOT NULL CHECK (policy IN ('continue', 'stop')),
    used        bigint NOT NULL DEFAULT 0,
    level       text NOT NULL DEFAULT 'ok' CHECK (level IN ('ok', 'soft', 'hard')),
    resets_at   timestamptz NOT NULL,
    measured_at timestamptz,
    changed_at  timestamptz NOT NULL DEFAULT now(),
    changed_by  text NOT NULL,
    PRIMARY KEY (scope, name, unit, period),
    CHECK (coalesce(soft, hard) IS NOT NULL AND coalesce(soft <= hard, true))
)
"""
PRICE = """
CREATE FUNCTION ledger_price(u text, d text, g text, t timestamptz) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((
        SELECT p.price FROM prices p
        WHERE p.unit = u AND p.device IN ('', d) AND p.resource_group IN ('', g) AND p.since <= t
        ORDER BY p.resource_group <> '' DESC, p.device <> '' DESC, p.since DESC LIMIT 1), 0)
$$
"""
# Of 1 / 2,304,000,000 of what a price is for, which all units have in common: so costs are added up
# exactly.
WEIGHT = """
CREATE FUNCTION ledger_weight(u text) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN u IN ('gpu', 'cpu', 'node') THEN 640 WHEN u = 'memory' THEN 625 ELSE 2304 END::numeric
$$
"""


def upgrade() -> None:
    for statement in (PRICES, BUDGETS, PRICE, WEIGHT):
        op.execute(statement)
