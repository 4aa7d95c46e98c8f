-- Since when and until when what was decided in a group ($1) is kept without one before it.
SELECT (SELECT d.from_at FROM decisions d WHERE d.resource_group = $1 AND d.whole ORDER BY d.from_at, d.id LIMIT 1) AS since,
       (SELECT d.to_at FROM decisions d WHERE d.resource_group = $1 ORDER BY d.id DESC LIMIT 1) AS until
