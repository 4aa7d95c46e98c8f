-- The segments of a group ($1) that are needed to decode the interval from $2 to $3. They begin
-- with the last full segment before the interval, or the first one that is kept. After id $4; at
-- most $5 rows and about $6 bytes, but at least one row.
WITH begin AS (
    SELECT coalesce(
        (SELECT d.id FROM decisions d
         WHERE d.resource_group = ANY (group_names($1)) AND d.whole AND d.from_at <= $2
         ORDER BY d.from_at DESC, d.id DESC LIMIT 1),
        (SELECT d.id FROM decisions d
         WHERE d.resource_group = ANY (group_names($1)) AND d.whole
         ORDER BY d.from_at, d.id
         LIMIT 1)) AS id
), picked AS (
    SELECT d.id, d.from_at, d.to_at, d.term, d.whole, d.passes, d.dropped, d.size FROM decisions d
    WHERE d.resource_group = ANY (group_names($1)) AND d.id >= (SELECT id FROM begin) AND d.id > $4
      AND d.from_at <= $3
    ORDER BY d.id LIMIT $5
), sized AS (
    SELECT s.*, sum(s.size) OVER (ORDER BY s.id) - s.size AS before FROM picked s
)
SELECT f.id, f.from_at, f.to_at, f.term, f.whole, f.passes, f.dropped, f.size, d.body
FROM sized f JOIN decisions d USING (id) WHERE f.before < $6 ORDER BY f.id
