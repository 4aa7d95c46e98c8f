"""A kernel is charged once, also when its devices have other names by then; amounts that fit into a
bigint.

The unique key of the ledger has the model of the device. A kernel of a lost agent was charged under
the model of that time, and again, for its devices alone, when the agent came back with another name
for them, as after an update of a driver.
"""

from alembic import op

revision = "0061"
down_revision = "0060"
branch_labels = None
depends_on = None

CHARGE = """
CREATE OR REPLACE FUNCTION ledger_charge(
    kernel uuid, session uuid, job boolean, began timestamptz, until timestamptz
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO ledger (kernel_id, unit, device, rate, amount, began_at, ended_at,
                        project, username, key_id, model, endpoint, session_id, resource_group)
    SELECT kernel, r.unit, r.device, r.rate, r.rate * extract(epoch FROM t.ended - t.began)::bigint,
           t.began, t.ended, p.project, p.username, p.key_id, p.model, p.endpoint, p.session_id,
           p.resource_group
    FROM (SELECT date_trunc('second', $4, 'UTC') AS began,
                 greatest(date_trunc('second', $4, 'UTC'), date_trunc('second', $5, 'UTC')) AS ended) t,
         ledger_rates($1, $3) r, ledger_payer($2) p
    WHERE NOT EXISTS (SELECT FROM ledger l WHERE l.kernel_id = $1)
    ON CONFLICT ON CONSTRAINT ledger_kernel_id_unit_device_key DO NOTHING;
END $$
"""
BOUNDED = """
CREATE FUNCTION ledger_bounded(amount numeric) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT least(greatest(amount, -9223372036854775807), 9223372036854775807)::bigint
$$
"""


def upgrade() -> None:
    op.execute(CHARGE)
    op.execute(BOUNDED)
