-- The newest $2 scaling decisions of an endpoint ($1).
SELECT at, from_replicas, to_replicas, rule, detail, inputs FROM scaling_decisions
WHERE endpoint_id = $1::uuid ORDER BY number DESC LIMIT $2
