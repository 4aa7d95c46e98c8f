-- 0 allows none; NULL means no limit.
CREATE TABLE quotas (
    scope            text NOT NULL CHECK (scope IN ('user', 'project', 'group')),
    name             text NOT NULL CHECK (name <> ''),
    slots            jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(slots) = 'object'),
    sessions         integer CHECK (sessions >= 0),
    pending          integer CHECK (pending >= 0),
    changed_at       timestamptz NOT NULL DEFAULT now(),
    changed_by       text NOT NULL,
    version          bigint NOT NULL DEFAULT nextval('resource_versions'),
    node_seconds     bigint CHECK (node_seconds >= 0),
    system_sessions  integer CHECK (system_sessions >= 0),
    PRIMARY KEY (scope, name)
);

CREATE TRIGGER quotas_current_group BEFORE INSERT ON quotas
    FOR EACH ROW WHEN (NEW.scope = 'group') EXECUTE FUNCTION quotas_current_group();
CREATE TRIGGER quotas_take_version BEFORE UPDATE OF
    slots, sessions, pending, node_seconds, system_sessions ON quotas
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION take_version();

-- The decision log in compressed segments (decision 8). `whole`: the segment can be decoded without
-- earlier ones. `dropped`: how many passes are missing before it. `run` and `number` identify a
-- segment, so a repeated insert stores nothing.
CREATE TABLE decisions (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    resource_group  text NOT NULL,
    from_at         timestamptz NOT NULL,
    to_at           timestamptz NOT NULL,
    term            bigint NOT NULL,
    run             uuid NOT NULL,
    number          integer NOT NULL CHECK (number >= 0),
    format          integer NOT NULL,
    whole           boolean NOT NULL,
    passes          integer NOT NULL CHECK (passes > 0),
    dropped         integer NOT NULL CHECK (dropped >= 0),
    size            integer NOT NULL,
    body            bytea NOT NULL,
    UNIQUE (run, resource_group, number),
    CHECK (from_at <= to_at),
    CHECK (size = octet_length(body))
);

CREATE INDEX decisions_whole ON decisions (resource_group, from_at) WHERE whole;
CREATE INDEX decisions_group ON decisions (resource_group, id);
CREATE INDEX decisions_age ON decisions (to_at);

ALTER TABLE decisions ALTER COLUMN body SET STORAGE EXTERNAL;

-- Predicted starts of sessions, and their outcomes. They are stored apart from sessions, because
-- they measure the scheduler and outlive the sessions.
CREATE TABLE expected_starts (
    session_id      uuid NOT NULL,
    attempt         integer NOT NULL,
    expected_at     timestamptz NOT NULL,
    told_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind            text NOT NULL,
    resource_group  text NOT NULL,
    outcome         text NOT NULL DEFAULT '' CHECK (outcome IN ('', 'started', 'not-started')),
    started_at      timestamptz,
    PRIMARY KEY (session_id, attempt, expected_at),
    CONSTRAINT started_at_a_time CHECK ((outcome = 'started') = (started_at IS NOT NULL))
);

CREATE INDEX expected_starts_open ON expected_starts (session_id) WHERE outcome = '';
CREATE INDEX expected_starts_started ON expected_starts (resource_group, kind, told_at)
    WHERE outcome = 'started';
CREATE INDEX expected_starts_age ON expected_starts (told_at);
