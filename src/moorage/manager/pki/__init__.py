"""Public key infrastructure of the links: certificate authority, registration of peers, SSH key
pairs of clusters."""
