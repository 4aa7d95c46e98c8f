"""Generated gRPC code (never edited; ``make proto``) and ``codec``, the only place where messages meet protobuf."""
