-- Store the CA of the links ($1 certificate, $2 sealed key) unless another manager did so first.
INSERT INTO link_authority (name, certificate, key) VALUES ('links', $1, $2)
ON CONFLICT (name) DO NOTHING
RETURNING name
