-- The backup in file $1 ($2: bytes) was restored as a test. A backup that is unknown to this
-- database is recorded as taken now.
WITH known AS (
    UPDATE backups SET tested_at = now()
    WHERE bytes = $2 AND regexp_replace(file, '^.*/', '') = regexp_replace($1, '^.*/', '')
    RETURNING at
)
SELECT count(*) FROM known
