"""Run benchmarks and record their figures in RESULTS.md.

    python -m benchmarks          all of them except gpu, one after the other
    python -m benchmarks synth    one of them

A benchmark is a module of a folder here, such as launch/fanout.py; its last lines are its figures:
``NAME VALUE UNIT``. Modules that begin with _ help the benchmarks of their folder, and harness/ helps all.
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
HIGHEST_LOAD = 1.0
"""Load average at which a benchmark may begin for its figures to be recorded."""
IDLE_TIMEOUT_S, IDLE_POLL_S = 180.0, 5.0
"""Wait for the load to fall to that; it halves in 42 s on an idle machine."""
HEADING = """# Results

Written by `make bench`. Each figure compares ours with a peer in the same run; the benchmark's docstring names the
peer. The load is the average of the minute before, which may include the benchmark that ended then; where it is in
words, a person ran the benchmark and noted what else ran.

| figure | value | unit | date | machine | load |
|---|---|---|---|---|---|
"""


def modules() -> dict[str, str]:
    """Return the module of each benchmark by its name."""
    found = {
        path.stem: f"benchmarks.{path.parent.name}.{path.stem}"
        for path in FOLDER.glob("*/[a-z]*.py")
        if path.parent.name != HARNESS
    }
    return dict(sorted(found.items()))


def run(name: str) -> dict[str, tuple[str, str]]:
    """Run a benchmark and return its figures. Raises CalledProcessError and TimeoutExpired."""
    printed = subprocess.run(
        [sys.executable, "-m", modules()[name]], check=True, timeout=TIMEOUT_S, stdout=subprocess.PIPE, text=True
    ).stdout
    sys.stdout.write(printed)
    return {match[1]: (match[2], match[3]) for line in printed.splitlines() if (match := FIGURE.fullmatch(line))}


def row(figure: str, value: str, unit: str, *, load: float) -> str:
    machine = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    return f"| {figure} | {value} | {unit} | {time.strftime('%Y-%m-%d')} | {machine} | {load:.1f} |\n"


def update(text: str, figures: dict[str, tuple[str, str]], *, load: float) -> str:
    """Return the results with these figures in place of older ones of the same names; `load` is the load average."""
    kept = {
        line.split("|")[1].strip(): line for line in text.splitlines(keepends=True) if re.match(r"\| [a-z]+_", line)
    }
    new = {figure: row(figure, value, unit, load=load) for figure, (value, unit) in figures.items()}
    return HEADING + "".join(line for _, line in sorted((kept | new).items()))


def main(wanted: list[str]) -> int:
    names = [*modules()]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        sys.stderr.write(f"error: no benchmark {unknown[0]}, there are {', '.join(names)}\n")
        return 2
    refused = 0
    for name in wanted or [name for name in names if name not in ELSEWHERE]:
        load = wait_until_idle()
        figures = run(name)
        if load <= HIGHEST_LOAD:
            RESULTS.write_text(update(RESULTS.read_text() if RESULTS.exists() else "", figures, load=load))
        else:
            refused = 1
            sys.stderr.write(
                f"error: {name} began at a load of {load:.1f}, RESULTS.md takes at most {HIGHEST_LOAD:g}\n"
            )
    return refused


def wait_until_idle() -> float:
    """Return the load average once it is low enough, or after a deadline: the benchmark before may have raised it."""
    deadline = time.monotonic() + IDLE_TIMEOUT_S
    while (load := os.getloadavg()[0]) > HIGHEST_LOAD and time.monotonic() < deadline:
        time.sleep(IDLE_POLL_S)
    return load


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
