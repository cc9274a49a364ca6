"""Test that MXNet scripts exit even if they close nothing."""

from pathlib import Path

from tests.frameworks.mxnet_cluster import MxnetCluster

SCRIPT = Path(__file__).with_name("leaves_early.py")
END_LIMIT_S = 300


def test_workers_end_when_one_leaves_with_gradients_unsent(cluster: MxnetCluster) -> None:
    cluster.on_master(f"mkdir -p leaving; cat > leaving/train.py <<'PY'\n{SCRIPT.read_text()}\nPY")
    launch = f"timeout {END_LIMIT_S} launch -n 2 -s 2 --framework mxnet --sync-dst-dir /home/ubuntu/left"
    output = cluster.on_master(f"cd leaving; export OMP_NUM_THREADS=1; {launch} python train.py; echo code $?")
    assert output.endswith("code 0"), output
    assert all(f"rank {rank} leaves" in output for rank in (0, 1)), output
