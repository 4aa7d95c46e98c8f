-- Record a beat of manager $1, which is reached at $2 (version: $3; connected proxies: $4; links of
-- agents and of proxies: $5 and $6; its clock: $7, in Unix seconds; where its proxies accept
-- connections from agents that only dial out: $8; addresses of agents that do not answer, by proxy:
-- $9; senders of secrets over loopback without TLS: $10). Returns all managers with the beats and
-- counts that they had before.
WITH beat AS (
    INSERT INTO managers AS m (id, link, version, beat, proxies, agent_links, proxy_links,
                               clock_ahead_s, dialout, asks, plain_senders)
    VALUES ($1, $2, $3, 1, $4, $5, $6, $7::float8 - extract(epoch FROM clock_timestamp())::float8,
            $8, $9, $10)
    ON CONFLICT (id) DO UPDATE SET
        link = excluded.link, version = excluded.version, beat = m.beat + 1,
        proxies = excluded.proxies, agent_links = excluded.agent_links,
        proxy_links = excluded.proxy_links,
        clock_ahead_s = excluded.clock_ahead_s, dialout = excluded.dialout,
        asks = excluded.asks, plain_senders = excluded.plain_senders
)
SELECT id, link, beat, agent_links, proxy_links, dialout FROM managers
