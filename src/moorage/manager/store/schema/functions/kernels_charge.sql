-- Charges a kernel from its first RUNNING to its end, by the clock of the database. If its agent
-- was silent, or came back without the kernel, the charge ends with the agent's last contact. A job
-- of a site is charged from when the site started it to the end of its walltime at most.
CREATE OR REPLACE FUNCTION kernels_charge()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM ledger_charge(
        NEW.id, NEW.session_id, NEW.started_at IS NOT NULL,
        coalesce(NEW.started_at, NEW.running_at),
        CASE WHEN NEW.started_at IS NOT NULL THEN least(now(), NEW.ends_at)
             WHEN a.status <> 'ALIVE' THEN a.last_seen
             WHEN NEW.observed = 'GONE' AND a.back_at > now() - interval '10 seconds'
             THEN a.seen_before
             ELSE now() END)
    FROM agents a WHERE a.id = NEW.agent_id;
    RETURN NULL;
END
$$;
