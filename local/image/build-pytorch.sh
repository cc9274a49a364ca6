#!/usr/bin/env bash
# build-pytorch.sh LAYER BASE: build the second image layer, /opt/pytorch as on the PyTorch Deep Learning AMIs.
# LAYER is stacked over BASE and uses its Python.
set -euo pipefail
# Write byte code beside its sources, even under make, which redirects it for its own programs: users of a node cannot
# write it, so every start of aws and every rank of every job would compile its modules again.
unset PYTHONPYCACHEPREFIX PYTHONDONTWRITEBYTECODE
layer=$1 base=$2
here=$(dirname "$(readlink -f "$0")")
mkdir -p "$layer/opt/pytorch/bin" "$layer/opt/pytorch/lib/python3.11/site-packages"
ln -sfn /usr/bin/python3 "$layer/opt/pytorch/bin/python3"
ln -sfn python3 "$layer/opt/pytorch/bin/python"
printf 'home = /usr/bin\ninclude-system-site-packages = false\n' > "$layer/opt/pytorch/pyvenv.cfg"
pip install --quiet --quiet --disable-pip-version-check --target "$layer/opt/pytorch/lib/python3.11/site-packages" \
    --only-binary=:all: --no-compile --cache-dir "${XDG_CACHE_HOME:-$HOME/.cache}/deeplearning-cdk/pip" -r "$here/pytorch.txt"
# Some files are for other versions of Python and do not compile.
python3 -m compileall -q -j 0 -s "$layer" -p / "$layer/opt/pytorch/lib/python3.11/site-packages" >/dev/null || true
[ -d "$layer/opt/pytorch/lib/python3.11/site-packages/torch/__pycache__" ]
[ -x "$base/usr/bin/python3" ]
