-- Request the stop of a pipeline whose time is up at $2, the longest overdue first, with the id $1,
-- under the leader's term $3. Its deadline is removed, so that this happens once. A stop that was
-- requested before and is not completed yet keeps its reason. Returns the pipeline.
WITH lease AS (
    SELECT FROM leases WHERE name = 'leader' AND term = $3 AND expires_at > now() FOR SHARE
), due AS (
    SELECT p.id FROM pipelines p
    WHERE p.deadline_at <= least($2::timestamptz, now()) AND EXISTS (SELECT FROM lease)
    ORDER BY p.deadline_at LIMIT 1 FOR UPDATE OF p
), asked AS (
    INSERT INTO session_stops (id, pipeline_id, asked_by, reason)
    SELECT $1::uuid, d.id, 'manager', 'pipeline-timeout' FROM due d
    WHERE EXISTS (SELECT FROM pipeline_steps s JOIN sessions o ON o.id = s.session_id
                  WHERE s.pipeline_id = d.id AND o.status NOT IN (:TERMINAL))
    ON CONFLICT (pipeline_id) DO NOTHING
)
UPDATE pipelines p SET deadline_at = NULL FROM due d WHERE p.id = d.id RETURNING p.id
