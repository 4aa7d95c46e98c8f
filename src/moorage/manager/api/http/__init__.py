"""HTTP without a subject: routes, requests, problems, rights and the OpenAPI document."""
