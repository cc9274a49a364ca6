"""The README's lines for the master do what they say."""

import re
from pathlib import Path

from tests.e2e.conftest import NODES, Cluster

README = Path(__file__).parents[3] / "README.md"


def lines_for_the_master() -> list[str]:
    section = README.read_text().split("### On the master")[1].split("### ")[0]
    return [line for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]


def test_lines_for_the_master(cluster: Cluster) -> None:
    training, ranks = (cluster.on("deeplearning-master", f"cd && {line} 2>&1") for line in lines_for_the_master())
    assert re.search(r"Validation-accuracy=0\.9[789]", training)
    assert sorted(line.split()[-1] for line in ranks.splitlines()) == [str(rank) for rank in range(NODES)]
