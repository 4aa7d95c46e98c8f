"""gRPC links between the components: messages, deltas, codecs, identities and TLS."""
