"""Check the Auto Scaling groups in the template: names, drain hook, signal count and sizes."""

from typing import Any

import pytest

from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps
from tests.stacks.synthesis import Synthesize
from tests.stacks.template_parts import Template, resources


def groups(template: Template) -> dict[str, Any]:
    """Return the Auto Scaling groups by name."""
    found = resources(template, "AWS::AutoScaling::AutoScalingGroup")
    return {group["Properties"]["AutoScalingGroupName"]: group for group in found}


def test_nodes_know_their_groups_by_name_before_they_exist(template: Template) -> None:
    assert set(groups(template)) == {"deeplearning-master", "deeplearning-worker"}


def test_terminating_node_may_delay_its_end_but_not_prevent_it(template: Template) -> None:
    for group in groups(template).values():
        assert group["Properties"]["LifecycleHookSpecificationList"] == [
            {
                "LifecycleHookName": "drain",
                "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
                "HeartbeatTimeout": 30,
                "DefaultResult": "CONTINUE",
            }
        ]


@pytest.mark.parametrize(("minimum", "signals"), [(None, 4), (4, 4), (1, 1)])
def test_deploy_waits_for_the_workers_that_it_needs(synthesize: Synthesize, minimum: int | None, signals: int) -> None:
    group = groups(synthesize(worker_count=4, min_workers=minimum))["deeplearning-worker"]
    assert group["CreationPolicy"]["ResourceSignal"]["Count"] == signals
    sizes = [group["Properties"][name] for name in ("MinSize", "DesiredCapacity", "MaxSize")]
    assert sizes == [str(signals), "4", "4"]


def test_deploy_waits_for_no_worker_when_it_needs_none(synthesize: Synthesize) -> None:
    group = groups(synthesize(worker_count=4, min_workers=0))["deeplearning-worker"]
    assert "CreationPolicy" not in group


@pytest.mark.parametrize("minimum", [-1, 5])
def test_min_workers_outside_0_to_worker_count_is_refused(minimum: int) -> None:
    with pytest.raises(SettingsError, match=f"min_workers must be 0 to worker_count, which is 4, got {minimum}"):
        ClusterProps(worker_count=4, min_workers=minimum)
