-- Users and projects are never deleted or renamed: sessions name them in `owner` and `project`.
CREATE TABLE users (
    id             uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
    name           text PRIMARY KEY CHECK (name <> ''),
    email          text NOT NULL DEFAULT '',
    status         text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled')),
    platform_role  text CHECK (platform_role IN ('auditor', 'admin')),
    created_at     timestamptz NOT NULL DEFAULT now(),
    created_by     text NOT NULL DEFAULT '',
    version        bigint NOT NULL DEFAULT nextval('resource_versions')
);

CREATE TRIGGER users_take_version BEFORE UPDATE OF email, status, platform_role ON users
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION take_version();

-- `reuse`: NULL means that the resource group decides.
CREATE TABLE projects (
    id                   uuid NOT NULL DEFAULT gen_random_uuid() UNIQUE,
    name                 text PRIMARY KEY CHECK (name <> ''),
    status               text NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'disabled')),
    max_priority         integer CHECK (max_priority BETWEEN 0 AND 100),
    resource_groups      text[],
    created_at           timestamptz NOT NULL DEFAULT now(),
    created_by           text NOT NULL DEFAULT '',
    requests_per_minute  integer CHECK (requests_per_minute >= 0),
    tokens_per_minute    integer CHECK (tokens_per_minute >= 0),
    concurrent_requests  integer CHECK (concurrent_requests >= 0),
    version              bigint NOT NULL DEFAULT nextval('resource_versions'),
    reuse                text CHECK (reuse IN ('never', 'success', 'live', 'both'))
);

CREATE TRIGGER projects_current_groups BEFORE INSERT OR UPDATE OF resource_groups ON projects
    FOR EACH ROW WHEN (NEW.resource_groups IS NOT NULL) EXECUTE FUNCTION allowed_current_groups();
CREATE TRIGGER projects_take_version BEFORE UPDATE OF
    status, max_priority, resource_groups, requests_per_minute, tokens_per_minute,
    concurrent_requests, reuse ON projects
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION take_version();

INSERT INTO projects (name) VALUES ('default');

CREATE TABLE memberships (
    project     text NOT NULL REFERENCES projects,
    user_name   text NOT NULL REFERENCES users,
    role        text NOT NULL CHECK (role IN ('viewer', 'member', 'admin')),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    changed_by  text NOT NULL DEFAULT '',
    PRIMARY KEY (project, user_name)
);

CREATE INDEX memberships_by_user ON memberships (user_name);

-- `granted_role`: the role with which the key was created; `role` only distinguishes members from
-- administrators. `kept_priority`: a priority that the key may request although it is above the
-- ceiling of its role, because the key predates ceilings.
CREATE TABLE api_keys (
    id                   uuid PRIMARY KEY,
    name                 text NOT NULL,
    role                 text NOT NULL CHECK (role IN ('admin', 'member')),
    prefix               text NOT NULL,
    sha256               text NOT NULL UNIQUE CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    created_at           timestamptz NOT NULL DEFAULT now(),
    expires_at           timestamptz,
    revoked_at           timestamptz,
    owner                text NOT NULL,
    project              text NOT NULL DEFAULT 'default' CHECK (project <> ''),
    last_used_at         timestamptz,
    created_by           text NOT NULL DEFAULT '',
    revoked_by           text NOT NULL DEFAULT '',
    granted_role         text
        CHECK (granted_role IN ('viewer', 'member', 'project-admin', 'auditor', 'admin')),
    scopes               text[],
    models               text[],
    resource_groups      text[],
    max_priority         integer CHECK (max_priority BETWEEN 0 AND 100),
    requests_per_minute  integer CHECK (requests_per_minute >= 0),
    tokens_per_minute    integer CHECK (tokens_per_minute >= 0),
    concurrent_requests  integer CHECK (concurrent_requests >= 0),
    previous_sha256      text UNIQUE CHECK (previous_sha256 ~ '^[0-9a-f]{64}$'),
    previous_until       timestamptz,
    version              bigint NOT NULL DEFAULT nextval('resource_versions'),
    kept_priority        integer CHECK (kept_priority BETWEEN 0 AND 100),
    CONSTRAINT only_admins_are_admins CHECK (
        (role = 'admin') = (coalesce(granted_role, role) = 'admin')
    )
);

CREATE UNIQUE INDEX one_live_key_per_name ON api_keys (name) WHERE revoked_at IS NULL;
CREATE INDEX api_keys_by_name ON api_keys (name);
CREATE TRIGGER api_keys_current_groups BEFORE INSERT OR UPDATE OF resource_groups ON api_keys
    FOR EACH ROW WHEN (NEW.resource_groups IS NOT NULL) EXECUTE FUNCTION allowed_current_groups();
