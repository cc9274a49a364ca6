"""Check the answers to the names that other tools give their settings."""

from typing import Any

import pytest

from stacks.settings.base import SettingsError
from stacks.settings.props import ClusterProps


@pytest.mark.parametrize(
    ("context", "answer"),
    [
        ({"use_spot": "true"}, "'use_spot', did you mean purchase=spot?"),
        ({"num_nodes": 3}, "'num_nodes', did you mean worker_count (the nodes besides the master)?"),
        ({"node_count": 3}, "'node_count', did you mean worker_count (the nodes besides the master)?"),
        ({"accelerators": "L4:1"}, "'accelerators', did you mean instance_type, such as g6.xlarge?"),
        ({"disk_size": 200}, "'disk_size', did you mean root_volume_gib?"),
        ({"image_id": "ami-1"}, "'image_id', did you mean ami?"),
        ({"zone": "us-east-1a"}, "'zone', did you mean availability_zone?"),
        ({"autostop": 30}, "'autostop', did you mean idle_stop, such as 30m?"),
        ({"autodown": 30}, "'autodown', did you mean expires with expiry_action=delete?"),
        ({"cluster": {"cloud": "aws"}}, "'cloud': there is one cloud, AWS"),
        ({"envs": {}}, "'envs': variables belong to a job, as in: dlcluster run --env KEY=VALUE -- train.py"),
    ],
)
def test_name_that_another_tool_has_is_answered_with_our_setting(context: dict[str, Any], answer: str) -> None:
    with pytest.raises(SettingsError) as refused:
        ClusterProps.from_context(context)
    assert str(refused.value) == f"unknown setting {answer}"
