-- Write the service ports of live kernels, as reported through the newest stream of their agents. A
-- port of an agent belongs to one kernel at a time: a live kernel takes it over from one that has
-- ended, never from a live one. Returns the ports that belong to the reported kernels now.
WITH input AS (
    SELECT DISTINCT ON (agent_id, port) *
    FROM unnest($1::text[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::int[], $7::text[],
                $8::boolean[], $9::boolean[])
    AS i(agent_id, stream, kernel_id, host, name, port, protocol, base_path, guarded)
    ORDER BY agent_id, port, kernel_id
), live AS (
    SELECT i.* FROM input i
    JOIN kernels k ON k.id = i.kernel_id AND k.agent_id = i.agent_id
    JOIN agents a ON a.id = i.agent_id AND a.stream = i.stream
    WHERE k.status NOT IN (:TERMINAL)
), dropped AS (
    DELETE FROM service_ports p USING live l
    WHERE p.kernel_id = l.kernel_id
      AND NOT EXISTS (SELECT FROM live o WHERE (o.agent_id, o.port) = (p.agent_id, p.port))
)
INSERT INTO service_ports
    AS held (agent_id, port, kernel_id, name, protocol, base_path, guarded, host)
SELECT agent_id, port, kernel_id, name, protocol, base_path, guarded, host
FROM live ORDER BY agent_id, port
ON CONFLICT (agent_id, port) DO UPDATE SET kernel_id = excluded.kernel_id, name = excluded.name,
    protocol = excluded.protocol, base_path = excluded.base_path,
    guarded = excluded.guarded, host = excluded.host
WHERE held.kernel_id = excluded.kernel_id OR NOT EXISTS (
    SELECT FROM kernels k WHERE k.id = held.kernel_id AND k.status NOT IN (:TERMINAL))
RETURNING agent_id, port
