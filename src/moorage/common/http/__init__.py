"""HTTP for both sides: guarded servers, exclusive client connections, TLS files."""
