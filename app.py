"""The CDK app: settings from cdk.json and ``-c name=value``, one stack. Run by ``cdk synth``."""

import os
import sys
from collections.abc import Mapping

try:
    import aws_cdk as cdk

    from stacks.cluster import ClusterStack
    from stacks.props import ClusterProps, SettingsError
except ModuleNotFoundError as missing:
    advice = "activate the environment that has requirements.txt installed, as in: . .venv/bin/activate"
    sys.exit(f"error: {sys.executable} has no {missing.name}: {advice}")


def main() -> int:
    """Synthesize the stack; a setting that cannot be used is one line on stderr."""
    app = cdk.App()
    env = _environment(os.environ)
    try:
        props = ClusterProps.from_context(app.node.get_all_context())
        if env and env.region:
            props.check_region(env.region)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    ClusterStack(app, "ClusterStack", props=props, env=env)
    app.synth()
    return 0


def _environment(variables: Mapping[str, str]) -> cdk.Environment | None:
    # The CDK CLI sets the account when it has credentials; without them the stack fits any.
    account = variables.get("CDK_DEFAULT_ACCOUNT")
    return cdk.Environment(account=account, region=variables.get("CDK_DEFAULT_REGION")) if account else None


if __name__ == "__main__":
    sys.exit(main())
