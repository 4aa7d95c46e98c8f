-- The scaling decisions of an endpoint ($1).
SELECT number, at, from_replicas, to_replicas, rule, detail, inputs FROM scaling_decisions
WHERE endpoint_id = $1::uuid
