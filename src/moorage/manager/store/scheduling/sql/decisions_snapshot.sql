-- The begin of the last full segment of a group ($1) at or before $2 (index decisions_whole).
SELECT d.from_at
FROM decisions d
WHERE d.resource_group = ANY (group_names($1)) AND d.whole AND d.from_at <= $2
ORDER BY d.from_at DESC, d.id DESC
LIMIT 1
