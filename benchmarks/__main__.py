"""Run benchmarks and record their results in RESULTS.md.

    python -m benchmarks          all of them except gpu, one after the other
    python -m benchmarks synth    one of them

A benchmark is a module of a folder here, such as launch/fanout.py; it prints its results as its last lines:
``NAME VALUE UNIT``. Modules that begin with _ are helpers of their folder, harness/ is shared by all.
"""

import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
HARNESS = "harness"
RESULTS = FOLDER / "RESULTS.md"
FIGURE = re.compile(r"([a-z]\w*) (-?[\d.]+) (ratio|s|per_min|per_s)")
ELSEWHERE = {"gpu"}
"""Benchmarks that run only by name, because they need another machine."""
TIMEOUT_S = 1800
MAX_LOAD = 1.0
"""Highest load average at the start of a benchmark whose results are recorded."""
IDLE_TIMEOUT_S, IDLE_POLL_S = 180.0, 5.0
"""Longest wait for the load to fall to MAX_LOAD, in seconds; it halves in 42 s on an idle machine."""
TARGETS = {
    **dict.fromkeys(("checkpoint_stall", "checkpoint_stall_lenet"), "at most 0.05"),
    **dict.fromkeys(("control_calls_2", "control_calls_8"), "at most 6"),
    "dlcluster_help": "at most 0.2",
    "fanout_cold_32": "at most 0.5",
    "fanout_lost_64": "at most 0",
    "fanout_warm_32": "at most 0.1",
    "input_jpeg": "at least 1",
    **dict.fromkeys(("overhead_lenet", "overhead_resnet110"), "at least 1"),
    **dict.fromkeys(("rejoin_master", "rejoin_worker"), "at most 10"),
    "scaling_lenet": "at least 0.8",
    "scaling_resnet110": "at least 0.95",
    "start_2": "at most 0.9",
    "sync_noop_8": "at most 1",
    "sync_s3_large": "at least 1",
    "sync_s3_small": "at least 1.5",
    "sync_tree_8": "at most 0.6",
    **dict.fromkeys(("table_reads_2", "table_reads_8"), "at most 12"),
    **dict.fromkeys(("vs_mxnet_lenet", "vs_mxnet_resnet110"), "at least 1.6"),
}
"""Targets of the results that have one, for all benchmarks, as shown in RESULTS.md."""
HEADING = """# Results

Written by `make bench`. Each figure compares ours with a peer in the same run; the benchmark's docstring names the
peer. A missed target is in bold. The load is the average of the minute before, which may include the benchmark that
ended then; where it is in words, a person ran the benchmark and noted what else ran. Nothing is recorded when the load
is above 1 at the start; older rows may have more.

| figure | value | unit | target | date | machine | load |
|---|---|---|---|---|---|---|
"""


def modules() -> dict[str, str]:
    """Return the module of each benchmark by its name."""
    names = {
        path.stem: f"benchmarks.{path.parent.name}.{path.stem}"
        for path in FOLDER.glob("*/[a-z]*.py")
        if path.parent.name != HARNESS
    }
    return dict(sorted(names.items()))


def run(name: str) -> dict[str, tuple[str, str]]:
    """Run a benchmark and return its results. Raises CalledProcessError and TimeoutExpired."""
    printed = subprocess.run(
        [sys.executable, "-m", modules()[name]], check=True, timeout=TIMEOUT_S, stdout=subprocess.PIPE, text=True
    ).stdout
    sys.stdout.write(printed)
    return {match[1]: (match[2], match[3]) for line in printed.splitlines() if (match := FIGURE.fullmatch(line))}


def describe_target(figure: str, value: str) -> str:
    """Return the target of a result, in bold if the value misses it; empty without a target."""
    target = TARGETS.get(figure, "")
    if not target:
        return ""
    bound = float(target.split()[-1])
    is_met = float(value) >= bound if target.startswith("at least") else float(value) <= bound
    return target if is_met else f"**missed: {target}**"


def row(figure: str, value: str, unit: str, *, load: float) -> str:
    """Return the row of a result in RESULTS.md."""
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    date, target = time.strftime("%Y-%m-%d"), describe_target(figure, value)
    return f"| {figure} | {value} | {unit} | {target} | {date} | {machine} | {load:.1f} |\n"


def update(text: str, figures: dict[str, tuple[str, str]], *, load: float) -> str:
    """Return the contents of RESULTS.md with these results replacing older ones; `load` is the load average."""
    kept = {
        line.split("|")[1].strip(): line for line in text.splitlines(keepends=True) if re.match(r"\| [a-z]+_", line)
    }
    new = {figure: row(figure, value, unit, load=load) for figure, (value, unit) in figures.items()}
    return HEADING + "".join(line for _, line in sorted((kept | new).items()))


def main(wanted: list[str]) -> int:
    """Run the benchmarks with these names, or all; record their results unless the machine is loaded."""
    names = [*modules()]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.stderr.write(f"error: no benchmark {unknown[0]}, there are {', '.join(names)}\n")
        return 2
    refused = 0
    for name in wanted or [name for name in names if name not in ELSEWHERE]:
        load = wait_until_idle()
        figures = run(name)
        if load <= MAX_LOAD:
            RESULTS.write_text(update(RESULTS.read_text() if RESULTS.exists() else "", figures, load=load))
        else:
            refused = 1
            sys.stderr.write(f"error: {name} began at a load of {load:.1f}, RESULTS.md takes at most {MAX_LOAD:g}\n")
    return refused


def wait_until_idle() -> float:
    """Return the load average once it is low enough, or after a deadline: the previous benchmark may have raised it."""
    deadline = time.monotonic() + IDLE_TIMEOUT_S
    while (load := os.getloadavg()[0]) > MAX_LOAD and time.monotonic() < deadline:
        time.sleep(IDLE_POLL_S)
    return load


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
