-- A run of a cron job has started: the statement that creates its session, or the first session of
-- its pipeline, writes an idempotency key with the id of the run. Raises unique_violation, like the
-- key itself, if the run has already started or been refused, so a run never starts twice.
CREATE OR REPLACE FUNCTION cron_run_started()
RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    job uuid;
BEGIN
    UPDATE cron_runs SET state = 'pending', session_id = NEW.session_id,
        pipeline_id = (SELECT p.pipeline_id FROM pipeline_steps p
                       WHERE p.session_id = NEW.session_id)
    WHERE id = NEW.key::uuid AND state = 'starting' RETURNING cron_job INTO job;
    IF job IS NULL THEN
        RAISE unique_violation
            USING MESSAGE = format('run %s of a cron job has already started or ended', NEW.key);
    END IF;
    UPDATE cron_jobs SET refusals = 0 WHERE id = job AND refusals > 0;
    RETURN NEW;
END
$$;
