"""``dlcluster preflight [-c name=value ...]``: check before a deploy of ./cdk.json that it can succeed."""

import os
import sys
from dataclasses import asdict
from pathlib import Path

import click

from cli.cdk.context import cdk_option, read_context, read_props
from cli.command import cluster_command
from cli.errors import EXIT_FAILED
from cli.output import STYLES, json_option, print_json
from cli.preflight.checks import all_findings
from cli.preflight.finding import Finding
from cli.shared_options import Selection


@cluster_command(
    "preflight", examples=("dlcluster preflight", "dlcluster preflight -c worker_count=3 -c instance_type=g6.xlarge")
)
@json_option
@cdk_option
def command(selection: Selection, *, cdk_options: tuple[str, ...], as_json: bool) -> int:
    """Check quotas, permissions and settings before a deploy of the cluster of ./cdk.json.

    It prints one line per finding, the price last, and changes nothing. Exit code 1 means that one is a problem.
    """
    cluster_option = [f"cluster_name={selection.cluster}"] if selection.cluster else []
    settings = read_context(Path.cwd(), [*cdk_options, *cluster_option])
    props = read_props(settings)
    findings = []
    for finding in all_findings(selection.region, props, settings):
        findings.append(finding)
        if not as_json:
            _show(finding)
    problems = sum(finding.level == "problem" for finding in findings)
    if as_json:
        print_json(ok=not problems, findings=[asdict(finding) for finding in findings])
    elif problems:
        print(f"dlcluster: {problems} {'problem' if problems == 1 else 'problems'} above", file=sys.stderr)
    return EXIT_FAILED if problems else 0


def _show(finding: Finding) -> None:
    """Print a finding immediately, because the checks take seconds; click drops the color without a terminal."""
    level = click.style(finding.level, fg=STYLES[finding.level], bold=True)
    color = False if os.environ.get("NO_COLOR") else None
    click.echo(f"{level}{str(finding).removeprefix(finding.level)}", color=color)
