"""Run ``cdk deploy`` in the current directory, as the user would."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from cli.cdk.context import APP_FILE
from cli.cdk.settings_file import write_setting
from cli.errors import ClusterError, UsageError

CDK: Final = "cdk"


def deploy_command(cdk_options: Sequence[str], parameters: Mapping[str, str] | None = None) -> list[str]:
    """Return the command, as a list of arguments, that deploys ./cdk.json; `parameters` are the stack's."""
    pairs = [f"{name}={value}" for name, value in (parameters or {}).items()]
    return [
        *(CDK, "deploy"),
        *(word for pair in cdk_options for word in ("-c", pair)),
        *(word for pair in pairs for word in ("--parameters", pair)),
    ]


def require_cdk() -> None:
    """Raise UsageError if the CDK's command line is not installed."""
    if shutil.which(CDK) is None:
        raise UsageError("no cdk on the PATH: npm install -g aws-cdk, or add --no-deploy and deploy where there is one")


def set_and_deploy(name: str, value: object, *, cdk_options: Sequence[str], region: str, deploy: bool) -> None:
    """Write a setting to ./cdk.json and deploy, or print the command that does. Raises ClusterError."""
    command = deploy_command(cdk_options)
    if deploy:
        require_cdk()
    write_setting(Path.cwd() / APP_FILE, name, value)
    if not deploy:
        print(f"dlcluster: {APP_FILE} has {name} {value} now; to apply it, run: {shlex.join(command)}", file=sys.stderr)
        return
    print(f"dlcluster: {APP_FILE} has {name} {value} now; running {shlex.join(command)}", file=sys.stderr)
    if status := run_deploy(command, region=region):
        raise ClusterError(
            f"cdk deploy failed with exit code {status}; {APP_FILE} keeps {name} {value}: "
            "fix the error above and run the same command again (dlcluster why says more)"
        )


def run_deploy(command: Sequence[str], *, region: str) -> int:
    """Run what ``deploy_command`` returns; return the exit code."""
    # The CDK itself asks on this terminal before it widens any permission.
    return subprocess.run(command, env={**os.environ, "AWS_REGION": region}, stdout=sys.stderr, check=False).returncode
