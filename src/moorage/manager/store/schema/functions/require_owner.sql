-- Raises MG001 for a project or user (`kind`) that is archived and, if it must be `known`, MG002
-- for one that does not exist. The shared lock lasts until the end of the transaction: whoever
-- archives or deletes the owner waits for it, and then sees what the transaction has created.
CREATE OR REPLACE FUNCTION require_owner(kind text, owner text, known boolean)
RETURNS void LANGUAGE plpgsql AS $$
DECLARE archived timestamptz;
BEGIN
    IF kind = 'project' THEN
        SELECT archived_at INTO archived FROM projects WHERE name = owner FOR SHARE;
    ELSE
        SELECT archived_at INTO archived FROM users WHERE name = owner FOR SHARE;
    END IF;

    IF known AND NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'MG002',
            MESSAGE = format('there is no %s %L', kind, owner),
            HINT = format('`moorage %ss` lists them, `moorage %ss create` creates one', kind, kind);
    END IF;
    IF archived IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'MG001',
            MESSAGE = format('%s %L was archived on %s', kind, owner,
                             to_char(archived AT TIME ZONE 'UTC', 'YYYY-MM-DD')),
            HINT = format('an administrator can restore it: `moorage %ss restore %s`', kind, owner);
    END IF;
END
$$;
