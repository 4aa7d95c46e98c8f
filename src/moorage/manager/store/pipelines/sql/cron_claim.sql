-- Decide about the runs of a cron job ($1) that are due: record the run that starts or is skipped
-- ($6 id, $7 scheduled time, $8 state, $9 reason; NULL: none) and those that were missed ($10 id,
-- $11 first, $12 last, $13 count; NULL: none), and when the next one is due ($5). Nothing happens
-- unless the cron job is as it was read ($2 number of runs, $3 when the next was due) and, with $4,
-- under that term of the leader. A run by hand ($3 NULL) leaves the next time as it is.
--
-- `added`: the run is new. It is not if the database's clock was set back and its time comes again.
WITH lease AS (
    SELECT FROM leases WHERE name = 'leader' AND term = $4 AND expires_at > now() FOR SHARE
), job AS (
    UPDATE cron_jobs SET
        runs = runs + 1, next_at = CASE WHEN $3::timestamptz IS NULL THEN next_at ELSE $5 END,
        planned_at = CASE WHEN $3::timestamptz IS NULL THEN planned_at ELSE now() END
    WHERE id = $1 AND runs = $2 AND ($3::timestamptz IS NULL OR next_at = $3)
      AND ($4::bigint IS NULL OR EXISTS (SELECT FROM lease))
    RETURNING id, trimmed_to
), missed AS (
    INSERT INTO cron_runs (id, cron_job, scheduled_at, state, missed, missed_to, created_by)
    SELECT $10::uuid, id, $11::timestamptz, 'missed', $13::int, $12::timestamptz, $14
    FROM job WHERE $10::uuid IS NOT NULL
    ON CONFLICT (cron_job, scheduled_at) DO NOTHING
), run AS (
    INSERT INTO cron_runs (id, cron_job, scheduled_at, state, reason, by_hand, created_by)
    SELECT $6::uuid, id, $7::timestamptz, $8, $9, $3::timestamptz IS NULL, $14
    FROM job
    WHERE $6::uuid IS NOT NULL
      AND ($3::timestamptz IS NULL OR trimmed_to IS NULL OR trimmed_to < $7)
    ON CONFLICT (cron_job, scheduled_at) DO NOTHING
    RETURNING id
)
SELECT EXISTS (SELECT FROM run) AS added FROM job
