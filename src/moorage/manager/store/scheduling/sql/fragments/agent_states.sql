-- `topology`: NUMA node, NVLink domain and parent of each device, NULL if the agent reports none of
-- them. `kernels`: the number of live kernels, if it is limited. `available`: its reports arrive,
-- and it is connected to a manager.
SELECT a.id, a.resource_group,
       a.status = 'ALIVE' AND a.ready AND a.detached_stream IS DISTINCT FROM a.stream AS available,
       a.draining, a.address, a.runtimes, a.engines, a.arch, a.labels,
       s.slots, s.devices, s.offered, s.used, s.healthy, s.topology, a.max_kernels, a.share_quantum,
       a.share_minimum,
       CASE WHEN a.max_kernels IS NOT NULL THEN (
           SELECT count(*) FROM kernels k
           WHERE k.agent_id = a.id AND k.status NOT IN ('PENDING', :TERMINAL)) END AS kernels
FROM agents a, LATERAL (
    SELECT array_agg(c.slot) AS slots, array_agg(c.device_id) AS devices,
           array_agg(c.offered) AS offered, array_agg(c.used) AS used,
           array_agg(c.healthy) AS healthy,
           CASE WHEN bool_or(c.numa IS NOT NULL OR c.nvlink_domain <> '' OR c.parent <> '')
                THEN array_agg(concat(c.numa, '|', c.nvlink_domain, '|', c.parent)) END AS topology
    FROM (SELECT * FROM agent_slots WHERE agent_id = a.id ORDER BY slot, device_id) c) s
