"""Test that MXNet's own im2rec and the trainer's write the same files, which the trainer reads."""

from tests.frameworks.mxnet_cluster import MxnetCluster
from tests.frameworks.training import PYTHON, PYTORCH

# The image lacks OpenCV, which im2rec.py imports; with --pass-through, it calls none of it.
IM2REC = f"""
set -e
mkdir -p ~/rec/stub; cd ~/rec; touch stub/cv2.py
mkdir -p folder/a folder/b folder/c folder/d
for path in folder/?/; do for i in 1 2 3; do head -c 3001 /dev/urandom >$path/$i.jpg; done; done
printf '12345678\\n\\x23\\xd7\\xce34' >folder/a/4.jpg
tool=$(dirname $({PYTHON} -c 'import mxnet; print(mxnet.__file__)'))/tools/im2rec.py
PYTHONPATH=stub {PYTHON} $tool theirs folder --list --recursive
PYTHONPATH=stub {PYTHON} $tool theirs folder --pass-through
{PYTORCH} /opt/deeplearning/trainer/im2rec ours folder
for suffix in rec idx lst; do cmp theirs.$suffix ours.$suffix; done
PYTHONPATH=/opt/deeplearning {PYTORCH} - <<'PY'
from pathlib import Path
from trainer.data.images.recordio_file import open_records
file = open_records(Path("theirs.rec"))
labels = file.labels().tolist()
assert sorted(labels) == [0] * 4 + [1] * 3 + [2] * 3 + [3] * 3, labels
lines = [line.split("\\t") for line in Path("theirs.lst").read_text().splitlines()]
assert labels == [float(label) for _, label, _ in lines]
assert all(file.record(at)[24:] == Path("folder", path).read_bytes() for at, (_, _, path) in enumerate(lines))
print("read", len(labels))
PY
"""


def test_mxnets_im2rec_writes_what_the_trainer_reads(cluster: MxnetCluster) -> None:
    assert cluster.on_master(IM2REC).splitlines()[-1] == "read 13"
