"""How does training scale by parameter servers, and how by all-reduce? The fifth article's Figure 1, measured here.

On one to four nodes of a local AWS: LeNet with batches of 64 a worker (nine tenths of its weights are one fully
connected layer), images/s of all workers by each way of benchmarks/_ways.py. Efficiency is that over the images/s of
as many workers on the same nodes that send each other nothing, so that the cores, which the nodes share, do not count.

The nodes' links are shaped to 50 Mbit/s: four nodes on two cores cannot fill four links of 1 Gbit/s, and the cores
would be measured. Models, batches and links of a real cluster are all larger. ``--mbit`` takes another rate.

    make bench B=figure1                      measure, and draw docs/figures/figure1.svg; as root
    python -m benchmarks.figure1 --draw       draw it again from docs/figures/figure1.json

Figures are each way's efficiency with four workers.
"""

import argparse
import json
import os
import platform
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks._cluster import CLUSTER, is_inside, output_inside, user_with_cluster
from benchmarks._figure1_drawing import draw, efficiency
from benchmarks._links import shape
from benchmarks._nodes import machine
from benchmarks._ways import ALONE, ITSELF, WAYS, Way
from local.faults import Faults
from local.user import User

WORKERS = (1, 2, 4)
BATCH = 64
STEPS = 12
"""In an epoch."""
EPOCHS = 4
"""Four times as many where nothing goes over a link, as steps are short there and the best epoch is taken."""
WEIGHTS = 431_080
TIMEOUT_S = 240
FOLDER = Path(__file__).resolve().parents[1] / "docs/figures"
DATA, DRAWING = FOLDER / "figure1.json", FOLDER / "figure1.svg"
EPOCH = re.compile(r"Epoch\[(\d+)\] Train-accuracy=.* Speed=([\d.]+) samples/sec")


def main() -> int:
    """Measure in a local AWS of our own, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mbit", type=int, default=50, help="rate of a node's link (default 50)")
    parser.add_argument("--draw", action="store_true", help="only draw what was measured before")
    options = parser.parse_args()
    if is_inside():
        print(json.dumps(measure(options.mbit)))
        return 0
    if not options.draw:
        measured = json.loads(output_inside("benchmarks.figure1", engines=True).splitlines()[-1])
        FOLDER.mkdir(exist_ok=True)
        DATA.write_text(json.dumps(measured, indent=2) + "\n")
    measured = json.loads(DATA.read_text())
    draw(measured, DRAWING)
    most = str(max(WORKERS))
    row = measured["images_per_s"][most]
    for name in WAYS:
        print(f"figure_1_{name}_{most} {efficiency(row, name):.2f} ratio")
    return 0


def measure(mbit: int) -> dict[str, Any]:
    """Return what the drawing takes."""
    with user_with_cluster("engines=horovod", nodes=max(WORKERS)) as user:
        user.write_ssh_config()
        faults = Faults.here()
        shape((faults.node(name) for name in faults.slots(CLUSTER).values()), mbit=mbit)
        print(machine(), file=sys.stderr)
        # All ways of one size after each other: what else the machine does changes slowly.
        rows = {
            workers: {name: speed(user, way, workers=workers) for name, way in (ALONE | WAYS).items()}
            for workers in WORKERS
        }
        print(machine(), file=sys.stderr)
    return {
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "date": time.strftime("%Y-%m-%d"),
        "mbit": mbit,
        "batch": BATCH,
        "weights": WEIGHTS,
        "images_per_s": rows,
    }


def speed(user: User, way: Way, *, workers: int) -> float:
    """Images/s of all workers, in the best epoch but the first."""
    samples = STEPS * BATCH * (1 if way.ideal == ITSELF else workers)
    count = EPOCHS if way.models_sent(workers) else 4 * EPOCHS
    options = f"--benchmark 1 --num-examples {samples} --batch-size {BATCH} --num-epochs {count} --lr 0.001"
    command = f"{way.command(workers)} {options} --resume never --model-prefix figure1/{time.time_ns()}"
    login = shlex.join(["bash", "-lc", f"export OMP_NUM_THREADS=1; {command} 2>&1"])
    said = user.ssh("deeplearning-master", login, timeout_s=TIMEOUT_S)
    epochs = [0.0] * count
    for epoch, images_per_s in EPOCH.findall(said):
        # One line for all, or one of each that trains alone.
        epochs[int(epoch)] += float(images_per_s)
    if not all(epochs):
        raise SystemExit(f"not all epochs ended: {command}\n{said[-2000:]}")
    print(f"{workers} workers, {way.label}: {max(epochs[1:]):.0f} images/s", file=sys.stderr)
    return max(epochs[1:])


if __name__ == "__main__":
    sys.exit(main())
