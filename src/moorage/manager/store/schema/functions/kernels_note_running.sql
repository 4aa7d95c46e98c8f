-- Records when a kernel was first RUNNING.
CREATE OR REPLACE FUNCTION kernels_note_running()
RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.running_at := now();
    RETURN NEW;
END
$$;
