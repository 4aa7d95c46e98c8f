-- Kernels whose status is inconsistent with their session's ($1 session status, $2 kernel status:
-- the consistent pairs), except in sessions that shared another session's run, because their
-- kernels never ran; kernels of an earlier attempt that should still run; and kernels of an attempt
-- that does not exist yet.
SELECT k.id::text AS subject,
       'it is ' || k.status || ', its session ' || s.id || ' is ' || s.status AS detail
FROM kernels k JOIN sessions s ON s.id = k.session_id
WHERE k.attempt = s.attempt
  AND NOT (s.adopted_from IS NOT NULL AND k.status = 'CANCELLED'
           AND s.status IN ('TERMINATED', 'ERROR'))
  AND (s.status, k.status) NOT IN (SELECT * FROM unnest($1::text[], $2::text[]))
UNION ALL
SELECT k.id::text,
       'it is ' || k.status || ' in attempt ' || k.attempt || ', its session ' || s.id
           || ' is in attempt ' || s.attempt
FROM kernels k JOIN sessions s ON s.id = k.session_id
WHERE k.attempt > s.attempt
   OR (k.attempt < s.attempt AND k.status NOT IN ('TERMINATING', :TERMINAL))
ORDER BY 1 LIMIT 1000
