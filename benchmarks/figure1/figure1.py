"""Measure how training scales with parameter servers and with all-reduce.

Reproduces Figure 1 of "Distributed Learning with Apache MXNet and Horovod".
One to four nodes of a local AWS, with links of 1 Gbit/s, train a network with as many weights as the article's
ResNet-50 (_wide.py) in batches of 32 per worker, with each method of _methods.py. Speed is the images/s of all workers.
Efficiency is that speed divided by the best that the machine's cores, which all nodes share, allow: the speed of as
many workers that send nothing, computed from their processor time per step. The limit of the links, and the processor
time per step of workers that do send, are reported too.

    make bench B=figure1                            measure, and draw docs/figures/figure1.svg; as root
    python -m benchmarks.figure1.figure1 --draw     draw it again from docs/figures/figure1.json

Figures are each method's efficiency with four workers.
"""

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figure1 import _wide
from benchmarks.figure1._drawing import draw, efficiency
from benchmarks.figure1._links import rates, shape
from benchmarks.figure1._methods import BASELINES, METHODS, NO_BASELINE, TrainingMethod
from benchmarks.figure1._steps import StepLog, follow
from benchmarks.harness.cluster import CLUSTER, is_inside, output_inside, user_with_cluster
from benchmarks.harness.nodes import machine
from local.faults import Faults
from local.faults.node_handle import NodeHandle
from local.run.user import User

WORKERS = (1, 2, 4)
BATCH = 32
STEPS = 8
"""Number of steps of a run that uses the links."""
STEPS_WITHOUT_LINKS = 16
"""Number of steps of workers that train independently. Their steps are much shorter, and the workers should overlap in
time although they do not start together."""
TIMEOUT_S = 400
HOME = "/home/ubuntu"
FOLDER = Path(__file__).resolve().parents[2] / "docs/figures"
DATA, DRAWING = FOLDER / "figure1.json", FOLDER / "figure1.svg"


def main() -> int:
    """Measure in a fresh local AWS, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mbit", type=int, default=1000, help="rate of a node's link (default 1000)")
    parser.add_argument("--draw", action="store_true", help="only draw what was measured before")
    options = parser.parse_args()
    if is_inside():
        print(json.dumps(measure(options.mbit)))
        return 0
    if not options.draw:
        measured = json.loads(output_inside("benchmarks.figure1.figure1", with_mxnet=True).splitlines()[-1])
        FOLDER.mkdir(exist_ok=True)
        DATA.write_text(json.dumps(measured, indent=2) + "\n")
    measured = json.loads(DATA.read_text())
    draw(measured, DRAWING)
    most = max(WORKERS)
    for name in METHODS:
        print(f"figure_1_{name}_{most} {efficiency(measured, name, most):.2f} ratio")
    return 0


def measure(mbit: int) -> dict[str, Any]:
    """Return the measurements to draw."""
    with user_with_cluster("frameworks=horovod", nodes=max(WORKERS)) as user:
        user.write_ssh_config()
        faults = Faults.current()
        nodes = [faults.node(name) for name in faults.instances(CLUSTER).values()]
        network = Path(_wide.__file__)
        for node in nodes:
            node.path(f"{HOME}/{network.name}").write_bytes(network.read_bytes())
        shape(nodes, mbit=mbit)
        carried = rates(*nodes[:2])
        print(f"{machine()}; two links carry {carried[0]:.0f} and {carried[1]:.0f} Mbit/s at once", file=sys.stderr)
        # Run all methods of one size in succession, because other load on the machine changes slowly.
        rows = {workers: measure_methods(user, nodes, workers=workers) for workers in WORKERS}
        load = os.getloadavg()[2]
        print(machine(), file=sys.stderr)
    return {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "cores": os.cpu_count(),
        "load": round(load),
        "date": time.strftime("%Y-%m-%d"),
        "mbit": mbit,
        "mbit_carried": [round(rate) for rate in carried],
        "batch": BATCH,
        "weights": _wide.WEIGHTS,
        "images_per_s": {
            workers: {name: round(steps.images_per_s, 2) for name, steps in row.items()}
            for workers, row in rows.items()
        },
        "cpu_s_per_step": {
            workers: {name: round(steps.cpu_s_per_step, 3) for name, steps in row.items()}
            for workers, row in rows.items()
        },
    }


def measure_methods(user: User, nodes: Sequence[NodeHandle], *, workers: int) -> dict[str, StepLog]:
    """Train with each method."""
    logs: dict[str, StepLog] = {}
    for name, method in (BASELINES | METHODS).items():
        # With one worker, two of the methods are the same: one server.
        same = [other for other in logs if (BASELINES | METHODS)[other].command(workers) == method.command(workers)]
        logs[name] = logs[same[0]] if same else train(user, nodes, method, workers=workers)
    return logs


def train(user: User, nodes: Sequence[NodeHandle], method: TrainingMethod, *, workers: int) -> StepLog:
    """Train once with one method, on one node per worker."""
    steps = STEPS if method.models_sent(workers) else STEPS_WITHOUT_LINKS
    samples = steps * BATCH * (1 if method.baseline == NO_BASELINE else workers)
    image_shape = ",".join(map(str, _wide.IMAGE_SHAPE))
    # One epoch, without a checkpoint, which would be written during the next run's steps.
    options = f"--benchmark 1 --image-shape {image_shape} --num-examples {samples} --batch-size {BATCH} --num-epochs 1"
    command = (
        f"{method.command(workers)} {options} --lr 0.001 --disp-batches 1 --resume never --model-prefix figure1/net"
    )
    login = shlex.join(["bash", "-lc", f"export OMP_NUM_THREADS=1; {command} 2>&1"])
    began = time.monotonic()
    try:
        result = follow(
            user.ssh_command("deeplearning-master", login),
            environment=user.environment,
            workers=workers,
            steps=steps,
            nodes=nodes,
            timeout_s=TIMEOUT_S,
        )
    except ValueError as error:
        raise SystemExit(f"{command}: {error}") from error
    print(
        f"{workers} workers, {method.label}: {result.images_per_s:.1f} images/s, {result.cpu_s_per_step:.2f} processor "
        f"seconds per step; took {time.monotonic() - began:.0f} s",
        file=sys.stderr,
    )
    return result


if __name__ == "__main__":
    sys.exit(main())
