"""JSON scanner: reads the value that begins at a position of a text, and says where it ends.

The scanner behind ``json.loads``, which does not look at what surrounds the value. Raises
``StopIteration`` where no value begins, and ``ValueError`` for a broken one.
"""

from __future__ import annotations

import json
from json.scanner import make_scanner

# Typeshed asks for a scanner's context; a decoder is one.
scan = make_scanner(json.JSONDecoder())  # type: ignore[arg-type]
