"""HTTP layer that all subjects share: routes, requests, problems, access rights and the OpenAPI
document."""
