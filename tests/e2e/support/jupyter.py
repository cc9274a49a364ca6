"""Stand in for JupyterLab on a node, and read from what ``dlcluster jupyter`` prints where it is."""

import re
from typing import Final

STAND_IN: Final = '''\
"""Stand in for JupyterLab: take its options and its variable for the token, and serve what needs the token."""
import os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
options = dict(word.split("=") for word in sys.argv[1:] if "=" in word)
class Lab(BaseHTTPRequestHandler):
    def do_GET(self):
        allowed = self.path == f"/lab?token={os.environ['JUPYTER_TOKEN']}"
        self.send_response(200 if allowed else 403)
        self.end_headers()
        self.wfile.write(os.getcwd().encode() if allowed else b"")
HTTPServer((options["--ServerApp.ip"], int(options["--ServerApp.port"])), Lab).serve_forever()
'''
FILES: Final = {"jupyterlab/__init__.py": "", "jupyterlab/__main__.py": STAND_IN}
"""Files of the module, for an environment of the user's."""


def address_and_token(line: str) -> tuple[str, str]:
    """Return the address on the laptop, and the token, from the line that the command prints."""
    match = re.match(r"(http://127\.0\.0\.1:\d+/)lab\?token=([0-9a-f]{48}) is JupyterLab on the master", line)
    assert match, line
    return match[1], match[2]
