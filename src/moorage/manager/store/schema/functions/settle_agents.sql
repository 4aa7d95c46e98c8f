-- Moves agents that registered while their group was being renamed.
CREATE OR REPLACE FUNCTION settle_agents()
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE moved text[];
BEGIN
    IF NOT EXISTS (SELECT FROM resource_groups WHERE renamed_to IS NOT NULL) THEN
        RETURN '{}';
    END IF;
    WITH strays AS (
        SELECT a.id, g.renamed_to FROM resource_groups g, LATERAL (
            SELECT a.id FROM agents a WHERE a.resource_group = g.name OFFSET 0) a
        WHERE g.renamed_to IS NOT NULL
    ), changed AS (
        UPDATE agents a SET resource_group = s.renamed_to
        FROM strays s WHERE a.id = s.id RETURNING a.id
    )
    SELECT coalesce(array_agg(id), '{}') INTO moved FROM changed;
    RETURN moved;
END
$$;
