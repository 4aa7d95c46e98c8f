-- Move the deadlines of live sessions, pipelines and drains by $1 seconds, after the database's
-- clock was set forward by that amount. A deadline that was set after the jump is then late, which
-- is harmless. Only the leader in its term ($2) may do so, and only as the first to correct this
-- jump ($3: the corrections before it): a repeated call changes nothing, and returns no row.
WITH lease AS (
    UPDATE leases SET clock_jumps = clock_jumps + 1
    WHERE name = 'leader' AND term = $2 AND expires_at > now() AND clock_jumps = $3
    RETURNING clock_jumps
), live AS MATERIALIZED (
    SELECT s.id FROM sessions s
    WHERE s.status NOT IN (:TERMINAL) AND (s.deadline_at IS NOT NULL OR s.not_before IS NOT NULL)
      AND EXISTS (SELECT FROM lease)
    ORDER BY s.id FOR NO KEY UPDATE OF s
), moved AS (
    UPDATE sessions s SET deadline_at = s.deadline_at + make_interval(secs => $1),
        not_before = s.not_before + make_interval(secs => $1)
    FROM live l WHERE s.id = l.id
), draining AS MATERIALIZED (
    SELECT a.id FROM agents a WHERE a.stop_at IS NOT NULL AND EXISTS (SELECT FROM lease)
    ORDER BY a.id FOR NO KEY UPDATE OF a
), postponed AS (
    UPDATE agents a SET stop_at = a.stop_at + make_interval(secs => $1) FROM draining d
    WHERE a.id = d.id
), pipelines_due AS MATERIALIZED (
    SELECT p.id FROM pipelines p WHERE p.deadline_at IS NOT NULL AND EXISTS (SELECT FROM lease)
    ORDER BY p.id FOR NO KEY UPDATE OF p
), pipelines_postponed AS (
    UPDATE pipelines p SET deadline_at = p.deadline_at + make_interval(secs => $1)
    FROM pipelines_due d WHERE p.id = d.id
)
SELECT clock_jumps FROM lease
