-- Request the stop of the existing sessions of a pipeline ($2), or of a user ($3) in projects ($4;
-- NULL: all), by $5. $1: the id of the stop, unless a stop of the pipeline was requested before and
-- is not completed yet.
INSERT INTO session_stops AS t (id, pipeline_id, owner, projects, asked_by)
VALUES ($1::uuid, $2::uuid, $3, $4::text[], $5)
ON CONFLICT (pipeline_id) DO UPDATE SET
    asked_at = excluded.asked_at, asked_by = excluded.asked_by, reason = excluded.reason
RETURNING t.id, t.asked_at, t.asked_by, t.reason
