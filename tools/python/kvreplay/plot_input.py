"""What the modules that draw figures read."""

import csv
import sys

from kvreplay.errors import UserError

def table(file, needed, allowed):
    """The rows of a CSV file with the columns `needed`; `allowed` says what it must be."""
    try:
        rows = csv_rows(file)
    except OSError as error:
        raise UserError(f"{file}: {error.strerror}; allowed: {allowed}") from None
    except (UnicodeDecodeError, csv.Error):
        raise UserError(f"{file}: is no text of rows; allowed: {allowed}") from None
    missing = [name for name in needed if not rows or name not in rows[0]]
    if missing:
        raise UserError(f"{file}: no column {', '.join(missing)}; allowed: {allowed}")
    for place, row in enumerate(rows):
        if None in row or None in row.values():
            raise UserError(f"{file}: row {place + 1} has not as many fields as the first line; "
                            f"allowed: {allowed}")
    return rows


def csv_rows(file):
    """The rows of a CSV file by column name; "-" is standard input. OSError where it is unreadable."""
    if str(file) == "-":
        return list(csv.DictReader(sys.stdin))
    with open(file, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
