"""Folders of results as frames."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable
from typing import Union

import numpy
import pandas

from kvreplay.errors import UserError, reason, unknown

PathLike = Union[str, os.PathLike]


def _table(folder: PathLike, name: str, commands: str) -> pandas.DataFrame:
    file = pathlib.Path(folder) / name
    try:
        # Only an empty field means no value: "none" and "null" are names like any other.
        frame = pandas.read_csv(file, keep_default_na=False, na_values=[""],
                                float_precision="round_trip")
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: {reason(error)}; allowed: the folder of {commands}") from None
    text = file.read_text(encoding="utf-8")
    if not text.endswith("\n"):
        raise UserError(f"{file}: is cut: its last line does not end; allowed: the folder of {commands}")
    if "system" not in frame:
        raise UserError(f"{file}: no column system; allowed: the folder of {commands}")
    return frame


def results(folder: PathLike) -> pandas.DataFrame:
    """results.csv of a `kvreplay run` or `sweep`: one row per cell. docs/metrics.md defines the
    columns. Names end in the unit (_ms, _bytes, _per_s); shares are 0 to 1; empty fields NaN."""
    return _table(folder, "results.csv", "`kvreplay run` or `kvreplay sweep`")


def quality(folder: PathLike) -> pandas.DataFrame:
    """quality.csv of a `kvreplay run` or `sweep`: one row per trace, system and recorded layer, means
    over steps and query heads."""
    return _table(folder, "quality.csv", "`kvreplay run` or `kvreplay sweep`")


def closed_loop(folder: PathLike) -> pandas.DataFrame:
    """closed_loop.csv of a `kvreplay evaluate`: one row per system and budget."""
    return _table(folder, "closed_loop.csv", "`kvreplay evaluate`")


def front(folder: PathLike) -> pandas.DataFrame:
    """front.csv of a `kvreplay tune`: one row per composition that meets the limits and that no
    other beats, with the columns of results(), its part by role (`grouping` ... `pipeline`), and
    `composition`, the JSON of its system."""
    return _table(folder, "front.csv", "`kvreplay tune`")


def evaluated(folder: PathLike) -> pandas.DataFrame:
    """evaluated.csv of a `kvreplay tune`: as front(), every composition that was replayed;
    `feasible` and `front` are 1 or 0."""
    return _table(folder, "evaluated.csv", "`kvreplay tune`")


def manifest(folder: PathLike) -> dict:
    """How a folder's results were made: configuration, hashes, versions, host."""
    file = pathlib.Path(folder) / "manifest.json"
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: {reason(error)}; allowed: the folder of a `kvreplay` "
                        "command") from None


def _names(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def pareto_front(frame: pandas.DataFrame, maximise: str | Iterable[str] = (),
                 minimise: str | Iterable[str] = (),
                 within: str | Iterable[str] = ()) -> pandas.DataFrame:
    """The rows that no other row beats, in their order, with their index.

    A row beats another where it is at least as good in every column of `maximise` and `minimise`
    and better in one; equal rows stay together. Only rows alike in every column of `within` (such
    as "device") are compared. Rows without a number in one of the objectives are left out."""
    maximise, minimise, within = _names(maximise), _names(minimise), _names(within)
    if not maximise and not minimise:
        raise UserError("pareto_front: no objective; allowed: columns to maximise or minimise")
    for column in (*maximise, *minimise, *within):
        if column not in frame:
            raise unknown("pareto_front", "column", column, frame.columns)
    for column in (*maximise, *minimise):
        if not pandas.api.types.is_numeric_dtype(frame[column]):
            raise UserError(f"pareto_front: column {column} holds {frame[column].dtype}; allowed: "
                            "numbers")
    rated = frame.dropna(subset=[*maximise, *minimise])
    costs = numpy.column_stack([-rated[maximise].to_numpy(float), rated[minimise].to_numpy(float)])
    kinds = list(zip(*(rated[column].astype(str) for column in within))) or [()] * len(rated)
    kept = numpy.zeros(len(rated), bool)
    for kind in set(kinds):
        places = numpy.array([place for place, other in enumerate(kinds) if other == kind])
        peers = costs[places]
        for place in places:
            beaten = (peers <= costs[place]).all(1) & (peers < costs[place]).any(1)
            kept[place] = not beaten.any()
    return rated[kept]
