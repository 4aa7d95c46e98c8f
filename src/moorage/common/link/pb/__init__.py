"""Generated gRPC code. Do not edit; run ``make proto``."""
