"""What a paper's bench has measured as one W&B run: a chart a quantity with a line a row, and every median."""

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

from common.report.samples import Samples, in_order, number_of, read_samples
from reproductions.log_wandb import start


def log_measured(config: Mapping[str, Any], folder: Path, rows: Mapping[str, Path]) -> None:
    """rows: label -> folder of a measured row. As with trained rows, whatever goes wrong here is said in a line and does
    not touch a result."""
    try:
        samples = {label: read_samples(place / "samples.json") for label, place in rows.items()}
        run = start(
            config["logger"]["project"],
            config["logger"]["mode"],
            folder,
            config=dict(config),
            job_type="measure",
            group=f"{config['paper']}/measured",
            name=f"measured-s{config['seed']}",
            tags=[config["scale"]["name"]],
        )
        run.log(charts(samples))
        run.summary.update(
            {
                f"{label}/{quantity}/{point}": statistics.median(repeats)
                for label, of_row in samples.items()
                for quantity, found in of_row.items()
                for point, repeats in found.at.items()
            }
        )
        wandb.finish()
    except Exception as error:  # noqa: BLE001 - see above
        print(f"W&B: {type(error).__name__}: {error}: the view of what was measured is incomplete", file=sys.stderr)
        wandb.finish(exit_code=1)


def charts(samples: Mapping[str, Mapping[str, Samples]]) -> dict[str, Any]:
    """By quantity: medians at points that are numbers, a line a row; quantities of single points have none."""
    found = {}
    for quantity in dict.fromkeys(name for of_row in samples.values() for name in of_row):
        lines = {}
        for label, of_row in samples.items():
            at = of_row[quantity].at if quantity in of_row else {}
            points = in_order(point for point in at if number_of(point) is not None)
            if len(points) > 1:
                lines[label] = ([number_of(p) for p in points], [statistics.median(at[p]) for p in points])
        if lines:
            found[quantity] = wandb.plot.line_series(
                xs=[xs for xs, _ in lines.values()],
                ys=[ys for _, ys in lines.values()],
                keys=list(lines),
                title=quantity,
                xname="point",
            )
    return found
