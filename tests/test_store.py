"""The ledger's file: crashes, several processes, and files that are not what they should be."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from decimal import Decimal

import pytest

from dpbook import _store, budget
from dpbook.budget import BudgetExceededError, Ledger, LedgerError, LedgerLockedError

LIMIT = budget.basic(epsilon=1.0, neighbors="add_remove", name="residents")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "budget of the team.db"


def raw(path):
    return sqlite3.connect(path, isolation_level=None)


def sql(path, *statements):
    connection = raw(path)
    try:
        return [connection.execute(statement).fetchall() for statement in statements]
    finally:
        connection.close()


def start(program, *arguments):
    command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


SPENDER = """
    import sys
    from dpbook import budget

    ledger = budget.Ledger.open(sys.argv[1], timeout=60)
    while True:
        try:
            paid = ledger.spend(epsilon=float(sys.argv[3]), label="query", who=sys.argv[2])
        except budget.BudgetExceededError:
            break
        print(paid.number, flush=True)  # the acknowledgement: from here on the data may be read
"""


# --- crashes and processes --------------------------------------------------------------------------------------------


def test_killed_processes_forget_nothing(path):
    """Two processes spend and acknowledge; both are killed at a random moment, in or between writes."""
    ledger = Ledger.create(path, LIMIT)
    rng = random.Random(3)  # the moments; what is checked holds for every moment
    acknowledged: dict[int, str] = {}
    lost = 0
    for turn in range(3):
        names = (f"{turn}a", f"{turn}b")
        workers = [start(SPENDER, path, name, 0.00001) for name in names]  # more than a full pipe takes
        lines: list[list[str]] = [[], []]
        for worker, seen in zip(workers, lines, strict=True):
            for _ in range(rng.randrange(1, 5)):
                seen.append(worker.stdout.readline())
        time.sleep(rng.uniform(0, 0.03))
        for worker in workers:
            worker.kill()
        for worker, seen, name in zip(workers, lines, names, strict=True):
            seen += worker.stdout.readlines()
            worker.stdout.close()
            worker.wait()
            numbers = [int(line) for line in seen if line.endswith("\n")]
            assert numbers, "the process did not spend"
            assert not acknowledged.keys() & set(numbers)
            acknowledged |= dict.fromkeys(numbers, name)
        history = Ledger.open(path, LIMIT).history
        for number, name in acknowledged.items():
            assert history[number - 1].who == name
        lost = len(history) - len(acknowledged)
        assert 0 <= lost <= 2 * (turn + 1)  # recorded, but killed before it was acknowledged: spent without use
    assert ledger.spent["epsilon"] == Decimal("0.00001") * (len(acknowledged) + lost)


def test_a_write_that_is_cut_short_is_rolled_back(path):
    """The changed pages are in the file and the journal is hot when the process dies: the worst moment."""
    ledger = Ledger.create(path, LIMIT)
    ledger.spend(epsilon=0.1, label="before")
    dying = start(
        """
        import os, signal, sqlite3, sys
        connection = sqlite3.connect(sys.argv[1], isolation_level=None)
        connection.execute("PRAGMA cache_size=1")  # spill into the file before the commit
        connection.execute("BEGIN IMMEDIATE")
        for number in range(2, 300):
            row = (number, "x" * 500)
            connection.execute("INSERT INTO spends VALUES (?, '', '', ?, '{}', '{}')", row)
        print(os.path.getsize(sys.argv[1]), os.path.exists(sys.argv[1] + "-journal"), flush=True)
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        """,
        path,
    )
    size, journal = dying.communicate()[0].split()
    assert int(size) > 50_000
    assert journal == "True"
    assert os.path.exists(f"{path}-journal")
    assert ledger.spent["epsilon"] == Decimal("0.1")
    ledger.spend(epsilon=0.9, label="after")
    assert [line.label for line in Ledger.open(path).history] == ["before", "after"]


def test_processes_together_never_overspend(path):
    ledger = Ledger.create(path, LIMIT)
    workers = [start(SPENDER, path, name, 0.02) for name in range(4)]
    numbers = [int(n) for worker in workers for n in worker.communicate()[0].split()]
    assert sorted(numbers) == list(range(1, 51))
    assert ledger.remaining["epsilon"] == 0
    assert Decimal(sql(path, "SELECT count(*) FROM spends")[0][0][0]) == 50


def test_durable_settings(path):
    ledger = Ledger.create(path, LIMIT)
    with ledger._store._connection() as connection:
        settings = [
            connection.execute(f"PRAGMA {x}").fetchone()[0] for x in ("synchronous", "journal_mode", "fullfsync")
        ]
    assert settings == [2, "persist", 1]  # FULL
    ledger.spend(epsilon=0.1, label="query")
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}-journal"]
    assert not any(path.with_name(f"{path.name}-journal").read_bytes()[:28])  # what would undo the spend is gone


def alone(path, name):
    """Copy the ledger's own file, and nothing that stands beside it."""
    return shutil.copy(path, path.with_name(name))


