"""Test the outputs of a stack of the user's own that contains the cluster."""

import json
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from constructs import Construct

from bootstrap import contract
from stacks.cluster import DeepLearningCluster
from stacks.settings.props import ClusterProps


def props(cluster_name: str) -> ClusterProps:
    return ClusterProps(cluster_name=cluster_name, worker_count=1, key_name="me", shared_storage="efs")


def test_users_own_stack_has_the_outputs_by_which_dlcluster_finds_a_cluster(
    context: dict[str, Any], tmp_path: Path
) -> None:
    app = cdk.App(context=context, outdir=str(tmp_path), builtin_cloud_formation_validation=False)
    stack = cdk.Stack(app, "Vision")
    # The user's constructs may have the names of outputs.
    Construct(stack, contract.SHARED_STORAGE_OUTPUT)
    DeepLearningCluster(Construct(stack, "Team"), "Training", props=props("vision"))
    app.synth()
    outputs = json.loads((tmp_path / "Vision.template.json").read_text())["Outputs"]
    assert outputs[contract.CLUSTER_NAME_OUTPUT]["Value"] == "vision"
    assert {contract.TABLE_OUTPUT, contract.LOGIN_USER_OUTPUT, contract.SHARED_STORAGE_OUTPUT} <= outputs.keys()


def test_stack_contains_one_cluster(context: dict[str, Any], tmp_path: Path) -> None:
    app = cdk.App(context=context, outdir=str(tmp_path))
    stack = cdk.Stack(app, "Vision")
    DeepLearningCluster(stack, "Training", props=props("vision"))
    # A nested stack may have one of its own.
    DeepLearningCluster(cdk.NestedStack(stack, "Nested"), "Training", props=props("nested"))
    message = "^stack Vision must have one DeepLearningCluster, got vision and speech$"
    with pytest.raises(ValueError, match=message):
        DeepLearningCluster(stack, "Second", props=props("speech"))
