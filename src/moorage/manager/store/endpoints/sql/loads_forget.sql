-- Delete proxies that have been silent for $1 seconds, with their loads.
DELETE FROM proxy_reports WHERE at < now() - make_interval(secs => $1) RETURNING proxy_id
