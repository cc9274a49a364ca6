"""Synthesize stacks like ``cdk synth``, with cdk.json's context, but without the validators of test_validators."""

import json
from typing import Any

import aws_cdk as cdk
import pytest

from stacks.settings.props import ClusterProps
from stacks.stack import ClusterStack
from tests.stacks.synthesis import REPOSITORY, Synthesize


@pytest.fixture(scope="session")
def context() -> dict[str, Any]:
    return dict(json.loads((REPOSITORY / "cdk.json").read_text())["context"])


@pytest.fixture(scope="session")
def synthesize(context: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Synthesize:
    """Synthesize a stack of the given settings and return its template."""

    def run(**settings: Any) -> dict[str, Any]:
        outdir = tmp_path_factory.mktemp("cdk.out")
        app = cdk.App(context=context, outdir=str(outdir), builtin_cloud_formation_validation=False)
        ClusterStack(app, "ClusterStack", props=ClusterProps(**settings))
        app.synth()
        return dict(json.loads((outdir / "ClusterStack.template.json").read_text()))

    return run


@pytest.fixture(scope="session")
def template(synthesize: Synthesize) -> dict[str, Any]:
    return synthesize(worker_count=2, key_name="mine", ssh_location="203.0.113.0/24", tags={"team": "vision"})
