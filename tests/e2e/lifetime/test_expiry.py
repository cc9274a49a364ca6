"""Let a cluster expire under a durable training, which resumes afterwards and ends with the same bits.

It takes about a quarter of an hour, most of which passes in waiting for the end: `make soak` runs it.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from bootstrap.contract import LOG_FILE
from local.faults import Faults
from local.run.user import User
from stacks.settings.parsing import format_utc
from tests.e2e.support.deployed_cluster import NODES
from tests.e2e.support.durable_training import MASTER, Training, now, status, wait_for_nodes
from tests.e2e.support.group_states import PAUSED, group_sizes, instance_states, members
from tests.e2e.support.laptop import Laptop, new_laptop
from tests.waiting import wait_until

DEPLOY_AND_TRAIN = timedelta(minutes=4)
"""Time from a deploy to the end that it sets."""
HEAL = timedelta(minutes=2)
"""Time for another master."""
NOTICE_S = 60.0
END_S = 120.0


@pytest.fixture(scope="module")
def laptop(user: User, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    laptop = new_laptop(user, tmp_path_factory.mktemp("expiry"), {"worker_count": NODES - 1})
    laptop.run("cdk", "deploy")
    user.write_ssh_config()
    return laptop


@contextmanager
def terminal(user: User, job: str, output: Path) -> Iterator[None]:
    """Follow a job in a terminal on the master, as its user does, and write what the terminal shows to a file."""
    command = user.ssh_command(MASTER, f"launch logs -f {job}", options=("-tt",))
    with (
        output.open("wb") as file,
        subprocess.Popen(
            command, env=dict(user.environment), stdin=subprocess.DEVNULL, stdout=file, stderr=file
        ) as process,
    ):
        try:
            yield
        finally:
            process.kill()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("loses_master", [False, True], ids=["all nodes stay", "the master is lost before"])
def test_durable_training_outlives_the_end_of_its_cluster(
    laptop: Laptop, tmp_path: Path, *, loses_master: bool
) -> None:
    user, screen = laptop.user, tmp_path / "screen"
    wait_for_nodes(user)
    time_left = DEPLOY_AND_TRAIN + (HEAL if loses_master else timedelta())
    training = Training.begin(user, f"training-{loses_master:d}", slow_until=now() + timedelta(minutes=2) + time_left)
    expires = (now() + time_left).replace(microsecond=0)
    with terminal(user, training.job, screen):
        laptop.run("cdk", "deploy", "-c", f"expires={format_utc(expires)}")
        notice = f"pauses at {expires:%H:%M} UTC (expires)"
        wait_until(lambda: notice in screen.read_text(errors="replace"), "the notice", timeout_s=NOTICE_S)
    assert notice in Faults.current().node("master").path(LOG_FILE).read_text()
    wait_until(lambda: notice in training.log(), "the notice in the job's log", timeout_s=NOTICE_S, every_s=1.0)
    assert status(user)["expires"] == format_utc(expires)
    assert f"at {format_utc(expires)}; dlcluster extend 8h postpones it" in user.output("dlcluster", "status")
    wait_until(lambda: training.saved_step() > 0, "a checkpoint", timeout_s=NOTICE_S, every_s=1.0)
    if loses_master:
        Faults.current().kill("master")
        training.wait_for_restart()
        assert now() < expires, "the new master took longer than the time before the end"

    nodes = members()
    assert len(nodes) == NODES
    wait_s = (expires - now()).total_seconds() + END_S
    wait_until(lambda: group_sizes() == PAUSED, "the end", timeout_s=wait_s)
    assert now() >= expires
    wait_until(lambda: not members() and instance_states(nodes) == {"terminated"}, "the nodes' end", timeout_s=END_S)
    step = training.saved_step()

    laptop.run("dlcluster", "extend", "8h")
    assert (members(), group_sizes()) == (set(), PAUSED)
    laptop.run("dlcluster", "resume")
    assert len(members()) == NODES
    assert not members() & nodes
    training.check_end(least_attempts=3 if loses_master else 2, step=step)
