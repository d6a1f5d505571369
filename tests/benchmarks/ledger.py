"""Time of a spend that is kept in a file, as a multiple of one bare sync of the same disk.

    python tests/benchmarks/ledger.py                on the disk of this folder
    python tests/benchmarks/ledger.py --busy 4       while another process writes and syncs files of 4 MB there

The entries take turns, in a random order, so that all of them meet the same load. Beside the ledger, bare SQLite in
three ways to keep a journal: deleted at each commit (its default), kept (as the ledger does), and a write-ahead log.
The last one is the fastest and is not used: what was acknowledged is then in a second file (see `dpbook/_store.py`).
"""

import argparse
import os
import random
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dpbook import budget

ROUNDS = 60
MOST_SYNCS = 6.0  # aim: a spend takes at most so many bare syncs, and the time of SQLite itself
WORK = 0.002  # seconds
WRITER = """
import os, sys
content, number = os.urandom(int(sys.argv[2]) << 20), 0
while True:
    file = os.open(f"{sys.argv[1]}/load{number % 20}", os.O_CREAT | os.O_RDWR | os.O_TRUNC)
    os.write(file, content)
    os.fsync(file)
    os.close(file)
    number += 1
"""


def bare(folder: Path) -> Callable[[], None]:
    file = os.open(folder / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def call() -> None:
        os.write(file, b"x" * 300)
        getattr(os, "fdatasync", os.fsync)(file)

    return call


def ledger(folder: Path) -> Callable[[], None]:
    book = budget.Ledger.create(folder / "ledger.db", budget.basic(epsilon=1e6, neighbors="add_remove"))
    return lambda: book.spend(epsilon=0.1, label="query") and None


def sqlite(folder: Path, mode: str, sync: str) -> Callable[[], None]:
    path = folder / f"{mode}.db"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute(f"PRAGMA synchronous={sync}")
        connection.execute(f"PRAGMA journal_mode={mode}")
        return connection

    kept = connect()
    kept.execute("CREATE TABLE spends (number INTEGER PRIMARY KEY, row TEXT)")

    def call() -> None:
        connection = kept if mode == "WAL" else connect()  # a log is folded in when its last connection is closed
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO spends (row) VALUES (?)", ("x" * 200,))
        connection.execute("COMMIT")
        if connection is not kept:
            connection.close()

    return call


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", type=int, metavar="MB", help="write files of so many MB at the same time")
    parser.add_argument("--folder", help="on the disk to measure; this one by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder or Path(__file__).parent) as name:
        folder = Path(name)
        calls = {
            "one bare sync": bare(folder),
            "Ledger.spend": ledger(folder),
            "SQLite, journal kept": sqlite(folder, "PERSIST", "FULL"),
            "SQLite, journal deleted": sqlite(folder, "DELETE", "EXTRA"),
            "SQLite, write-ahead log": sqlite(folder, "WAL", "FULL"),
        }
        load = subprocess.Popen([sys.executable, "-c", WRITER, name, str(arguments.busy)]) if arguments.busy else None
        seconds: dict[str, list[float]] = {entry: [] for entry in calls}
        order = list(calls)
        try:
            for _ in range(ROUNDS):
                random.shuffle(order)
                for entry in order:
                    start = time.perf_counter()
                    calls[entry]()
                    seconds[entry].append(time.perf_counter() - start)
        finally:
            if load:
                load.kill()
                load.wait()
    sync = statistics.mean(seconds["one bare sync"])
    print(f"{'milliseconds':26}{'median':>9}{'mean':>9}{'mean, in syncs':>16}")
    for entry, found in seconds.items():
        mean = statistics.mean(found)
        print(f"{entry:26}{statistics.median(found) * 1e3:9.2f}{mean * 1e3:9.2f}{mean / sync:16.1f}")
    reached = statistics.mean(seconds["Ledger.spend"]) <= MOST_SYNCS * sync + WORK
    print(f"{'reached' if reached else 'NOT reached'}: at most {MOST_SYNCS:g} syncs and {WORK * 1e3:g} ms for a spend")


if __name__ == "__main__":
    main()
