"""The ledger of what kernels used: rows that triggers append when a kernel ends.

A kernel is charged once: ``(kernel_id, unit, device)`` is unique, and whichever statement ends the
kernel, the row is written in its transaction. Times are cut to seconds, so that an amount is a
whole number, and so is each part of it in an hour or a month. A kernel is charged

* from its first RUNNING to its end, by the clock of the database;
* up to the last contact of its agent, if the agent was silent when the kernel or its attempt ended,
  or came back without the kernel;
* as a job of a site: from when the site started it to the end of its walltime at most, which pass
  without its agent.

``ledger_months``: what the records of a month, of the ledger and of ``usage_hours``, add up to.
"""

from alembic import op

revision = "0055"
down_revision = "0054"
branch_labels = None
depends_on = None

UNITS = "'gpu', 'cpu', 'memory', 'node', 'requests', 'tokens_in', 'tokens_out', 'tokens_cached'"
KERNELS = "ALTER TABLE kernels ADD COLUMN running_at timestamptz"
AGENTS = "ALTER TABLE agents ADD COLUMN seen_before timestamptz, ADD COLUMN back_at timestamptz"
LEDGER = f"""
CREATE TABLE ledger (
    id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kernel_id      uuid,
    unit           text NOT NULL CHECK (unit IN ({UNITS})),
    device         text NOT NULL,
    rate           bigint NOT NULL,
    amount         bigint NOT NULL,
    began_at       timestamptz NOT NULL CHECK (began_at = date_trunc('second', began_at, 'UTC')),
    ended_at       timestamptz NOT NULL CHECK (ended_at = date_trunc('second', ended_at, 'UTC')),
    project        text NOT NULL,
    username       text NOT NULL,
    key_id         text NOT NULL,
    model          text NOT NULL,
    endpoint       text NOT NULL,
    session_id     text NOT NULL,
    resource_group text NOT NULL,
    reason         text NOT NULL DEFAULT '',
    actor          text NOT NULL DEFAULT '',
    at             timestamptz NOT NULL DEFAULT now(),
    UNIQUE (kernel_id, unit, device),
    CONSTRAINT ledger_amount CHECK (ended_at >= began_at AND CASE WHEN kernel_id IS NULL
        THEN reason <> '' AND rate = 0 AND began_at = ended_at
        ELSE reason = '' AND rate >= 0
             AND amount = rate * extract(epoch FROM ended_at - began_at)::bigint END)
)
"""
MONTHS = f"""
CREATE TABLE ledger_months (
    at             timestamptz NOT NULL CHECK (at = date_trunc('month', at, 'UTC')),
    project        text NOT NULL,
    username       text NOT NULL,
    key_id         text NOT NULL,
    model          text NOT NULL,
    endpoint       text NOT NULL,
    resource_group text NOT NULL,
    unit           text NOT NULL CHECK (unit IN ({UNITS})),
    device         text NOT NULL,
    amount         numeric NOT NULL CHECK (amount = trunc(amount)),
    PRIMARY KEY (at, project, username, key_id, model, endpoint, resource_group, unit, device)
)
"""
INDEXES = """
CREATE INDEX ledger_by_time ON ledger (ended_at);
CREATE INDEX api_keys_by_name ON api_keys (name);
"""
STAY = """
CREATE FUNCTION ledger_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'records of the ledger are never changed; a correction is a record of its own';
END $$
"""
# What a kernel uses: thousandths of GPUs, cpus and nodes, and MiB of memory.
RATES = """
CREATE FUNCTION ledger_rates(kernel uuid, job boolean) RETURNS TABLE (unit text, device text, rate bigint)
LANGUAGE sql STABLE AS $$
    SELECT CASE a.slot WHEN 'cpu' THEN 'cpu' WHEN 'mem' THEN 'memory' ELSE 'gpu' END,
           CASE WHEN a.slot IN ('cpu', 'mem') THEN '' ELSE coalesce(g.model, '') END,
           sum(CASE a.slot WHEN 'mem' THEN (a.amount + 1048575) / 1048576 ELSE a.amount END)::bigint
    FROM allocations a LEFT JOIN agent_slots g USING (agent_id, slot, device_id)
    WHERE a.kernel_id = kernel AND a.slot <> 'jobs' GROUP BY 1, 2
    UNION ALL SELECT 'node', '', 1000 WHERE job
$$
"""
# Who pays for a session.
PAYERS = """
CREATE FUNCTION ledger_payer(session uuid) RETURNS TABLE
    (project text, username text, key_id text, model text, endpoint text, session_id text,
     resource_group text)
LANGUAGE sql STABLE AS $$
    SELECT s.project, s.owner, coalesce((
               SELECT k.id::text FROM api_keys k
               WHERE k.name = substr(coalesce(e.created_by, s.created_by), 5)
               AND coalesce(e.created_by, s.created_by) LIKE 'key:%' AND k.created_at <= s.created_at
               ORDER BY k.created_at DESC LIMIT 1), ''),
           coalesce(e.name, ''), coalesce(e.name, ''), s.id::text, s.resource_group
    FROM sessions s LEFT JOIN endpoints e ON e.id = s.endpoint_id WHERE s.id = session
$$
"""
CHARGE = """
CREATE FUNCTION ledger_charge(kernel uuid, session uuid, job boolean, began timestamptz, until timestamptz)
RETURNS void LANGUAGE sql AS $$
    INSERT INTO ledger (kernel_id, unit, device, rate, amount, began_at, ended_at,
                        project, username, key_id, model, endpoint, session_id, resource_group)
    SELECT kernel, r.unit, r.device, r.rate, r.rate * extract(epoch FROM t.ended - t.began)::bigint,
           t.began, t.ended, p.project, p.username, p.key_id, p.model, p.endpoint, p.session_id,
           p.resource_group
    FROM (SELECT date_trunc('second', began, 'UTC') AS began,
                 greatest(date_trunc('second', began, 'UTC'), date_trunc('second', until, 'UTC')) AS ended) t,
         ledger_rates(kernel, job) r, ledger_payer(session) p
    ON CONFLICT (kernel_id, unit, device) DO NOTHING
$$
"""
RUNNING = """
CREATE FUNCTION kernels_note_running() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.running_at := now();
    RETURN NEW;
END $$
"""
ENDED = """
CREATE FUNCTION kernels_charge() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ledger_charge(
        NEW.id, NEW.session_id, NEW.started_at IS NOT NULL, coalesce(NEW.started_at, NEW.running_at),
        CASE WHEN NEW.started_at IS NOT NULL THEN least(now(), NEW.ends_at)
             WHEN a.status <> 'ALIVE' THEN a.last_seen
             WHEN NEW.observed = 'GONE' AND a.back_at > now() - interval '10 seconds' THEN a.seen_before
             ELSE now() END)
    FROM agents a WHERE a.id = NEW.agent_id;
    RETURN NULL;
END $$
"""
# The attempt is over while its agent is silent: what its kernels do from now on is nobody's.
LEFT = """
CREATE FUNCTION sessions_charge_lost() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ledger_charge(k.id, k.session_id, false, k.running_at, a.last_seen)
    FROM kernels k JOIN agents a ON a.id = k.agent_id
    WHERE k.session_id = NEW.id AND k.attempt = OLD.attempt
      AND k.started_at IS NULL AND k.running_at IS NOT NULL
      AND k.status NOT IN ('TERMINATED', 'CANCELLED', 'ERROR') AND a.status <> 'ALIVE';
    RETURN NULL;
END $$
"""
BACK = """
CREATE FUNCTION agents_note_return() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.seen_before := OLD.last_seen;
    NEW.back_at := now();
    RETURN NEW;
END $$
"""
_ENDED = "('TERMINATED', 'CANCELLED', 'ERROR')"
TRIGGERS = f"""
CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger FOR EACH STATEMENT EXECUTE FUNCTION ledger_stays();
CREATE TRIGGER kernels_note_running BEFORE UPDATE OF status ON kernels FOR EACH ROW
    WHEN (NEW.status = 'RUNNING' AND OLD.running_at IS NULL) EXECUTE FUNCTION kernels_note_running();
CREATE TRIGGER kernels_charge AFTER UPDATE OF status ON kernels FOR EACH ROW
    WHEN (NEW.status IN {_ENDED} AND OLD.status NOT IN {_ENDED}
          AND (NEW.running_at IS NOT NULL OR NEW.started_at IS NOT NULL))
    EXECUTE FUNCTION kernels_charge();
CREATE TRIGGER sessions_charge_lost AFTER UPDATE OF status, attempt ON sessions FOR EACH ROW
    WHEN (OLD.status IN ('RUNNING', 'TERMINATING', 'CREATING')
          AND (NEW.status IN {_ENDED} OR NEW.attempt <> OLD.attempt))
    EXECUTE FUNCTION sessions_charge_lost();
CREATE TRIGGER agents_note_return BEFORE UPDATE OF status ON agents FOR EACH ROW
    WHEN (NEW.status = 'ALIVE' AND OLD.status <> 'ALIVE') EXECUTE FUNCTION agents_note_return()
"""
# What runs now began when its session was ready, as far as that is known.
PRESENT = """
UPDATE kernels k SET running_at = greatest(s.ready_at, CASE WHEN k.status = 'RUNNING' THEN k.status_since END)
FROM sessions s WHERE s.id = k.session_id AND s.attempt = k.attempt AND k.status IN ('RUNNING', 'TERMINATING')
"""


def upgrade() -> None:
    parts = [
        KERNELS,
        AGENTS,
        LEDGER,
        MONTHS,
        *INDEXES.strip().split("\n"),
        STAY,
        RATES,
        PAYERS,
        CHARGE,
    ]
    parts += [RUNNING, ENDED, LEFT, BACK, *TRIGGERS.split(";\n"), PRESENT]
    for statement in parts:
        op.execute(statement)