def test_the_file_alone_holds_all_that_was_acknowledged(path):
    """Also after the death of a process that had it open: an older total must never look whole."""
    Ledger.create(path, LIMIT)
    with start(SPENDER, path, "killed", 0.001) as worker:
        told = [int(worker.stdout.readline()) for _ in range(5)]
        os.kill(worker.pid, getattr(signal, "SIGSTOP", signal.SIGTERM))  # open, perhaps in the middle of a write
        worker.kill()
        told += [int(number) for number in worker.stdout.read().split()]
    assert Ledger.open(path).history[max(told) - 1].who == "killed"  # puts a half-written spend right
    assert len(Ledger.open(alone(path, "copy.db")).history) >= max(told)


def test_a_write_ahead_log_would_leave_an_older_total(path):
    """The twin, and why there is none: the copy looks whole, and has forgotten what was acknowledged."""
    Ledger.create(path, LIMIT)
    writer = raw(path)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("INSERT INTO spends VALUES (1, '', '', 'query', '{\"epsilon\": \"1\"}', '{\"epsilon\": \"1\"}')")
    assert len(Ledger.open(alone(path, "copy.db"), LIMIT).history) == 0
    writer.close()


# --- files that are not what they should be ---------------------------------------------------------------------------


def test_create_and_open(path, monkeypatch):
    with pytest.raises(LedgerError, match="no ledger at"):
        Ledger.open(path)
    assert not path.exists()
    ledger = Ledger.create(path, LIMIT)
    ledger.spend(epsilon=0.75, label="first", who="Ada")
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, LIMIT)
    monkeypatch.chdir(path.parent)
    again = Ledger.open(path.name, LIMIT)
    monkeypatch.chdir("/")
    assert again.budget == LIMIT
    assert again.history == ledger.history
    with pytest.raises(BudgetExceededError):
        again.spend(epsilon=0.5, label="second")
    with pytest.raises(LedgerError, match="cannot be created"):
        Ledger.create(path.parent / "nowhere" / "x.db", LIMIT)
    for bad in (0, -1, True, "1", None):
        with pytest.raises((TypeError, ValueError), match="timeout must"):
            Ledger.open(path, timeout=bad)
    with pytest.raises(TypeError, match="budget must"):
        Ledger.create(path, 1.0)


@pytest.mark.parametrize(
    "other",
    [
        budget.basic(epsilon=2.0, neighbors="add_remove", name="residents"),
        budget.basic(epsilon=1.0, delta=1e-9, neighbors="add_remove", name="residents"),
        budget.basic(epsilon=1.0, neighbors="replace_one", name="residents"),
        budget.basic(epsilon=1.0, neighbors="add_remove", name="visitors"),
        budget.zcdp(rho=1.0, neighbors="add_remove", name="residents"),
    ],
    ids=str,
)
def test_another_budget_is_refused(path, other):
    Ledger.create(path, LIMIT)
    with pytest.raises(LedgerError, match="holds another budget"):
        Ledger.open(path, other)


def test_every_kind_of_budget_comes_back(path):
    class Free:
        def add(self, mechanism, *, steps):
            return None

        def epsilon(self, *, delta):
            return 0.5

    kinds = [
        budget.basic(epsilon=0.1, delta=1e-300, neighbors="replace_one", name="Gemeinde Köln"),
        budget.zcdp(epsilon=1, delta=1e-6, neighbors="add_remove"),
        budget.planned({"täglich": (None, 3)}, accountant=Free(), epsilon=1, delta=1e-6, neighbors="add_remove"),
    ]
    for i, limit in enumerate(kinds):
        file = path.with_name(f"{i}.db")
        Ledger.create(file, limit)
        found = Ledger.open(file).budget
        assert found == limit
        assert (found.limits, found.certified, str(found)) == (limit.limits, limit.certified, str(limit))
        assert found.epsilon(delta=1e-6) == limit.epsilon(delta=1e-6)


def test_a_locked_file(path):
    ledger = Ledger.create(path, LIMIT, timeout=0.05)
    holder = raw(path)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerLockedError, match=r"locked for 0.05 s.*nothing was spent"):
        ledger.spend(epsilon=0.1, label="query")
    assert ledger.spent["epsilon"] == 0  # reading is possible meanwhile
    holder.execute("ROLLBACK")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(LedgerLockedError):
        _ = ledger.remaining
    holder.execute("ROLLBACK")
    reading = holder.execute("SELECT * FROM sqlite_schema")  # a reader that does not finish: the commit itself fails
    reading.fetchone()
    with pytest.raises(LedgerLockedError):
        ledger.spend(epsilon=0.1, label="query")
    assert ledger.spent["epsilon"] == 0
    reading.close()
    holder.close()
    ledger.spend(epsilon=0.1, label="query")
    assert len(ledger.history) == 1


@pytest.mark.parametrize(
    "content", [b"", b"not a database, but long enough to have a header" * 100, b"SQLite format 3\0"]
)
def test_a_file_that_is_no_ledger(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="no ledger"):
        Ledger.open(path)
    assert path.read_bytes() == content


