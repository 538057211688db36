"""The command line: `python3 -m tally LEDGER`."""

import argparse
from pathlib import Path

from tally import entries, report


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="tally", description="What each customer owes.")
    parser.add_argument("ledger", type=Path, help="a CSV file")
    options = parser.parse_args(arguments)
    with options.ledger.open(newline="") as lines:
        print(report.as_text(entries.read(lines)))


if __name__ == "__main__":
    main()
