"""Synthesize many settings, as fast as this machine can.

An app takes a second or two however few stacks it has, so each has many. jsii keeps all objects until its process ends,
so more than one app needs more than one process.
"""

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from stacks.settings.props import ClusterProps
from stacks.stack import ClusterStack
from tests.stacks.pinned_block import ACCOUNT, with_block

STACKS_AN_APP = 50
APPS_A_PROCESS = 4


def synthesize_all(props: Sequence[ClusterProps], context: Mapping[str, Any], outdir: Path) -> dict[Path, ClusterProps]:
    """Return the path of each template, with its settings. Raises on settings that give no template."""
    batches = [props[start : start + STACKS_AN_APP] for start in range(0, len(props), STACKS_AN_APP)]
    outdirs = [outdir / str(number) for number in range(len(batches))]
    synthesize = partial(_synthesize, context)
    if len(batches) == 1:
        paths = [synthesize(batches[0], outdirs[0])]
    else:
        spawn = multiprocessing.get_context("spawn")
        # ProcessPoolExecutor's max_tasks_per_child may hang (https://github.com/python/cpython/issues/115634).
        with spawn.Pool(os.cpu_count(), maxtasksperchild=APPS_A_PROCESS) as pool:
            paths = pool.starmap(synthesize, zip(batches, outdirs, strict=True), chunksize=1)
    return {
        path: one for batch, made in zip(batches, paths, strict=True) for one, path in zip(batch, made, strict=True)
    }


def _synthesize(context: Mapping[str, Any], props: Sequence[ClusterProps], outdir: Path) -> list[Path]:
    stacks = [_placed(one, number) for number, one in enumerate(props)]
    pins = {name: value for _, _, looked_up in stacks for name, value in looked_up.items()}
    # The CDK's own validator runs in test_validators; cfn-lint runs on the templates.
    app = cdk.App(context={**context, **pins}, outdir=str(outdir), builtin_cloud_formation_validation=False)
    for number, (one, env, _) in enumerate(stacks):
        try:
            ClusterStack(app, f"Stack{number}", props=one, env=env)
        except Exception as error:
            error.add_note(f"no template of {one}")
            raise
    app.synth()
    return [outdir / f"Stack{number}.template.json" for number in range(len(stacks))]


def _placed(props: ClusterProps, number: int) -> tuple[ClusterProps, cdk.Environment | None, dict[str, Any]]:
    """Give a block what its lookup needs: dates, and a region that has the zone of the settings."""
    if not props.uses_capacity_block:
        return props, None, {}
    region = "us-west-2" if (props.availability_zone or "").startswith("us-west-2") else "us-east-1"
    fitting, pins = with_block(props, number, region)
    return fitting, cdk.Environment(account=ACCOUNT, region=region), pins
