-- What requests used, as the proxies counted it. A record is stored only once, no matter how often
-- it is sent, and is never changed.
CREATE TABLE usage_records (
    source          text NOT NULL,
    epoch           text NOT NULL,
    sequence        bigint NOT NULL CHECK (sequence > 0),
    began_at        timestamptz NOT NULL,
    ended_at        timestamptz NOT NULL,
    project         text NOT NULL,
    username        text NOT NULL,
    key_id          text NOT NULL,
    model           text NOT NULL,
    requests        bigint NOT NULL CHECK (requests >= 0),
    tokens_in       bigint NOT NULL CHECK (tokens_in >= 0),
    tokens_out      bigint NOT NULL CHECK (tokens_out >= 0),
    tokens_cached   bigint NOT NULL,
    stored_at       timestamptz NOT NULL DEFAULT now(),
    session_id      text NOT NULL DEFAULT '',
    endpoint        text NOT NULL DEFAULT '',
    resource_group  text NOT NULL DEFAULT '',
    PRIMARY KEY (source, epoch, sequence),
    CHECK (ended_at >= began_at),
    CHECK (tokens_cached BETWEEN 0 AND tokens_in)
);

CREATE INDEX usage_records_of_project ON usage_records (project, ended_at);
CREATE INDEX usage_records_by_time ON usage_records (ended_at);
CREATE TRIGGER usage_records_count_once AFTER INSERT ON usage_records REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION usage_records_count_once();
CREATE TRIGGER usage_records_stay BEFORE UPDATE ON usage_records
    FOR EACH STATEMENT EXECUTE FUNCTION usage_records_stay();

-- The number up to which the records of an epoch were rolled up. A record up to that number that
-- arrives again is deleted at once.
CREATE TABLE usage_epochs (
    source    text NOT NULL,
    epoch     text NOT NULL,
    sequence  bigint NOT NULL CHECK (sequence > 0),
    at        timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, epoch)
);

-- Sums over the records of an hour (UTC).
CREATE TABLE usage_hours (
    at              timestamptz NOT NULL
        CHECK (at = date_bin('1 hour', at, '1970-01-01 00:00:00+00')),
    project         text NOT NULL,
    username        text NOT NULL,
    key_id          text NOT NULL,
    model           text NOT NULL,
    endpoint        text NOT NULL,
    session_id      text NOT NULL,
    resource_group  text NOT NULL,
    requests        bigint NOT NULL CHECK (requests >= 0),
    tokens_in       bigint NOT NULL CHECK (tokens_in >= 0),
    tokens_out      bigint NOT NULL CHECK (tokens_out >= 0),
    tokens_cached   bigint NOT NULL,
    PRIMARY KEY (at, project, username, key_id, model, endpoint, session_id, resource_group),
    CHECK (tokens_cached BETWEEN 0 AND tokens_in)
);

CREATE INDEX usage_hours_of_project ON usage_hours (project, at);

-- What kernels used (decision 33). Triggers write the rows of a kernel in the transaction that ends
-- it. Times are truncated to seconds, so every amount is a whole number. A row without a kernel is
-- a correction.
CREATE TABLE ledger (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kernel_id       uuid,
    unit            text NOT NULL
        CHECK (unit IN ('gpu', 'cpu', 'memory', 'node', 'requests', 'tokens_in', 'tokens_out',
            'tokens_cached')),
    device          text NOT NULL,
    rate            bigint NOT NULL,
    amount          bigint NOT NULL,
    began_at        timestamptz NOT NULL CHECK (began_at = date_trunc('second', began_at, 'UTC')),
    ended_at        timestamptz NOT NULL CHECK (ended_at = date_trunc('second', ended_at, 'UTC')),
    project         text NOT NULL,
    username        text NOT NULL,
    key_id          text NOT NULL,
    model           text NOT NULL,
    endpoint        text NOT NULL,
    session_id      text NOT NULL,
    resource_group  text NOT NULL,
    reason          text NOT NULL DEFAULT '',
    actor           text NOT NULL DEFAULT '',
    at              timestamptz NOT NULL DEFAULT now(),
    UNIQUE (kernel_id, unit, device),
    CONSTRAINT ledger_amount CHECK (
        ended_at >= began_at
        AND CASE WHEN kernel_id IS NULL
            THEN reason <> '' AND rate = 0 AND began_at = ended_at
            ELSE reason = '' AND rate >= 0
                AND amount = rate * extract(epoch FROM ended_at - began_at)::bigint END
    )
);

