"""Draw the measurements of benchmarks/figure1/figure1.py; the same measurements give the same file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figure1._methods import METHODS

COLORS: Final = {
    "one_server": "#b3cde3",
    "n_servers": "#6497b1",
    "two_n_servers": "#03396c",
    "horovod": "#f4a259",
    "ours": "#3a7d44",
}
CORES: Final[dict[str, Any]] = {"marker": "D", "markersize": 4, "linestyle": "none", "color": "none", "mec": "black"}
BYTES_PER_WEIGHT: Final = 4
WIDTH: Final = 0.86
"""Width of a group of bars; groups are 1 apart."""


def draw(measured: Mapping[str, Any], path: Path) -> None:
    """Draw images/s and efficiency against workers, as SVG."""
    # Without a salt, each file has new random ids and its date.
    with mpl.rc_context({"svg.hashsalt": "figure1", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(11, 5), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=[3, 2])
        for axes in left, right:
            axes.spines[["top", "right"]].set_visible(False)
        _draw_speeds(left, measured)
        _draw_efficiencies(right, measured)
        handles, labels = left.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
        figure.suptitle(
            f"{measured['weights'] / 1e6:.1f} million weights, batch {measured['batch']} per worker, "
            f"links of {measured['mbit']:,} Mbit/s ({measured['machine']}, load {measured['load']}, {measured['date']})"
        )
        figure.savefig(path, format="svg", metadata={"Date": None})


def limit(measured: Mapping[str, Any], name: str, workers: int) -> float:
    """Return the limit of the links in images/s: only the model is sent, and computing takes no time.

    With one worker, it is infinite.
    """
    seconds = METHODS[name].models_sent(workers) * measured["weights"] * BYTES_PER_WEIGHT * 8 / (measured["mbit"] * 1e6)
    images: int = workers * measured["batch"]
    return images / seconds if seconds else float("inf")


def cores_limit(measured: Mapping[str, Any], name: str, workers: int) -> float:
    """Return the limit of the cores in images/s: one worker per core, and the cores only compute.

    It is derived from the CPU time of a step, which hardly depends on other load on the machine.
    """
    images: int = workers * measured["batch"]
    seconds: float = measured["cpu_s_per_step"][str(workers)][name] / min(workers, measured["cores"])
    return images / seconds


def efficiency(measured: Mapping[str, Any], name: str, workers: int) -> float:
    """Return the efficiency, from 0 to 1: speed relative to workers that send nothing, as limited by the cores."""
    speed: float = measured["images_per_s"][str(workers)][name]
    return speed / cores_limit(measured, METHODS[name].baseline, workers)


def _draw_speeds(axes: Axes, measured: Mapping[str, Any]) -> None:
    rows = measured["images_per_s"]
    bar = WIDTH / len(METHODS)
    inner = 0.92 * bar
    for place, (name, method) in enumerate(METHODS.items()):
        lefts = [group - WIDTH / 2 + place * bar for group in range(len(rows))]
        heights = [row[name] for row in rows.values()]
        bars = axes.bar(lefts, heights, inner, align="edge", color=COLORS[name], label=method.label)
        axes.bar_label(bars, fmt="%.0f", fontsize=7, padding=1)
        for workers, left in zip(map(int, rows), lefts, strict=True):
            # One worker sends nothing and computes on one core.
            if workers > 1:
                axes.hlines(limit(measured, name, workers), left, left + inner, color="black", linewidth=1.5)
                axes.plot(left + inner / 2, cores_limit(measured, name, workers), **CORES)
    axes.plot([], [], color="black", linewidth=1.5, label="what the links allow")
    axes.plot([], [], label="what the cores allow", **CORES)
    axes.set_xticks(range(len(rows)), list(rows))
    axes.set_xlabel("workers")
    axes.set_ylabel("images/s, all workers")


def _draw_efficiencies(axes: Axes, measured: Mapping[str, Any]) -> None:
    rows = measured["images_per_s"]
    for name in METHODS:
        shares = [100 * efficiency(measured, name, int(workers)) for workers in rows]
        axes.plot(range(len(rows)), shares, color=COLORS[name], marker="o")
    axes.set_xticks(range(len(rows)), list(rows))
    axes.set_xlabel("workers")
    axes.set_ylabel("efficiency: % of as many workers that send nothing")
    axes.set_ylim(0, 105)
