-- The sessions of the next $3 service ports after port $2 of agent $1, in this order.
SELECT p.agent_id, p.port, k.session_id FROM (
    SELECT agent_id, port, kernel_id
    FROM service_ports
    WHERE (agent_id, port) > ($1, $2) ORDER BY agent_id, port LIMIT $3) p
JOIN kernels k ON k.id = p.kernel_id ORDER BY 1, 2
