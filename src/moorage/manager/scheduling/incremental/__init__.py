"""Incremental planning: planners that are kept between passes and examine only what changed.

Pure. The plans equal those of ``planning.plan``, which a property test checks.
"""
