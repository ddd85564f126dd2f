"""From rows of results to verdicts on a paper's claims. docs/papers.md describes both."""

import itertools
import json
import math
import re

from kvreplay.errors import UserError
from kvreplay.reproduce_papers import CLOSED_LOOP_MODEL, as_list
from kvreplay.source_tree import TOP

IDENTITY = ("trace", "model", "platform", "device", "batch", "system", "variant")

REPRODUCED, DIRECTION, NOT = "reproduced", "direction only", "not reproduced"
CALIBRATED, NOT_SIMULATED = "calibrated", "not simulated"
VERDICTS = (REPRODUCED, DIRECTION, NOT, CALIBRATED, NOT_SIMULATED)

DISTINCT = 0.05  # reported values that differ by less have no order to keep
NOTICED = 0.01  # ours that differ by less are in no order
TOLERANCE = 0.25

PICKS = {"mean": lambda values: sum(values) / len(values), "max": max, "min": min}
NO_WEIGHTS = ("the closed loop needs the model's weights: "
              f"kvreplay fetch-model {CLOSED_LOOP_MODEL}, then kvreplay reproduce again")


def bound_of(reported):
    """("<", 7.9) of "<7.9"; ("=", 2.3) of 2.3; a null is drawn and not judged."""
    if reported is None:
        return "", math.nan
    if isinstance(reported, str):
        return reported[0], float(reported[1:])
    return "=", float(reported)


def rows_of(runs, tables):
    return [row for run in as_list(runs) for row in tables[run]]


def matching(rows, where):
    return [row for row in rows
            if all(str(row.get(key)) in map(str, as_list(value))
                   for key, value in where.items())]


def weights_of(metric, x="{x}"):
    """Of each column whose sum a metric is."""
    weights = metric if isinstance(metric, dict) else dict.fromkeys(as_list(metric), 1)
    return {name.replace("{x}", str(x)): weight for name, weight in weights.items()}


def number_of(row, weights, where):
    total = 0.0
    for name, weight in weights.items():
        if name not in row:
            raise UserError(f"{where}: unknown column '{name}'; allowed: {', '.join(row)}")
        if row[name] in ("", None):
            raise UserError(f"{where}: column '{name}' is empty in the row of "
                            + " ".join(str(row.get(key, "")) for key in IDENTITY))
        try:
            total += weight * float(row[name])
        except ValueError:
            raise UserError(f"{where}: column '{name}' holds {row[name]!r} in the row of "
                            + " ".join(str(row.get(key, "")) for key in IDENTITY)
                            + "; allowed: a number") from None
    return total


def simulated(claim, tables, selector, x=None):
    """Of each row that matches: the metric, over that of its partner where the claim has one."""
    where = f"claim {claim['name']}"
    weights = weights_of(claim["metric"], x)
    chosen = {**claim.get("where", {}), **selector}
    found = matching(rows_of(claim["run"], tables), chosen)
    if not found:
        raise UserError(f"{where}: no row has {json.dumps(chosen)}; allowed: what its run gives")
    values = []
    for row in found:
        value = number_of(row, weights, where) * claim.get("scale", 1)
        if claim.get("complement"):
            value = 1 - value
        if "over" in claim:
            other = claim["over"]
            same = {key: row[key] for key in IDENTITY if key in row}
            partners = matching(rows_of(other.get("run", claim["run"]), tables),
                                {**same, **other.get("where", {})})
            if len(partners) != 1:
                raise UserError(f"{where}/over: found {len(partners)} rows; allowed: one")
            base = number_of(
                partners[0], weights_of(other["metric"], x) if "metric" in other else weights, where)
            if claim.get("complement"):
                base = 1 - base
            if base == 0:
                raise UserError(f"{where}/over: the denominator is 0")
            value /= base
        values.append((str(row.get("trace", "")), value))
    return values


def spread(claim, values):
    """The picked value, and its minimum and maximum over the traces."""
    pick = PICKS[claim.get("pick", "mean")]
    traces = list(dict.fromkeys(trace for trace, _ in values))
    by_trace = [pick([value for trace, value in values if trace == name]) for name in traces]
    return pick([value for _, value in values]), min(by_trace), max(by_trace)


