-- name: cron_job_create
-- No row: the project has a cron job of this name.
INSERT INTO cron_jobs (id, name, project, owner, granted_role, spec, next_at, created_by)
VALUES ($1, $2, $3, $4, $5, $6::text::jsonb, $7, $8)
ON CONFLICT (project, name) DO NOTHING RETURNING id

-- name: cron_job_update
-- $6: the versions that it may have now (NULL: any). A suspended cron job stays suspended.
UPDATE cron_jobs SET spec = $2::text::jsonb, planned_at = now(),
    next_at = CASE WHEN suspended THEN NULL ELSE $3::timestamptz END, owner = $4, granted_role = $5
WHERE id = $1 AND ($6::bigint[] IS NULL OR version = ANY ($6)) RETURNING id

-- name: cron_job_suspend
-- $2: suspended, or when the next run is due ($3). Runs that are due meanwhile are not missed.
UPDATE cron_jobs SET suspended = $2, planned_at = now(),
    next_at = CASE WHEN $2 THEN NULL ELSE $3::timestamptz END
WHERE id = $1 AND suspended <> $2 RETURNING id

-- name: cron_job_delete
DELETE FROM cron_jobs WHERE id = $1 RETURNING id

-- name: cron_job_now
SELECT now() AS now

-- name: cron_job_list
-- Cron jobs of projects ($1; NULL: all), or the one with an id ($2) or a name ($3), that of the
-- caller's project ($4) first.
SELECT j.id, j.name, j.project, j.owner, j.granted_role, j.spec::text AS spec, j.suspended,
       j.next_at, j.runs, j.refusals, j.trimmed_to, j.created_at, j.created_by, j.version
FROM cron_jobs j
WHERE ($1::text[] IS NULL OR j.project = ANY ($1))
  AND ($3::text IS NULL OR j.id = $2::uuid OR j.name = $3)
ORDER BY (j.id = $2::uuid) IS TRUE DESC, j.project = $4 DESC

-- name: cron_run_newest
-- The newest run of each of these cron jobs ($1).
SELECT r.* FROM unnest($1::uuid[]) AS i(cron_job) CROSS JOIN LATERAL (
    SELECT id FROM cron_runs WHERE cron_job = i.cron_job
    ORDER BY scheduled_at DESC LIMIT 1) newest
JOIN LATERAL (
-- include: cron_run
    WHERE r.id = newest.id) r ON true

-- name: cron_run_list
-- Runs of a cron job ($1), or all runs from $2 to $3 of cron jobs of projects ($4; NULL: all).
SELECT * FROM (
-- include: cron_run
WHERE ($1::uuid IS NULL OR r.cron_job = $1)
  AND ($2::timestamptz IS NULL OR r.scheduled_at >= $2)
  AND ($3::timestamptz IS NULL OR r.scheduled_at < $3)
  AND ($4::text[] IS NULL OR r.cron_job IN (SELECT id FROM cron_jobs WHERE project = ANY ($4)))
) runs

-- name: cron_due
-- Cron jobs with a run that is due, the longest overdue first, with the database's time.
SELECT j.id, j.name, j.project, j.owner, j.granted_role, j.spec::text AS spec, j.suspended,
       j.next_at, j.runs, j.refusals, j.trimmed_to, j.created_at, j.created_by, j.version,
       now() AS now
FROM cron_jobs j WHERE j.next_at <= now() ORDER BY j.next_at LIMIT $1

-- name: cron_ahead
-- Cron jobs that were planned in the future ($1: seconds): the database's clock has been set back.
SELECT j.id, j.name, j.project, j.owner, j.granted_role, j.spec::text AS spec, j.suspended,
       j.next_at, j.runs, j.refusals, j.trimmed_to, j.created_at, j.created_by, j.version,
       now() AS now
FROM cron_jobs j
WHERE j.next_at IS NOT NULL AND j.planned_at > now() + make_interval(secs => $1) LIMIT 100

-- name: cron_replan
UPDATE cron_jobs SET next_at = $3::timestamptz, planned_at = now()
WHERE id = $1 AND runs = $2 AND NOT suspended RETURNING id

-- name: cron_active
-- Runs of a cron job ($1) that have not ended.
SELECT r.id, r.session_id, r.pipeline_id FROM cron_runs r
WHERE r.cron_job = $1 AND (r.state = 'starting' OR (r.state = 'pending' AND (
    EXISTS (SELECT FROM sessions s WHERE s.id = r.session_id AND s.status NOT IN (:TERMINAL))
    OR EXISTS (SELECT FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id
               WHERE p.pipeline_id = r.pipeline_id AND s.status NOT IN (:TERMINAL)))))
ORDER BY r.scheduled_at

-- name: cron_starting
-- Runs that were claimed $1 seconds ago and have neither started nor been refused, since the
-- manager that claimed them has stopped.
SELECT r.id AS run_id, r.scheduled_at, r.by_hand, j.id, j.name, j.project, j.owner, j.granted_role,
       j.spec::text AS spec, j.suspended, j.next_at, j.runs, j.refusals, j.trimmed_to,
       j.created_at, j.created_by, j.version, now() AS now
FROM cron_runs r JOIN cron_jobs j ON j.id = r.cron_job
WHERE r.state = 'starting' AND r.created_at < now() - make_interval(secs => $1)
ORDER BY r.created_at LIMIT 100

-- name: cron_run_end
-- End a run ($1) that does not start, with its state ($2) and the reason ($3).
WITH run AS (
    UPDATE cron_runs SET state = $2, reason = $3 WHERE id = $1 AND state = 'starting'
    RETURNING cron_job
)
UPDATE cron_jobs j SET refusals = refusals + 1 FROM run
WHERE j.id = run.cron_job AND $2 = 'refused' RETURNING j.refusals

-- name: cron_trim
-- Delete the runs of a cron job ($1) except for the newest $2 and those that have not ended. The
-- times up to `trimmed_to` are never scheduled again, because their runs are not known any more.
WITH old AS (
    SELECT r.id FROM cron_runs r WHERE r.cron_job = $1 ORDER BY r.scheduled_at DESC OFFSET $2
), gone AS (
    DELETE FROM cron_runs r USING old
    WHERE r.id = old.id AND r.state <> 'starting'
      AND NOT EXISTS (SELECT FROM sessions s
                      WHERE s.id = r.session_id AND s.status NOT IN (:TERMINAL))
      AND NOT EXISTS (SELECT FROM pipeline_steps p JOIN sessions s ON s.id = p.session_id
                      WHERE p.pipeline_id = r.pipeline_id AND s.status NOT IN (:TERMINAL))
    RETURNING greatest(r.scheduled_at, r.missed_to) AS last_at, r.by_hand
)
UPDATE cron_jobs j SET trimmed_to = greatest(j.trimmed_to, g.last_at)
FROM (SELECT max(last_at) AS last_at FROM gone WHERE NOT by_hand) g
WHERE j.id = $1 AND g.last_at IS NOT NULL RETURNING j.id