CREATE TRIGGER api_keys_owner AFTER INSERT ON api_keys
    FOR EACH ROW EXECUTE FUNCTION make_key_owner();
CREATE TRIGGER api_keys_take_version BEFORE UPDATE OF
    scopes, models, resource_groups, max_priority, requests_per_minute, tokens_per_minute,
    concurrent_requests, expires_at, sha256, revoked_at ON api_keys
    FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION take_version();

-- Passwords are stored apart from users, so that no listing of users can show them.
CREATE TABLE user_passwords (
    user_name   text PRIMARY KEY REFERENCES users,
    hash        text NOT NULL CHECK (hash LIKE '$argon2id$%'),
    changed_at  timestamptz NOT NULL DEFAULT now(),
    changed_by  text NOT NULL DEFAULT ''
);

-- Failed attempts by the name that was typed, whether or not there is such a user: a lock does not
-- reveal which users exist.
CREATE TABLE sign_in_attempts (
    name          text PRIMARY KEY,
    failures      integer NOT NULL,
    at            timestamptz NOT NULL DEFAULT now(),
    locked_until  timestamptz
);

CREATE INDEX sign_in_attempts_by_time ON sign_in_attempts (at);

CREATE TABLE console_sessions (
    id            uuid PRIMARY KEY,
    user_name     text NOT NULL REFERENCES users,
    key_id        uuid REFERENCES api_keys,
    project       text NOT NULL,
    sha256        text NOT NULL UNIQUE,
    from_address  text NOT NULL DEFAULT '',
    created_at    timestamptz NOT NULL DEFAULT now(),
    expires_at    timestamptz NOT NULL,
    idle_s        integer NOT NULL CHECK (idle_s > 0),
    last_seen_at  timestamptz NOT NULL DEFAULT now(),
    ended_at      timestamptz,
    by_oidc       boolean NOT NULL DEFAULT false,
    CHECK (expires_at > created_at)
);

CREATE INDEX console_sessions_by_user ON console_sessions (user_name);
CREATE INDEX console_sessions_by_end ON console_sessions (expires_at);

-- People of the OpenID provider. The table records the roles that rules have granted, so that rules
-- withdraw only those.
CREATE TABLE oidc_identities (
    user_name         text PRIMARY KEY REFERENCES users,
    issuer            text NOT NULL CHECK (issuer <> ''),
    subject           text NOT NULL CHECK (subject <> ''),
    granted_role      text CHECK (granted_role IN ('auditor', 'admin')),
    granted_projects  jsonb NOT NULL DEFAULT '{}' CHECK (jsonb_typeof(granted_projects) = 'object'),
    created_at        timestamptz NOT NULL DEFAULT now(),
    last_sign_in_at   timestamptz,
    UNIQUE (issuer, subject)
);

-- A key that was registered with an API key has the rights of that API key and ends with it. A
-- public key belongs to one user, because users with the same key could not be told apart.
-- `proved`: the user has shown possession of the private half.
CREATE TABLE user_ssh_keys (
    id            uuid PRIMARY KEY,
    user_name     text NOT NULL REFERENCES users,
    name          text NOT NULL CHECK (name <> ''),
    key_id        uuid REFERENCES api_keys,
    fingerprint   text NOT NULL UNIQUE CHECK (fingerprint ~ '^SHA256:[A-Za-z0-9+/]{43}$'),
    public_key    text NOT NULL CHECK (
        public_key ~ '^(ssh-rsa|(sk-)?(ssh-ed25519|ecdsa-sha2-nistp[0-9]+)(@openssh[.]com)?) '
    ),
    created_at    timestamptz NOT NULL DEFAULT now(),
    created_by    text NOT NULL DEFAULT '',
    last_used_at  timestamptz,
    proved        boolean NOT NULL DEFAULT false,
    UNIQUE (user_name, name),
    CHECK (fingerprint = 'SHA256:' || rtrim(encode(
        sha256(decode(split_part(public_key, ' ', 2), 'base64')), 'base64'), '='))
);

CREATE INDEX user_ssh_keys_by_api_key ON user_ssh_keys (key_id) WHERE key_id IS NOT NULL;

-- `sealed`: nonce, ciphertext and tag; the key is not in the database. `deleted_at`: hidden, and
-- kept for the sessions that refer to it.
CREATE TABLE secrets (
    project     text NOT NULL,
    name        text NOT NULL,
    version     bigint NOT NULL DEFAULT 1,
    key_id      text NOT NULL,
    sealed      bytea NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    created_by  text NOT NULL,
    changed_at  timestamptz NOT NULL DEFAULT now(),
    changed_by  text NOT NULL,
    deleted_at  timestamptz,
    PRIMARY KEY (project, name)
);
