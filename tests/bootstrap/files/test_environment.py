import pytest

from bootstrap.files import environment

VALUES = environment.variables(workers_count=3, gpu_count=8, bucket="bucket", instance_id="i-a", scratch=None)


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
def test_variables_are_written_as_their_reader_wants_them(text: str, expected: str) -> None:
    assert text == expected


def test_a_node_with_disks_of_its_own_names_the_directory_on_them() -> None:
    values = environment.variables(
        workers_count=3, gpu_count=8, bucket="bucket", instance_id="i-a", scratch="/nvme/own"
    )
    assert values == {**VALUES, "DEEPLEARNING_SCRATCH": "/nvme/own"}