CREATE INDEX ledger_by_time ON ledger (ended_at);
CREATE TRIGGER ledger_stays BEFORE UPDATE ON ledger
    FOR EACH STATEMENT EXECUTE FUNCTION ledger_stays();

-- Sums of the ledger and of usage_hours by month.
CREATE TABLE ledger_months (
    at              timestamptz NOT NULL CHECK (at = date_trunc('month', at, 'UTC')),
    project         text NOT NULL,
    username        text NOT NULL,
    key_id          text NOT NULL,
    model           text NOT NULL,
    endpoint        text NOT NULL,
    resource_group  text NOT NULL,
    unit            text NOT NULL
        CHECK (unit IN ('gpu', 'cpu', 'memory', 'node', 'requests', 'tokens_in', 'tokens_out',
            'tokens_cached')),
    device          text NOT NULL,
    amount          numeric NOT NULL CHECK (amount = trunc(amount)),
    PRIMARY KEY (at, project, username, key_id, model, endpoint, resource_group, unit, device)
);

-- Prices in millionths, valid from a whole hour on: for an hour (gpu, cpu, node), for a GiB for an
-- hour (memory), or for a million (requests, tokens).
CREATE TABLE prices (
    unit            text NOT NULL
        CHECK (unit IN ('gpu', 'cpu', 'memory', 'node', 'requests', 'tokens_in', 'tokens_out',
            'tokens_cached')),
    device          text NOT NULL,
    resource_group  text NOT NULL,
    since           timestamptz NOT NULL CHECK (since = date_trunc('hour', since, 'UTC')),
    price           bigint NOT NULL CHECK (price >= 0),
    changed_at      timestamptz NOT NULL DEFAULT now(),
    changed_by      text NOT NULL,
    PRIMARY KEY (unit, device, resource_group, since)
);

CREATE TABLE budgets (
    scope        text NOT NULL CHECK (scope IN ('project', 'user', 'key')),
    name         text NOT NULL,
    unit         text NOT NULL
        CHECK (unit IN ('gpu', 'cpu', 'memory', 'node', 'requests', 'tokens', 'tokens_in',
            'tokens_out', 'money')),
    period       text NOT NULL CHECK (period IN ('day', 'week', 'month', 'year')),
    soft         bigint CHECK (soft >= 0),
    hard         bigint CHECK (hard >= 0),
    policy       text NOT NULL CHECK (policy IN ('continue', 'stop')),
    used         bigint NOT NULL DEFAULT 0,
    level        text NOT NULL DEFAULT 'ok' CHECK (level IN ('ok', 'soft', 'hard')),
    resets_at    timestamptz NOT NULL,
    measured_at  timestamptz,
    changed_at   timestamptz NOT NULL DEFAULT now(),
    changed_by   text NOT NULL,
    PRIMARY KEY (scope, name, unit, period),
    CHECK (coalesce(soft, hard) IS NOT NULL AND coalesce(soft <= hard, true))
);

CREATE INDEX budgets_reached ON budgets (resets_at) WHERE level <> 'ok';

-- Limits that were reached, each recorded once per period, no matter which manager sums up the
-- usage.
CREATE TABLE budget_alerts (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope      text NOT NULL,
    name       text NOT NULL,
    unit       text NOT NULL,
    period     text NOT NULL,
    resets_at  timestamptz NOT NULL,
    level      text NOT NULL CHECK (level IN ('soft', 'hard')),
    threshold  bigint NOT NULL,
    used       bigint NOT NULL,
    at         timestamptz NOT NULL DEFAULT now(),
    UNIQUE (scope, name, unit, period, resets_at, level, threshold),
    CHECK (used >= threshold)
);

CREATE INDEX budget_alerts_by_time ON budget_alerts (at);
