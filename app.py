"""Build the stack of the settings in cdk.json and ``-c name=value``; ``cdk synth`` runs this file."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from stacks.interrupts import exit_on_interrupt
from stacks.missing_package import missing_message

exit_on_interrupt()

try:
    import aws_cdk as cdk
    from aws_cdk.cx_api import SynthesisMessageLevel

    from stacks.settings.base import SettingsError
    from stacks.settings.parsing import check_look_ups, check_settings_are_in_context
    from stacks.settings.props import ClusterProps
    from stacks.stack import ClusterStack
except ModuleNotFoundError as missing:
    sys.exit(f"error: {missing_message(missing.name)}")

WITHOUT_TRACES: Final = {"aws:cdk:disable-stack-trace": True}
"""Context without which the CDK's command line prints a line of jsii's own code above the price and each message."""
VALIDATION_REPORT: Final = "validation-report.json"
"""The CDK's report of annotations and broken rules, in the directory of the synth."""


def main() -> int:
    """Synthesize the stack, or print one line for a setting that cannot be used."""
    try:
        check_settings_are_in_context(Path("cdk.json"))  # the CDK runs this in the directory of cdk.json
        app = cdk.App(context=WITHOUT_TRACES)
        env = _environment(os.environ)
        check_look_ups(app.node.get_all_context())
        props = ClusterProps.from_context(app.node.get_all_context())
        if props.has_expired or props.unreachable_master_reason or props.uses_capacity_block:
            # Keep the error in the stack's metadata, where it stops only a deploy. In the validation report it would
            # stop every synth, and with it cdk destroy.
            app = cdk.App(
                context=WITHOUT_TRACES, post_cli_context={"@aws-cdk/core:annotationsInValidationReport": False}
            )
            # With CDK_VALIDATION=false, no new report replaces the last synth's, in which the CDK's command line would
            # find no error.
            (Path(app.outdir) / VALIDATION_REPORT).unlink(missing_ok=True)
        if env and env.region:
            props.check_region(env.region)
        stack = ClusterStack(app, "ClusterStack", props=props, env=env)
    except SettingsError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    assembly = app.synth()
    messages = assembly.get_stack_artifact(stack.artifact_id).messages
    # The CDK's command line answers look-ups that miss, and runs this once more.
    is_reported = not (props.has_expired or props.uses_capacity_block or _misses_look_ups(assembly.directory))
    if is_reported and any(message.level == SynthesisMessageLevel.WARNING for message in messages):
        # The report of warnings takes the place of all other messages.
        for message in messages:
            if message.level == SynthesisMessageLevel.INFO:
                print(message.entry.data, file=sys.stderr)
    return 0


def _misses_look_ups(outdir: str) -> bool:
    return "missing" in json.loads((Path(outdir) / "manifest.json").read_text())


def _environment(variables: Mapping[str, str]) -> cdk.Environment | None:
    # The CDK's command line sets the account when it has credentials; without them the stack fits any account.
    account = variables.get("CDK_DEFAULT_ACCOUNT")
    return cdk.Environment(account=account, region=variables.get("CDK_DEFAULT_REGION")) if account else None


if __name__ == "__main__":
    sys.exit(main())
