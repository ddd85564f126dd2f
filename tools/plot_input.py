"""What the scripts that draw figures read, and how they refuse what they cannot."""

import csv
import pathlib
import sys


program = f"tools/{pathlib.Path(sys.argv[0]).name}"  # as errors name it


def fail(message):
    """Ends the script with one line, which names it, and exit code 2."""
    print(f"{program}: {message}", file=sys.stderr)
    sys.exit(2)


def table(file, needed, allowed):
    """The rows of a CSV file with the columns `needed`; `allowed` says what it must be."""
    try:
        rows = csv_rows(file)
    except OSError as error:
        fail(f"{file}: {error.strerror}; allowed: {allowed}")
    except (UnicodeDecodeError, csv.Error):
        fail(f"{file}: is no text of rows; allowed: {allowed}")
    missing = [name for name in needed if not rows or name not in rows[0]]
    if missing:
        fail(f"{file}: no column {', '.join(missing)}; allowed: {allowed}")
    for place, row in enumerate(rows):
        if None in row or None in row.values():
            fail(f"{file}: row {place + 1} has not as many fields as the first line; "
                 f"allowed: {allowed}")
    return rows


def csv_rows(file):
    """The rows of a CSV file by column name; "-" is standard input. OSError where it is unreadable."""
    if str(file) == "-":
        return list(csv.DictReader(sys.stdin))
    with open(file, newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
