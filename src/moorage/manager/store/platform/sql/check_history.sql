-- Histories with a gap, with a transition that is not in the table ($1 from, $2 event, $3 to), or
-- whose last entry differs from the session.
WITH steps AS (
    SELECT session_id, revision, event, from_status, to_status,
           row_number() OVER w AS n, lag(to_status) OVER w AS previous,
           lead(revision) OVER w IS NULL AS last
    FROM session_history WINDOW w AS (PARTITION BY session_id ORDER BY revision)
), allowed AS (
    SELECT * FROM unnest($1::text[], $2::text[], $3::text[]) AS t(from_status, event, to_status)
)
SELECT s.id::text AS subject, 'it has no history' AS detail FROM sessions s
WHERE NOT EXISTS (SELECT FROM session_history h WHERE h.session_id = s.id)
UNION ALL
SELECT session_id::text, 'row ' || n || ' has revision ' || revision FROM steps WHERE revision <> n
UNION ALL
SELECT session_id::text,
       'revision ' || revision || ': ' || event || ' from ' || coalesce(from_status, 'nothing')
       || ' to ' || to_status || ' after ' || coalesce(previous, 'nothing')
FROM steps
WHERE from_status IS DISTINCT FROM previous
   OR CASE WHEN revision = 1 THEN (event, to_status) <> ('created', 'PENDING')
      ELSE (from_status, event, to_status) NOT IN (SELECT * FROM allowed) END
UNION ALL
SELECT s.id::text,
       'it is ' || s.status || ' at revision ' || s.revision || ', its history ends with '
       || h.to_status || ' at ' || h.revision
FROM sessions s JOIN steps h ON h.session_id = s.id AND h.last
WHERE (s.status, s.revision) <> (h.to_status, h.revision)
ORDER BY 1 LIMIT 1000
