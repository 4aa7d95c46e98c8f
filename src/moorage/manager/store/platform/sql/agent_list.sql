-- `offers`: JSON as text, which is parsed only once. `loss_held_since`: too many agents of its
-- group are silent at the same time, so this one does not become LOST.
SELECT a.*, CASE WHEN a.status = 'SUSPECT' THEN (
                SELECT g.losses_held_since
                FROM resource_groups g WHERE g.name = a.resource_group) END AS loss_held_since,
       (SELECT coalesce(json_agg(json_build_object(
                'slot', c.slot, 'device_id', c.device_id, 'model', c.model, 'memory_bytes',
                c.memory_bytes, 'healthy', c.healthy, 'capacity', c.offered, 'used', c.used,
                'numa', c.numa, 'nvlink_domain', c.nvlink_domain,
                'parent', c.parent, 'unhealthy_reason', c.unhealthy_reason)
            ORDER BY c.slot, c.device_id), '[]')
             FROM agent_slots c
             WHERE c.agent_id = a.id AND (c.offered > 0 OR c.used > 0)) AS offers,
       (SELECT count(*) FROM kernels k WHERE k.agent_id = a.id
          AND k.status NOT IN ('PENDING', :TERMINAL)) AS kernels,
       CASE WHEN a.detached_stream IS DISTINCT FROM a.stream
            THEN coalesce((SELECT m.link FROM managers m WHERE m.id = a.manager),
                          '') END AS manager_link,
       -- The proxies that try this agent's address but cannot reach it. For an agent that dials
       -- out, proxies of the previous release report that they reach it.
       ARRAY(SELECT DISTINCT t.key FROM managers m, jsonb_each(as_object(m.asks)) t
             WHERE t.value ? a.address AND a.address NOT LIKE '%.agent.invalid'
             ORDER BY 1) AS unreached_by
FROM agents a WHERE ($1::text IS NULL OR a.id = $1) AND a.incarnation <> ''
