-- `cursors`: the agent that round-robin chose last, by architecture. `losses_held_since`: since
-- then, so many agents have been silent at once that none becomes LOST. `renamed_to`: the row is an
-- alias, a former name of another group. An alias never points at an alias, and has the options of
-- its group.
CREATE TABLE resource_groups (
    name               text PRIMARY KEY,
    options            jsonb NOT NULL DEFAULT '{}',
    created_at         timestamptz NOT NULL DEFAULT now(),
    cursors            jsonb NOT NULL DEFAULT '{}',
    losses_held_since  timestamptz,
    version            bigint NOT NULL DEFAULT 1,
    retired_at         timestamptz,
    changed_at         timestamptz NOT NULL DEFAULT now(),
    changed_by         text NOT NULL DEFAULT '',
    renamed_to         text REFERENCES resource_groups,
    CONSTRAINT alias_of_another CHECK (renamed_to <> name)
);

CREATE INDEX resource_groups_aliases ON resource_groups (renamed_to) WHERE renamed_to IS NOT NULL;
CREATE TRIGGER aliases_follow AFTER UPDATE OF options, retired_at ON resource_groups
    FOR EACH ROW WHEN (
        NEW.renamed_to IS NULL
        AND (NEW.options IS DISTINCT FROM OLD.options
             OR NEW.retired_at IS DISTINCT FROM OLD.retired_at)
    ) EXECUTE FUNCTION aliases_follow();

INSERT INTO resource_groups (name) VALUES ('default');

-- Means over a minute, an hour and a day. A sample is added to all three spans that contain it, so
-- nothing needs to be rolled up later.
CREATE TABLE occupancy_spans (
    resource_group  text NOT NULL REFERENCES resource_groups ON UPDATE CASCADE ON DELETE CASCADE,
    seconds         integer NOT NULL CHECK (seconds IN (60, 3600, 86400)),
    at              timestamptz NOT NULL,
    samples         integer NOT NULL CHECK (samples > 0),
    slot            text NOT NULL,
    capacity        float8 NOT NULL,
    used            float8 NOT NULL,
    used_peak       bigint NOT NULL,
    PRIMARY KEY (resource_group, seconds, at, slot)
);

CREATE INDEX occupancy_spans_age ON occupancy_spans (seconds, at);

-- Lengths of queues over the same spans.
CREATE TABLE queue_spans (
    resource_group  text NOT NULL REFERENCES resource_groups ON UPDATE CASCADE ON DELETE CASCADE,
    seconds         integer NOT NULL CHECK (seconds IN (60, 3600, 86400)),
    at              timestamptz NOT NULL,
    samples         integer NOT NULL CHECK (samples > 0),
    pending         float8 NOT NULL,
    pending_peak    integer NOT NULL,
    running         float8 NOT NULL,
    PRIMARY KEY (resource_group, seconds, at)
);

CREATE INDEX queue_spans_age ON queue_spans (seconds, at);
