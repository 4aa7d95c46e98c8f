-- Records how long an agent was silent that returns, since the ledger does not charge for that
-- time.
CREATE OR REPLACE FUNCTION agents_note_return()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.seen_before := OLD.last_seen;
    NEW.back_at := now();
    RETURN NEW;
END
$$;
