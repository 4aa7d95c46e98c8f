"""Generated gRPC code (never edited; ``make proto``) and ``codec``, where messages meet protobuf."""
