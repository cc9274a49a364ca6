"""Use the shared directory from a job: rank 0 writes a file that every rank then reads."""

from collections.abc import Callable
from typing import Final

STATE: Final = "cat /run/deeplearning/shared-state"
"""Command that prints a node's state of the shared directory."""
_SCRIPT: Final = """
import os, time
path = os.path.join(os.environ["EFS_MOUNT"], "told.txt")
assert os.environ["DEEPLEARNING_SHARED"] == os.environ["EFS_MOUNT"] == "/shared"
if os.environ["RANK"] == "0":
    with open(path + ".new", "w") as file:
        file.write("from rank 0")
    os.rename(path + ".new", path)
deadline = time.monotonic() + 30
while not os.path.exists(path):
    assert time.monotonic() < deadline, "waited 30 s for rank 0 to write"
    time.sleep(0.1)
print("rank", os.environ["RANK"], "reads", open(path).read())
"""


def check_that_ranks_share(on_master: Callable[[str], str], *, nodes: int) -> None:
    """Run the job from the shared directory; ``on_master`` returns the output of a command on the master."""
    on_master(f"cat > /shared/writes.py <<'EOF'\n{_SCRIPT}EOF")
    printed = on_master("launch python3 /shared/writes.py")
    assert sorted(line.split("rank ", 1)[1] for line in printed.splitlines() if "reads" in line) == [
        f"{rank} reads from rank 0" for rank in range(nodes)
    ]
