"""Give nodes, which have no internet here, one package as a wheel, where their pip looks for it.

A script of ``setup`` brings the wheel, so that ``requirements`` installs it as it does from PyPI. The wheel is packed
from what this Python has installed.
"""

import base64
import importlib.metadata
import io
import zipfile
from typing import Final

INSTALLERS_OWN: Final = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json")
"""Files beside a package that pip wrote here; it writes them anew on a node."""
SCRIPT: Final = """\
#!/bin/bash
set -euo pipefail
mkdir -p /srv/wheels
base64 --decode >/srv/wheels/{name} <<'END'
{wheel}
END
printf '[global]\\nno-index = true\\nfind-links = /srv/wheels\\n' >/etc/pip.conf
"""


def mirror_script(package: str) -> str:
    """Return a script for ``setup`` that puts the wheel of a package of pure Python without dependencies on a node."""
    distribution = importlib.metadata.distribution(package)
    name = f"{package}-{distribution.version}-py3-none-any.whl"
    return SCRIPT.format(name=name, wheel=base64.encodebytes(_wheel(distribution)).decode().strip())


def _wheel(distribution: importlib.metadata.Distribution) -> bytes:
    files = [path for path in distribution.files or () if ".." not in path.parts and path.suffix != ".pyc"]
    content = {str(file): file.read_binary() for file in files if file.name not in INSTALLERS_OWN}
    [record] = [str(file) for file in files if file.name == "RECORD"]
    # pip compares no hashes of an archive's files with its record.
    content[record] = "".join(f"{name},,\n" for name in (*content, record)).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return packed.getvalue()
