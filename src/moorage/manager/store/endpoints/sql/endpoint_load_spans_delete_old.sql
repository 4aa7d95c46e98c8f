-- Delete spans of $1 seconds that began $2 seconds ago, at most $3 of them (index
-- endpoint_load_spans_age).
DELETE FROM endpoint_load_spans WHERE ctid IN (
    SELECT ctid FROM endpoint_load_spans
    WHERE seconds = $1 AND at < now() - make_interval(secs => $2) LIMIT $3
)
RETURNING 1
