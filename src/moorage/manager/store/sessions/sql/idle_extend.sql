-- Extend session $1, of these projects ($4), by $2 seconds of observation from now on, if it was
-- extended fewer than $3 times. No row: it was extended too often, it is not running, or it has not
-- been observed yet.
UPDATE session_idle i
SET extended_s = greatest(i.extended_s, i.observed_s + $2), extensions = i.extensions + 1,
    ends_in_s = greatest(i.ends_in_s, $2)
FROM sessions s
WHERE i.session_id = $1 AND s.id = i.session_id AND s.attempt = i.attempt AND s.status = 'RUNNING'
  AND i.extensions < $3
  AND (i.ends_in_s IS NULL OR i.ends_in_s > 0) -- else its end was decided
  AND ($4::text[] IS NULL OR s.project = ANY ($4))
RETURNING i.extensions
