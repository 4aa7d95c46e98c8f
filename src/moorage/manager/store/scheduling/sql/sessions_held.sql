-- The leader's term, and the slots that these sessions ($1) hold, as in quota_usage.sql; sessions
-- that hold nothing are omitted.
SELECT l.term, s.id, s.resource_group, s.owner, s.project, s.slots::text AS slots,
       s.type = 'system' AS system, q.qos
FROM (SELECT max(term) AS term FROM leases WHERE name = 'leader') l
LEFT JOIN sessions s ON s.id = ANY ($1::uuid[]) AND s.status IN (:PLACED)
LEFT JOIN session_qos q ON q.session_id = s.id
