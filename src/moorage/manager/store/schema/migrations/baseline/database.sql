-- Which earlier releases' managers start on this schema, and which may begin to lead (decision 50).
CREATE TABLE schema_compatibility (
    only_row          boolean DEFAULT true PRIMARY KEY CHECK (only_row),
    compatible_since  text NOT NULL CHECK (compatible_since ~ '^([0-9]{4}|[0-9]{12})$'),
    leads_since       text NOT NULL CHECK (leads_since ~ '^([0-9]{4}|[0-9]{12})$')
);

-- The leader's lease. `clock_jumps` counts the jumps of the database's clock by which deadlines
-- were moved. `schema`: the newest schema that the leader knows.
CREATE TABLE leases (
    name         text PRIMARY KEY CHECK (name = 'leader'),
    holder       text NOT NULL,
    term         bigint NOT NULL,
    expires_at   timestamptz NOT NULL,
    clock_jumps  integer NOT NULL DEFAULT 0,
    schema       text
);

CREATE TRIGGER leases_refuse_older_leader BEFORE UPDATE ON leases
    FOR EACH ROW WHEN (NEW.term <> OLD.term) EXECUTE FUNCTION refuse_older_leader();

-- Each manager adds 1 to its `beat` every second. Other managers notice by their own clocks when it
-- stops, and remove its row. `agent_links`, `proxy_links`: connections by the manager's own count.
-- `dialout`: where its proxies accept connections from agents that only dial out. `other_way`,
-- `asks`: hosts of agents that its proxies would reach the other way, once for each proxy and
-- grouped by proxy, respectively. `plain_senders`: who sends secrets to it over loopback without
-- TLS, by kind.
CREATE TABLE managers (
    id             uuid PRIMARY KEY,
    link           text NOT NULL CHECK (link <> ''),
    version        text NOT NULL,
    beat           bigint NOT NULL,
    proxies        text[] NOT NULL,
    started_at     timestamptz NOT NULL DEFAULT now(),
    agent_links    integer,
    proxy_links    integer,
    clock_ahead_s  float8,
    dialout        text[] NOT NULL DEFAULT '{}',
    other_way      text[] NOT NULL DEFAULT '{}',
    asks           jsonb NOT NULL DEFAULT '{}',
    plain_senders  jsonb NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50);

-- The Postgres cluster that holds the database, and its timeline. A manager that finds a higher
-- timeline is connected to a promoted standby, which may lack the last commits. `installation`
-- stays the same in backups and standbys; `copy` changes with each restore.
CREATE TABLE lineage (
    only_row      boolean PRIMARY KEY CHECK (only_row),
    system        text NOT NULL,
    timeline      integer NOT NULL CHECK (timeline > 0),
    since         timestamptz NOT NULL DEFAULT now(),
    failovers     integer NOT NULL DEFAULT 0,
    installation  uuid NOT NULL DEFAULT gen_random_uuid(),
    copy          uuid NOT NULL DEFAULT gen_random_uuid()
);

-- Backups that were taken of this database, and when each was tested.
CREATE TABLE backups (
    at         timestamptz DEFAULT now() PRIMARY KEY,
    file       text NOT NULL,
    host       text NOT NULL,
    bytes      bigint NOT NULL,
    tested_at  timestamptz
);

-- The versions of all resources that people edit come from one sequence, so a row that was deleted
-- and created again, or a key whose name is used again, has another version.
CREATE SEQUENCE resource_versions;
