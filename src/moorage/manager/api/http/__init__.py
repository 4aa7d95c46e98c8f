"""HTTP layer independent of subjects: routes, requests, problems, access rights and the OpenAPI
document."""
