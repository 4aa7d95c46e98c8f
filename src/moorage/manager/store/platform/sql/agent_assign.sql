-- Move agent $1 to group $2, overriding its configuration. $3: the actor. No row: no such agent, or
-- no such group that is not retired.
WITH moved AS (
    UPDATE agents a SET assigned_group = g.name, resource_group = g.name FROM resource_groups g
    WHERE a.id = $1 AND a.incarnation <> '' AND g.name = current_group($2) AND g.retired_at IS NULL
    RETURNING a.id, g.name
), logged AS (
    INSERT INTO agent_history (agent_id, event, actor, detail)
    SELECT id, 'assign', $3, 'to resource group ' || name FROM moved
)
SELECT id FROM moved
