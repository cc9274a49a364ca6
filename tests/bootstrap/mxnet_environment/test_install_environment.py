"""Test that the master builds an environment, workers download it, and the agent reads it. The bucket is moto's."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError

from bootstrap.contract import MXNET_ENVIRONMENT_LINK
from bootstrap.errors import MxnetEnvironmentError
from bootstrap.files.paths import under_root
from bootstrap.mxnet_environment.archive import Archive
from bootstrap.mxnet_environment.install_environment import MPIRUN_COMMAND
from bootstrap.mxnet_environment.progress import EnvironmentProgress, MxnetEnvironmentMonitor, write_progress
from tests.bootstrap.mxnet_environment.mxnet_node import RECIPE, MxnetNode

pytestmark = pytest.mark.allow_subprocess


def test_master_builds_and_a_worker_fetches_the_same(node: Callable[[str], MxnetNode]) -> None:
    master, worker = node("master"), node("worker")
    master.install_environment(is_master=True)
    worker.install_environment(is_master=False)
    assert (master.builds, worker.builds) == (1, 0)
    assert os.access(worker.programs / "mpirun", os.X_OK)
    assert (worker.programs / "python3").readlink() == Path("/usr/bin/python3")
    for machine in (master, worker):
        assert under_root(machine.root, MXNET_ENVIRONMENT_LINK).readlink() == Path(RECIPE.directory)
        assert under_root(machine.root, MPIRUN_COMMAND).readlink() == Path(MXNET_ENVIRONMENT_LINK, "bin/mpirun")
        assert MxnetEnvironmentMonitor(machine.root, name="horovod").check()


def test_replaced_master_fetches_what_the_first_one_built(node: Callable[[str], MxnetNode]) -> None:
    node("first").install_environment(is_master=True)
    second = node("second")
    second.install_environment(is_master=True)
    assert second.builds == 0
    assert (second.programs / "python").is_file()


def test_worker_waits_for_the_master_and_logs_it(node: Callable[[str], MxnetNode]) -> None:
    master, worker = node("master"), node("worker")
    worker.stored_while_waiting = lambda: master.install_environment(is_master=True)
    worker.install_environment(is_master=False)
    assert worker.states == ["waiting-for-master"]


def test_worker_reports_an_archive_that_never_came(node: Callable[[str], MxnetNode]) -> None:
    worker = node("worker")
    with pytest.raises(MxnetEnvironmentError, match=r"^horovod-.* was not in the bucket in time") as failure:
        worker.install_environment(is_master=False)
    assert failure.value.short == "not in the bucket"
    assert worker.clock.now >= 1060.0


def test_node_waits_for_its_way_to_the_bucket(node: Callable[[str], MxnetNode]) -> None:
    node("master").install_environment(is_master=True)
    worker = node("worker")
    worker.offline = 3
    worker.install_environment(is_master=False)
    assert len(worker.states) == 3


def test_failed_upload_is_retried_without_rebuilding(node: Callable[[str], MxnetNode]) -> None:
    master, worker = node("master"), node("worker")
    stored = Archive.store
    failures = [EndpointConnectionError(endpoint_url="s3")]

    def store(archive: Archive, directory: Path) -> str:
        if failures:
            raise failures.pop()
        return stored(archive, directory)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Archive, "store", store)
        master.install_environment(is_master=True)
    worker.install_environment(is_master=False)
    assert master.builds == 1


def test_after_a_reboot_a_worker_needs_no_bucket(node: Callable[[str], MxnetNode]) -> None:
    node("master").install_environment(is_master=True)
    worker = node("worker")
    worker.install_environment(is_master=False)
    worker.offline = 100
    worker.install_environment(is_master=False)
    assert worker.offline == 100


def test_leftovers_of_a_killed_build_are_rebuilt(node: Callable[[str], MxnetNode]) -> None:
    master = node("master")
    (under_root(master.root, RECIPE.directory) / "lib").mkdir(parents=True)
    master.install_environment(is_master=True)
    assert master.builds == 1


def test_mpirun_of_the_image_is_not_replaced(node: Callable[[str], MxnetNode]) -> None:
    master = node("master")
    mpirun = under_root(master.root, MPIRUN_COMMAND)
    mpirun.parent.mkdir(parents=True)
    mpirun.write_text("the image's")
    master.install_environment(is_master=True)
    assert mpirun.read_text() == "the image's"


def test_agent_receives_progress_and_failure_reason(tmp_path: Path) -> None:
    monitor = MxnetEnvironmentMonitor(tmp_path, name="mxnet")
    assert not monitor.check()
    assert monitor.waiting == "mxnet: starting"
    write_progress(
        tmp_path, EnvironmentProgress(state="failed", failure="no C++ compiler", detail="Horovod needs c++ to compile")
    )
    with pytest.raises(MxnetEnvironmentError, match=r"^Horovod needs c\+\+ to compile$"):
        monitor.check()
    assert MxnetEnvironmentMonitor(tmp_path, name=None).check()


def test_failed_build_is_retried_with_its_reason_logged(node: Callable[[str], MxnetNode]) -> None:
    master = node("master")
    master.failures = [
        MxnetEnvironmentError("pip install failed", "no route"),
        MxnetEnvironmentError("import mxnet failed", "no"),
    ]
    master.install_environment(is_master=True)
    assert master.builds == 3
    assert master.why == [None, "try 1: pip install failed", "try 2: import mxnet failed"]
    first, second = master.paused
    assert 5.0 < first < second


def test_build_stops_at_the_deadline_with_its_last_failure(node: Callable[[str], MxnetNode]) -> None:
    master = node("master")
    master.failures = [MxnetEnvironmentError("pip install failed", "no route")] * 100
    with pytest.raises(MxnetEnvironmentError, match=r"^no route \(try [345]\)$") as failure:
        master.install_environment(is_master=True)
    assert failure.value.short == "pip install failed"
    assert master.clock.now <= 1060.0


def test_build_that_can_only_fail_is_not_tried_again(node: Callable[[str], MxnetNode]) -> None:
    master = node("master")
    master.failures = [MxnetEnvironmentError("no C++ compiler", "to compile takes c++", is_permanent=True)]
    with pytest.raises(MxnetEnvironmentError, match=r"^to compile takes c\+\+ \(try 1\)$"):
        master.install_environment(is_master=True)
    assert not master.paused


def test_agent_receives_the_number_of_the_attempt(tmp_path: Path) -> None:
    write_progress(tmp_path, EnvironmentProgress(state="building", why="try 1: pip install failed"))
    monitor = MxnetEnvironmentMonitor(tmp_path, name="mxnet")
    assert not monitor.check()
    assert monitor.waiting == "mxnet: building (try 1: pip install failed)"
