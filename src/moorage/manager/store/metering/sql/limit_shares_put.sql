-- Replace the shares of subjects $1 with $3, if they still have the revisions $2. Returns those
-- that were replaced.
INSERT INTO limit_shares AS l (subject, revision, shares)
SELECT i.subject, i.revision + 1, i.shares::jsonb
FROM unnest($1::text[], $2::bigint[], $3::text[]) AS i(subject, revision, shares)
ORDER BY i.subject
ON CONFLICT (subject) DO UPDATE SET revision = excluded.revision, shares = excluded.shares
WHERE l.revision = excluded.revision - 1
RETURNING subject
