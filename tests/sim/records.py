"""The simulation's records, which its triggers keep beside the managers' tables."""

from __future__ import annotations

from .ledger_truth import RECORD_CHANGES
from .pipeline_truth import RECORD_STEPS

# The virtual time of every transition and every contact with an agent, in addition to the
# database's timestamps.
RECORD_TIMES = """
CREATE TABLE sim.moves (session_id uuid, revision int, time float8, PRIMARY KEY (session_id, revision));
CREATE FUNCTION sim.record_time() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.moves
    VALUES (NEW.session_id, NEW.revision, pg_catalog.current_setting('sim.time')::float8);
    RETURN NEW; END $$;
CREATE TRIGGER record_time AFTER INSERT ON session_history FOR EACH ROW EXECUTE FUNCTION sim.record_time();
CREATE TABLE sim.contacts (agent_id text PRIMARY KEY, time float8);
CREATE TABLE sim.losses (agent_id text, silent_s float8);
CREATE FUNCTION sim.record_contact() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.contacts VALUES (NEW.id, pg_catalog.current_setting('sim.time')::float8)
    ON CONFLICT (agent_id) DO UPDATE SET time = excluded.time;
    RETURN NEW; END $$;
CREATE TRIGGER record_contact AFTER INSERT OR UPDATE OF last_seen ON agents
    FOR EACH ROW EXECUTE FUNCTION sim.record_contact();
CREATE FUNCTION sim.record_loss() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.losses SELECT agent_id, pg_catalog.current_setting('sim.time')::float8 - time
    FROM sim.contacts WHERE agent_id = NEW.id;
    RETURN NEW; END $$;
CREATE TRIGGER record_loss AFTER UPDATE OF status ON agents FOR EACH ROW
    WHEN (NEW.status = 'LOST' AND OLD.status <> 'LOST' AND NEW.incarnation <> '')
    EXECUTE FUNCTION sim.record_loss();
CREATE TABLE sim.misplaced (kernel_id uuid, agent_id text, state text);
CREATE FUNCTION sim.record_place() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sim.misplaced SELECT NEW.id, id, CASE WHEN status <> 'ALIVE' THEN 'is ' || status
        WHEN draining THEN 'is draining' WHEN NOT ready THEN 'is not ready' ELSE 'has no connection' END
    FROM agents WHERE id = NEW.agent_id
      AND (status <> 'ALIVE' OR draining OR NOT ready OR detached_stream IS NOT DISTINCT FROM stream);
    RETURN NEW; END $$;
CREATE TRIGGER record_place AFTER UPDATE OF status ON kernels FOR EACH ROW
    WHEN (NEW.status = 'SCHEDULED' AND OLD.status = 'PENDING') EXECUTE FUNCTION sim.record_place();
"""
TRIGGERS = RECORD_TIMES + RECORD_CHANGES + RECORD_STEPS
# Restored with a backup.
KEPT = ("sim.moves", "sim.changes", "sim.steps")
RECORDED = (*KEPT, "sim.contacts", "sim.losses", "sim.misplaced", "sim.placed")