class Point:
    """One number of a paper with ours."""

    def __init__(self, claim, series, x, reported, value, low, high):
        self.claim, self.series, self.x = claim, series, x
        self.bound, self.reported = bound_of(reported)
        self.printed = reported
        self.value, self.low, self.high = value, low, high

    @property
    def ratio(self):
        return self.value / self.reported if self.reported else None

    @property
    def judged(self):
        return not math.isnan(self.reported)

    @property
    def label(self):
        names = self.claim.get("labels", {})
        x = "" if self.x is None else names.get(str(self.x), str(self.x))
        if x and self.claim["x"] != "variant":
            x = f"{self.claim['x']} {x}"
        return ", ".join(text for text in (names.get(self.series, self.series), x) if text)


def points_of(claim, tables):
    """All points of a claim, by series, then x. Where x is in the metric's name, it selects no row."""
    points = []
    reported = claim["reported"]
    x_selects = "x" in claim and not any("{x}" in name for name in weights_of(claim["metric"]))
    for series, values in (reported.items() if "series" in claim else [("", reported)]):
        selector = {claim["series"]: series} if series else {}
        for x, number in (zip(claim["xs"], values) if "x" in claim else [(None, values)]):
            if x_selects:
                selector = {**selector, claim["x"]: x}
            found = simulated(claim, tables, selector, x)
            points.append(Point(claim, series, x, number, *spread(claim, found)))
    return points


def differ(one, two, share):
    return abs(one - two) > share * max(abs(one), abs(two))


def same_order(one, two):
    """Whether our values are ordered as the paper's are; None where those are not distinct."""
    if not differ(one.reported, two.reported, DISTINCT):
        return None
    return (differ(one.value, two.value, NOTICED)
            and (one.reported - two.reported) * (one.value - two.value) > 0)


def keeps_direction(point, points):
    direction = point.claim.get("direction")
    if direction == "side":
        return differ(point.value, 1, NOTICED) and (point.reported - 1) * (point.value - 1) > 0
    if direction == "rank":
        peers = [other for other in points if other.x == point.x and other is not point]
    elif direction == "trend":
        peers = [other for other in points if other.series == point.series and other is not point]
    else:
        return False
    kept = [same_order(point, other) for other in peers]
    return True in kept and False not in kept


def is_near(point):
    """Whether ours is within the tolerance of the reported value. A gain or loss is judged by its
    distance from 1: 1.0 is no fair copy of 1.2."""
    base = 1 if point.claim.get("direction") == "side" else 0
    tolerance = point.claim.get("tolerance", TOLERANCE)
    return abs(point.value - point.reported) <= tolerance * abs(point.reported - base)


def verdict_of(point, points):
    claim = point.claim
    if [point.series, point.x] in claim.get("calibrated_on", []):
        return CALIBRATED
    if point.bound == "<" and point.value < point.reported:
        return REPRODUCED
    if point.bound == ">" and point.value > point.reported:
        return REPRODUCED
    if point.bound == "=" and is_near(point):
        return REPRODUCED
    return DIRECTION if keeps_direction(point, points) else NOT


def why(claim, series, verdict):
    """The cells "reason" and "check" of a row whose number is another than the paper's."""
    if verdict in (REPRODUCED, CALIBRATED):
        return {}

    def text(key):
        found = claim.get(key, "")
        return found.get(series, found.get("", "")) if isinstance(found, dict) else found

    return {"reason": text("reason"), "check": text("check")}


def of_own_recordings(claim, tables):
    """The claim for rows of other recordings than the shipped ones, of which its texts speak: of a
    check the commands remain, and a reason that names lengths or shares is left out."""
    shipped = {file.name.removesuffix(".kvtrace.h5")
               for file in (TOP / "traces/data").glob("*.kvtrace.h5")}
    if all(row.get("trace", "") in {"", *shipped} for row in rows_of(claim["run"], tables)):
        return claim

    def texts(key, change):
        found = claim.get(key, "")
        return ({series: change(text) for series, text in found.items()} if isinstance(found, dict)
                else change(found))

    def without_numbers(text):
        commands = re.findall("`[^`]+`", text)
        return ", ".join(commands) if re.search(r"\d", re.sub("`[^`]+`", "", text)) else text

    return {**claim, "check": texts("check", without_numbers),
            "reason": texts("reason", lambda text: "" if re.search(r"\dK tokens|\d %", text) else text)}


