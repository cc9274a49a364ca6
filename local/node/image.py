"""Build the node image from local/image/: a Debian root file system and PyTorch as a second overlay layer.

python -m local image      build what is missing and print the layers, uppermost first
"""

import os
import subprocess
from pathlib import Path

from local.cache import cache_dir, cached_tree, recipe_hash
from local.network.addresses import ENDPOINT
from local.node.mxnet_layer import mxnet_layer

RECIPE = Path(__file__).parents[1] / "image"


def _run(script: str, *arguments: str | Path) -> None:
    # Otherwise mount(8) would leave notes about mounts in the machine's /run.
    environment = os.environ | {"LIBMOUNT_UTAB": str(cache_dir() / "utab")}
    subprocess.run([RECIPE / script, *arguments], check=True, stdin=subprocess.DEVNULL, env=environment)


def image_layers(*, with_mxnet: bool = False) -> list[Path]:
    """Return the directories to stack as an overlay's lower layers, uppermost first.

    ``with_mxnet`` adds the layer for clusters with the setting ``frameworks``.
    """
    base_recipe = [RECIPE / "build-base.sh", RECIPE / "aws-cli.txt", RECIPE / "rootfs"]
    base_key = recipe_hash(base_recipe, extra=ENDPOINT)
    base = cached_tree("image-base", base_key, lambda root: _run("build-base.sh", root, ENDPOINT))
    pytorch_key = recipe_hash([RECIPE / "build-pytorch.sh", RECIPE / "pytorch.txt"])
    pytorch = cached_tree("image-pytorch", pytorch_key, lambda layer: _run("build-pytorch.sh", layer, base))
    return [*([mxnet_layer()] if with_mxnet else []), pytorch, base]
