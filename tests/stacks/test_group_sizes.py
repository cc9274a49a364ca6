"""Check the sizes of the groups in the template, and that a paused cluster can stay paused through a deploy."""

from collections.abc import Callable
from typing import Any

import pytest

from cli.aws.deployed_template import DeployedTemplate
from stacks.settings.props import ClusterProps
from tests.stacks.template_parts import Template, resources

Synthesize = Callable[..., Template]


def test_deploy_leaves_sizes_alone_that_it_does_not_change(template: Template) -> None:
    groups = resources(template, "AWS::AutoScaling::AutoScalingGroup")
    assert [group["UpdatePolicy"] for group in groups] == [
        {"AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}}
    ] * 2


@pytest.mark.parametrize("settings", [{}, {"worker_count": 0}, {"worker_count": 4, "min_workers": 1}], ids=str)
def test_dlcluster_reads_from_the_template_what_the_settings_declare(
    synthesize: Synthesize, settings: dict[str, Any]
) -> None:
    props = ClusterProps(**settings)
    deployed = DeployedTemplate(stack_name="x", resources=synthesize(**settings)["Resources"])
    assert deployed.sizes(props.cluster_name) == props.initial_sizes
