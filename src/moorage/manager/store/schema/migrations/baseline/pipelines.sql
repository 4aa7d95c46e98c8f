-- The state of a pipeline is not stored, but derived from its steps.
CREATE TABLE pipelines (
    id          uuid PRIMARY KEY,
    name        text NOT NULL CHECK (name <> ''),
    project     text NOT NULL,
    owner       text NOT NULL,
    spec        jsonb NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text NOT NULL
);

CREATE INDEX pipelines_of_project ON pipelines (project, name, created_at DESC);
CREATE INDEX pipelines_newest ON pipelines (created_at DESC, id DESC);

-- A retry gives a step another `run`, so the primary key decides between two concurrent retries.
-- `index`: of an array element, otherwise -1.
CREATE TABLE pipeline_steps (
    pipeline_id  uuid NOT NULL REFERENCES pipelines ON DELETE CASCADE,
    step         text NOT NULL,
    index        integer NOT NULL CHECK (index >= -1),
    run          integer NOT NULL CHECK (run > 0),
    position     integer NOT NULL,
    session_id   uuid NOT NULL UNIQUE REFERENCES sessions ON DELETE CASCADE,
    PRIMARY KEY (pipeline_id, step, index, run)
);

-- Requested stops of many sessions. One of the leader's loops carries them out, no matter what
-- happens to the request.
CREATE TABLE session_stops (
    id           uuid PRIMARY KEY,
    pipeline_id  uuid UNIQUE REFERENCES pipelines ON DELETE CASCADE,
    owner        text,
    projects     text[],
    asked_at     timestamptz NOT NULL DEFAULT now(),
    asked_by     text NOT NULL,
    CONSTRAINT session_stops_of_one_kind CHECK (num_nonnulls(pipeline_id, owner) = 1)
);
