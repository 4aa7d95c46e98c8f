-- Limits of projects that have any.
SELECT name, requests_per_minute, tokens_per_minute, concurrent_requests FROM projects
WHERE num_nonnulls(requests_per_minute, tokens_per_minute, concurrent_requests) > 0 ORDER BY name
