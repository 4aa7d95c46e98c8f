"""Incremental planning: planners that are kept between passes and examine only what changed.

Pure. The plans are those of ``planning.plan``: a property of the tests holds them to it.
"""
