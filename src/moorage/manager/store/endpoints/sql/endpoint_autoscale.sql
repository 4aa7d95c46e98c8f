-- Set the desired number of replicas of an endpoint ($1) from $2 to $3, as the leader of term $4
-- has decided by a rule ($5, detail $6, inputs $7); the decision is recorded in the same statement.
-- Nothing happens if a user has changed the endpoint since (its version $8), and the number never
-- leaves the endpoint's limits.
WITH lease AS (
    SELECT term FROM leases WHERE name = 'leader' AND term = $4 AND expires_at > now() FOR SHARE
), changed AS (
    UPDATE endpoints SET replicas = $3, scaled_at = now(), scalings = scalings + 1
    WHERE id = $1::uuid AND replicas = $2 AND revision = $8 AND deleted_at IS NULL
      AND EXISTS (SELECT FROM lease)
      AND $3 BETWEEN coalesce(as_integer(serving -> 'autoscale' -> 'min'), 0) AND coalesce(
          as_integer(serving -> 'autoscale' -> 'max'), 1000)
    RETURNING id, scalings
), trimmed AS (
    DELETE FROM scaling_decisions d USING changed c
    WHERE d.endpoint_id = c.id AND d.number <= c.scalings - 100
)
INSERT INTO scaling_decisions (endpoint_id, number, from_replicas, to_replicas, rule, detail,
                               inputs)
SELECT id, scalings, $2, $3, $5, $6, $7::jsonb FROM changed RETURNING endpoint_id AS id
