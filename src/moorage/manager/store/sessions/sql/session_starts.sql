-- The history of sessions whose start is traced.
SELECT s.id, s.name, s.type, s.resource_group, s.project, s.traceparent,
       (SELECT jsonb_agg(jsonb_build_array(h.revision, extract(epoch FROM h.at), h.event,
                                           h.from_status, h.to_status, h.reason, h.detail)
                         ORDER BY h.revision)
        FROM session_history h WHERE h.session_id = s.id) AS history
FROM sessions s WHERE s.id = ANY ($1::uuid[]) AND s.traceparent IS NOT NULL
