-- Peers that have joined, each with the address of the manager that it is connected to.
SELECT p.id, p.kind, p.name, p.resource_group, p.joined_at, p.certificate_until,
       p.token_id AS token, (
           SELECT m.link FROM managers m
           WHERE CASE p.kind WHEN 'proxy' THEN p.name = ANY (m.proxies)
                 ELSE m.id = (SELECT a.manager FROM agents a
                              WHERE a.id = p.name
                                AND a.detached_stream IS DISTINCT FROM a.stream) END
           LIMIT 1) AS manager
FROM link_peers p WHERE p.revoked_at IS NULL
