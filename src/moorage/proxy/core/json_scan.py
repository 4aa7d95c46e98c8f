"""JSON scanner: reads the value at a position in a text, and returns its end.

This is the scanner behind ``json.loads``, which ignores the text around the value. It raises
``StopIteration`` if no value begins there, and ``ValueError`` for an invalid one.
"""

from __future__ import annotations

import json
from json.scanner import make_scanner

# Typeshed requires a scanner's context, which a decoder is.
scan = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]
