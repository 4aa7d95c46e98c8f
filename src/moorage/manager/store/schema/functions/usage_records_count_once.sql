-- Deletes records that were rolled up before. It runs after the insert, which waits for a roll-up
-- of the same record, and so sees what that noted.
CREATE OR REPLACE FUNCTION usage_records_count_once()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM usage_records r USING added a JOIN usage_epochs e USING (source, epoch)
    WHERE (r.source, r.epoch, r.sequence) = (a.source, a.epoch, a.sequence)
        AND a.sequence <= e.sequence;
    RETURN NULL;
END
$$;