def test_another_programs_database(path):
    sql(path, "CREATE TABLE budget (id TEXT, terms TEXT)")
    with pytest.raises(LedgerError, match="no ledger of dpbook"):
        Ledger.open(path)


def test_a_damaged_file(path):
    ledger = Ledger.create(path, LIMIT)
    ledger.spend(epsilon=0.1, label="x" * 20_000)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 4096] = bytes(4096)
    path.write_bytes(content)
    with pytest.raises(LedgerError, match=r"damaged|does not add up"):
        Ledger.open(path)
    path.write_bytes(content[:5000])
    for use in (lambda: Ledger.open(path), lambda: ledger.spend(epsilon=0.1, label="query")):
        with pytest.raises(LedgerError, match="damaged"):
            use()


def test_a_newer_format(path):
    ledger = Ledger.create(path, LIMIT)
    sql(path, "PRAGMA user_version=2")
    for use in (lambda: Ledger.open(path), lambda: ledger.spend(epsilon=0.1, label="query")):
        with pytest.raises(LedgerError, match="format 2"):
            use()


def test_a_file_that_is_removed_or_replaced(path):
    ledger = Ledger.create(path, LIMIT)
    ledger.spend(epsilon=1.0, label="all")
    path.unlink()
    with pytest.raises(LedgerError, match="no ledger at"):
        ledger.spend(epsilon=0.1, label="query")
    assert not path.exists()
    Ledger.create(path, LIMIT)
    with pytest.raises(LedgerError, match="now another ledger"):
        ledger.spend(epsilon=0.1, label="query")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM spends",
        "DELETE FROM budget",
        'UPDATE spends SET spent = \'{"epsilon": "0", "delta": "0"}\'',
        "UPDATE budget SET terms = '{}'",
        "INSERT INTO spends VALUES (7, '', '', '', '{}', '{}')",
        "INSERT OR REPLACE INTO spends VALUES (1, '', '', '', '{}', '{}')",
        "INSERT OR REPLACE INTO budget VALUES (1, '', '{}')",
    ],
)
def test_nothing_is_taken_out_by_accident(path, statement):
    ledger = Ledger.create(path, LIMIT)
    ledger.spend(epsilon=0.1, label="query")
    with pytest.raises(sqlite3.IntegrityError):
        sql(path, statement)
    assert ledger.spent["epsilon"] == Decimal("0.1")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM spends WHERE number = 2",
        'UPDATE spends SET amount = \'{"epsilon": "0", "delta": "0"}\' WHERE number = 2',
        'UPDATE spends SET spent = \'{"epsilon": "0", "delta": "0"}\' WHERE number = 3',
        "UPDATE spends SET spent = 'x' WHERE number = 3",
        "UPDATE spends SET spent = '[]' WHERE number = 3",
        'UPDATE spends SET amount = \'{"epsilon": "NaN", "delta": "0"}\' WHERE number = 3',
        'UPDATE spends SET spent = \'{"delta": "0"}\' WHERE number = 3',
        "UPDATE budget SET terms = '{}'",
        "UPDATE budget SET terms = 'x'",
        "DELETE FROM budget",
        "DROP TABLE spends",
    ],
)
def test_an_edited_file_is_noticed(path, statement):
    ledger = Ledger.create(path, LIMIT)
    for label in "abc":
        ledger.spend(epsilon=0.1, label=label)
    triggers = [
        f"DROP TRIGGER {name}" for (name,) in sql(path, "SELECT name FROM sqlite_schema WHERE type = 'trigger'")[0]
    ]
    sql(path, *triggers, statement)
    with pytest.raises(LedgerError, match=r"damaged|does not add up"):
        Ledger.open(path)


def test_a_file_in_another_journal_mode_is_brought_back(path):
    ledger = Ledger.create(path, LIMIT)
    assert sql(path, "PRAGMA journal_mode=WAL") == [[("wal",)]]
    ledger.spend(epsilon=0.1, label="query")
    assert sql(path, "PRAGMA journal_mode") == [[("delete",)]]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_that_cannot_be_written(path):
    ledger = Ledger.create(path, LIMIT)
    path.chmod(0o444)
    with pytest.raises(LedgerError, match="cannot be written"):
        ledger.spend(epsilon=0.1, label="query")


def test_a_full_disk_refuses(path, monkeypatch):
    ledger = Ledger.create(path, LIMIT)
    connect = sqlite3.connect

    class Small(sqlite3.Connection):
        def execute(self, statement, *rest):
            if statement == "BEGIN IMMEDIATE":
                super().execute("PRAGMA max_page_count=1")
            return super().execute(statement, *rest)

    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, factory=Small, **k))
    with pytest.raises(LedgerError, match="full"):
        ledger.spend(epsilon=0.1, label="x" * 100_000)
    monkeypatch.undo()
    assert ledger.history == ()


def test_amounts_survive_the_file():
    amounts = {"epsilon": Decimal("1e-324"), "delta": Decimal("0." + "9" * 300)}
    assert _store._load(_store._dump(amounts)) == amounts
