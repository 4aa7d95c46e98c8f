"""The baseline of the migrations, and the release that upgrades what is older. Pure."""

# The oldest schema that this release upgrades, which the first migration makes.
OLDEST_SCHEMA = "202611272025"
# A commit whose newest schema that is. It has the migrations that lead there.
RELEASE_BEFORE = "fa770f84"
