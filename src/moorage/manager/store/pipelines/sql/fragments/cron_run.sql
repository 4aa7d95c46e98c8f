SELECT r.id, r.cron_job, j.name AS cron_job_name, r.scheduled_at, r.state, r.by_hand, r.reason,
       r.missed, r.missed_to, r.session_id, r.pipeline_id, r.created_by, s.name AS session,
       l.name AS pipeline, coalesce(o.status, s.status) AS status,
       coalesce(o.result, s.result) AS result, coalesce(o.reason, s.reason) AS session_reason,
       CASE WHEN s.status IN (:TERMINAL) THEN s.status_since END AS ended_at
FROM cron_runs r JOIN cron_jobs j ON j.id = r.cron_job
LEFT JOIN sessions s ON s.id = r.session_id
LEFT JOIN sessions o ON o.id = s.adopted_from AND s.status = 'PENDING'
LEFT JOIN pipelines l ON l.id = r.pipeline_id
