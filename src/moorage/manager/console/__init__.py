"""Web console: the built files of ``console/``, served below ``/console``.

The build is committed in ``bundle/``, so that running it requires no Node.js; ``make console``
rebuilds it.
"""

from moorage.manager.console.chat import ModelAddress as ModelAddress
from moorage.manager.console.files import add_console as add_console
