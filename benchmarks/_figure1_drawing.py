"""Draws what benchmarks/figure1.py has measured; the same measurements give the same file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks._ways import WAYS

COLOURS: Final = {
    "one_server": "#b3cde3",
    "n_servers": "#6497b1",
    "two_n_servers": "#03396c",
    "horovod": "#f4a259",
    "ours": "#3a7d44",
}
BYTES_A_WEIGHT: Final = 4
WIDTH: Final = 0.8
"""Of a group of bars; a group is 1 apart from the next."""


def draw(measured: Mapping[str, Any], path: Path) -> None:
    """Draw images/s and efficiency against workers, as SVG."""
    # Else every file has other names in it, and its date.
    with mpl.rc_context({"svg.hashsalt": "figure1", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(10, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        _draw_speeds(left, measured)
        _draw_efficiencies(right, measured)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        figure.suptitle(
            f"LeNet, batch {measured['batch']} a worker, links of {measured['mbit']} Mbit/s "
            f"({measured['machine']}, {measured['date']})"
        )
        figure.savefig(path, format="svg", metadata={"Date": None})


def limit(measured: Mapping[str, Any], name: str, workers: int) -> float:
    """Return the images/s that the links allow if they carry the model alone, and computing takes no time.

    Infinite for one worker.
    """
    seconds = WAYS[name].models_sent(workers) * measured["weights"] * BYTES_A_WEIGHT * 8 / (measured["mbit"] * 1e6)
    images: int = workers * measured["batch"]
    return images / seconds if seconds else float("inf")


def ideal(row: Mapping[str, float], name: str) -> float:
    """Return the most images/s that as many workers of the same kind had: as a rule those that send nothing."""
    same = WAYS[name].ideal
    return max(row[same], *(row[other] for other, way in WAYS.items() if way.ideal == same))


def efficiency(row: Mapping[str, float], name: str) -> float:
    """Return the part of that which this way reaches, from 0 to 1."""
    return row[name] / ideal(row, name)


def _draw_speeds(axes: Axes, measured: Mapping[str, Any]) -> None:
    rows = measured["images_per_s"]
    bar = WIDTH / len(WAYS)
    for place, (name, way) in enumerate(WAYS.items()):
        lefts = [group - WIDTH / 2 + place * bar for group in range(len(rows))]
        axes.bar(lefts, [row[name] for row in rows.values()], bar, align="edge", color=COLOURS[name], label=way.label)
        limits = [min(limit(measured, name, int(workers)), ideal(row, name)) for workers, row in rows.items()]
        label = "" if place else "limit of network and cores"
        axes.hlines(limits, lefts, [left + bar for left in lefts], color="black", linewidth=1.5, label=label)
    axes.set_xticks(range(len(rows)), list(rows))
    axes.set_xlabel("workers")
    axes.set_ylabel("images/s, all workers")


def _draw_efficiencies(axes: Axes, measured: Mapping[str, Any]) -> None:
    rows = measured["images_per_s"]
    for name in WAYS:
        shares = [100 * efficiency(row, name) for row in rows.values()]
        axes.plot(range(len(rows)), shares, color=COLOURS[name], marker="o")
    axes.set_xticks(range(len(rows)), list(rows))
    axes.set_xlabel("workers")
    axes.set_ylabel("efficiency: % of as many workers\nthat send each other nothing")
    axes.set_ylim(0, 105)
