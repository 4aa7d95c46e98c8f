"""Web console: the built files of ``console/``, served below ``/console``.

The build is committed in ``bundle/``, so that running it needs no Node.js; ``make console`` builds
it anew.
"""

from moorage.manager.console.chat import ModelAddress as ModelAddress
from moorage.manager.console.files import add_console as add_console
