"""Test the variables that nodes set, as each reader parses them."""

from dataclasses import replace

import pytest

from bootstrap.files import environment

NODE = environment.NodeDevices(
    workers_count=3, gpu_count=8, bucket="bucket", instance_id="i-a", scratch=None, shared=None
)
VALUES = environment.variables(NODE)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            environment.profile_script(VALUES),
            "export DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers\n"
            "export DEEPLEARNING_WORKERS_COUNT=3\n"
            "export DEEPLEARNING_WORKER_GPU_COUNT=8\n"
            "export DEEPLEARNING_BUCKET=bucket\n"
            "export DEEPLEARNING_INSTANCE_ID=i-a\n",
        ),
        (
            environment.environment_lines(VALUES),
            "DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers\n"
            "DEEPLEARNING_WORKERS_COUNT=3\n"
            "DEEPLEARNING_WORKER_GPU_COUNT=8\n"
            "DEEPLEARNING_BUCKET=bucket\n"
            "DEEPLEARNING_INSTANCE_ID=i-a\n",
        ),
        (
            environment.systemd_environment(VALUES),
            "[Manager]\n"
            'DefaultEnvironment="DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers" '
            '"DEEPLEARNING_WORKERS_COUNT=3" "DEEPLEARNING_WORKER_GPU_COUNT=8" '
            '"DEEPLEARNING_BUCKET=bucket" "DEEPLEARNING_INSTANCE_ID=i-a"\n',
        ),
    ],
)
def test_variables_have_the_syntax_of_each_reader(text: str, expected: str) -> None:
    assert text == expected


def test_scratch_variable_is_set_on_a_node_with_local_disks() -> None:
    values = environment.variables(replace(NODE, scratch="/nvme/own"))
    assert values == {**VALUES, "DEEPLEARNING_SCRATCH": "/nvme/own"}


def test_shared_directory_has_the_variables_of_both_products() -> None:
    values = environment.variables(replace(NODE, shared="/shared"))
    # EFS_MOUNT is deeplearning-cfn's name.
    assert values == {**environment.variables(NODE), "DEEPLEARNING_SHARED": "/shared", "EFS_MOUNT": "/shared"}