def short(value):
    if value is None:
        return ""
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def order_text(points, key):
    ranked = sorted(points, key=key, reverse=True)
    text = ranked[0].series
    for above, below in zip(ranked, ranked[1:]):
        equal = key(above) - key(below) <= DISTINCT * abs(key(above))
        text += (" = " if equal else " > ") + below.series
    return text


def row_of(paper, claim, case, **values):
    name = claim["claim"] + (f" (proxy: {claim['proxy']})" if "proxy" in claim else "")
    return {"paper": paper, "claim": name, "case": case, "source": claim["source"],
            "unit": claim.get("unit", ""), "reported": "", "simulated": "", "lowest": "",
            "highest": "", "ratio": "", "verdict": "", "reason": "", "check": "", **values}


def error(value, reported):
    """|value / reported - 1|. What was printed with one digit is an interval (0.1 is 0.05 to 0.15):
    nothing within it, and outside from its nearer edge."""
    printed = repr(reported)
    if len(printed.replace(".", "").lstrip("0")) == 1:
        half = 0.5 / 10 ** len(printed.partition(".")[2])
        reported = min(max(value, reported - half), reported + half)
    return abs(value / reported - 1)


def summary_rows(paper, claim, points):
    """For a table of systems: the order of each column, and the mean absolute error."""
    rows = []
    for x in claim["xs"]:
        column = [point for point in points if point.x == x]
        pairs = [same_order(one, two) for one, two in itertools.combinations(column, 2)]
        verdict = NOT if False in pairs else REPRODUCED
        rows.append(row_of(paper, claim, f"order, {claim['x']} {x}", unit="",
                           reported=order_text(column, lambda p: p.reported),
                           simulated=order_text(column, lambda p: p.value), verdict=verdict,
                           **why(claim, "", verdict)))
    free = [point for point in points if verdict_of(point, points) != CALIBRATED]
    mean = sum(error(point.value, point.printed) for point in free) / len(free)
    rows.append(row_of(paper, claim, f"mean absolute error of {len(free)} cells", unit="%",
                       simulated=short(100 * mean)))
    return rows


def order_row(paper, claim, tables):
    tiers = [as_list(tier) for tier in claim["order"]]
    values = {name: spread(claim, simulated(claim, tables, {claim["series"]: name}))[0]
              for tier in tiers for name in tier}
    pairs = [(better, worse) for high, low in itertools.combinations(tiers, 2)
             for better in high for worse in low]
    broken = [f"{worse} above {better}" for better, worse in pairs if values[worse] >= values[better]]
    ranked = sorted(values, key=values.get, reverse=True)
    verdict = NOT if broken else REPRODUCED
    cells = why(claim, "", verdict)
    if broken:
        held = f"{len(pairs) - len(broken)} of {len(pairs)} pairs hold"
        cells["reason"] = "; ".join(filter(None, [held, cells["reason"]]))
    return row_of(paper, claim, "order", verdict=verdict, **cells,
                  reported=" > ".join(", ".join(tier) for tier in tiers),
                  simulated=" > ".join(f"{name} {short(values[name])}" for name in ranked))


def judge(paper, content, tables):
    """Rows of claims.csv, and the points of each claim by name."""
    rows, points_by_claim = [], {}
    for claim in content["claims"]:
        if "not_simulated" in claim:
            rows.append(row_of(paper, claim, "", reported=claim["reported"], verdict=NOT_SIMULATED,
                               reason=claim["not_simulated"]))
            continue
        if any(tables[run] is None for run in as_list(claim["run"])):
            rows.append(row_of(paper, claim, "", verdict=NOT_SIMULATED, reason=NO_WEIGHTS))
            continue
        claim = of_own_recordings(claim, tables)
        if "order" in claim:
            rows.append(order_row(paper, claim, tables))
            continue
        points = points_of(claim, tables)
        points_by_claim[claim["name"]] = points
        points = [point for point in points if point.judged]
        for point in points:
            verdict = verdict_of(point, points)
            bound = "" if point.bound == "=" else point.bound
            rows.append(row_of(paper, claim, point.label, reported=bound + short(point.reported),
                               simulated=short(point.value), lowest=short(point.low),
                               highest=short(point.high),
                               ratio=short(point.ratio) if point.bound == "=" else "",
                               verdict=verdict, **why(claim, point.series, verdict)))
        if claim.get("direction") == "rank" and "x" in claim:
            rows += summary_rows(paper, claim, points)
    return rows, points_by_claim
