-- Add a sample of the usage of each node and its devices to the spans of a minute, an hour and a
-- day that contain it. $1: the leader's term. $2: usage that is at most this many seconds old
-- counts.
WITH spans AS (
    SELECT s.seconds, date_bin(make_interval(secs => s.seconds), now(), 'epoch') AS at
    FROM unnest(ARRAY[60, 3600, 86400]) AS s(seconds)
    WHERE EXISTS (SELECT FROM leases WHERE name = 'leader' AND term = $1 AND expires_at > now())
), nodes AS MATERIALIZED (
    SELECT u.agent_id, u.cpu, u.memory, d.*
    FROM agent_usage u CROSS JOIN LATERAL (
        SELECT coalesce(array_agg(x.id ORDER BY x.id), '{}') AS devices,
               coalesce(array_agg(1), '{}') AS device_samples,
               coalesce(array_agg((CASE WHEN x.gpu < 0 THEN 0 WHEN x.gpu > 1000 THEN 1000
                                        ELSE x.gpu END)::real ORDER BY x.id), '{}') AS gpu,
               coalesce(array_agg(x.memory::real ORDER BY x.id), '{}') AS device_memory,
               coalesce(array_agg(x.temperature::real ORDER BY x.id), '{}') AS temperature,
               coalesce(array_agg(x.power::real ORDER BY x.id), '{}') AS power
        FROM (
            SELECT DISTINCT ON (1) r.device ->> 'id' AS id,
                   as_integer(r.device -> 'gpu') AS gpu, as_integer(r.device -> 'memory') AS memory,
                   as_integer(r.device -> 'temperature') AS temperature,
                   as_integer(r.device -> 'power') AS power
            FROM jsonb_array_elements(as_array(u.devices)) AS r(device)
            WHERE r.device ? 'id' ORDER BY 1) x) d
    WHERE u.at > now() - make_interval(secs => $2)
)
INSERT INTO agent_load_spans AS o (agent_id, seconds, at, samples, cpu, memory, devices,
                                   device_samples, gpu, device_memory, temperature, power)
SELECT n.agent_id, s.seconds, s.at, 1, n.cpu, n.memory, n.devices, n.device_samples, n.gpu,
       n.device_memory, n.temperature, n.power
FROM nodes n CROSS JOIN spans s
ON CONFLICT (agent_id, seconds, at) DO UPDATE SET samples = o.samples + 1,
    cpu = o.cpu + (excluded.cpu - o.cpu) / (o.samples + 1),
    memory = o.memory + (excluded.memory - o.memory) / (o.samples + 1),
    (devices, device_samples, gpu, device_memory, temperature, power) = (
        SELECT coalesce(array_agg(id ORDER BY id), '{}'),
               coalesce(array_agg(coalesce(b.n, 0) + coalesce(a.n, 0) ORDER BY id), '{}'),
               coalesce(array_agg(
                   coalesce(b.gpu + (a.gpu - b.gpu) / (b.n + 1), a.gpu, b.gpu) ORDER BY id), '{}'),
               coalesce(array_agg(
                   coalesce(b.memory + (a.memory - b.memory) / (b.n + 1), a.memory, b.memory)
                   ORDER BY id), '{}'),
               coalesce(array_agg(
                   coalesce(b.heat + (a.heat - b.heat) / (b.n + 1), a.heat, b.heat)
                   ORDER BY id), '{}'),
               coalesce(array_agg(
                   coalesce(b.power + (a.power - b.power) / (b.n + 1), a.power, b.power)
                   ORDER BY id), '{}')
        FROM unnest(o.devices, o.device_samples, o.gpu, o.device_memory, o.temperature, o.power)
                 AS b(id, n, gpu, memory, heat, power)
        FULL JOIN unnest(excluded.devices, excluded.device_samples, excluded.gpu,
                         excluded.device_memory, excluded.temperature, excluded.power)
                 AS a(id, n, gpu, memory, heat, power) USING (id))
