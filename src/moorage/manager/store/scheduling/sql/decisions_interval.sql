-- The interval of a group's ($1) decision log that can be decoded: from its first full segment to
-- its last segment.
SELECT (SELECT d.from_at
        FROM decisions d
        WHERE d.resource_group = ANY (group_names($1)) AND d.whole
        ORDER BY d.from_at, d.id
        LIMIT 1) AS since,
       (SELECT d.to_at
        FROM decisions d
        WHERE d.resource_group = ANY (group_names($1)) ORDER BY d.id DESC LIMIT 1) AS until
