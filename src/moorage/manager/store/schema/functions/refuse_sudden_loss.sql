-- Refuses LOST for an agent that was not SUSPECT before.
CREATE OR REPLACE FUNCTION refuse_sudden_loss()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'agent % is ALIVE: it can only become SUSPECT', OLD.id
        USING ERRCODE = 'check_violation'; END
$$;
