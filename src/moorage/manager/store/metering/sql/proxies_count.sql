-- Proxies that are connected to any manager.
SELECT count(DISTINCT name) AS n FROM managers, unnest(proxies) AS name
