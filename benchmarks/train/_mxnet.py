"""Run MXNet as a baseline: its environment, and its processes for two workers."""

import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

from benchmarks.harness.pair import INTERFACE, NODES, PORT, Contestant, Node
from benchmarks.harness.work import WORK
from bootstrap.mxnet_environment.build import install_patches
from bootstrap.mxnet_environment.recipe import MXNET, MXNET_PATCHES
from local.cache import cached_tree, recipe_hash

REQUIREMENTS = Path(__file__).parents[2] / "bootstrap" / "mxnet_environment" / f"{MXNET}.txt"
"""The same packages as on a cluster's nodes."""


def mxnet(network: str) -> Contestant:
    """Return two workers with gluon.Trainer, one server per worker, as MXNet's guide recommends, and the scheduler."""
    everybody = {
        "DMLC_PS_ROOT_URI": NODES[0].address,
        "DMLC_PS_ROOT_PORT": str(PORT),
        "DMLC_NUM_WORKER": str(len(NODES)),
        "DMLC_NUM_SERVER": str(len(NODES)),
        "DMLC_INTERFACE": INTERFACE,
        "PYTHONWARNINGS": "ignore",
    }

    def worker(node: Node) -> Mapping[str, str]:
        return {**everybody, "DMLC_ROLE": "worker"}

    def servers(node: Node) -> list[Mapping[str, str]]:
        roles = ["server"] if node.rank else ["scheduler", "server"]
        return [{**everybody, "DMLC_ROLE": role} for role in roles]

    command = [str(environment() / "bin/python"), "-m", "benchmarks.train._bare_mxnet", network]
    return Contestant(
        name=f"{network} MXNet", command=command, work=WORK[network], environment=worker, extra_processes=servers
    )


def environment() -> Path:
    """Return the directory of MXNet's environment; it is installed once."""
    return cached_tree("benchmark-mxnet", recipe_hash([REQUIREMENTS, MXNET_PATCHES], extra=sys.version), _build)


def _build(tree: Path) -> None:
    venv.create(tree, with_pip=True)
    pip = [str(tree / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--require-hashes", "-r", str(REQUIREMENTS)], check=True, timeout=900, stdout=sys.stderr)
    # Without them, MXNet does not find names that NumPy has removed.
    (site_packages,) = tree.glob("lib/python*/site-packages")
    install_patches(site_packages)
