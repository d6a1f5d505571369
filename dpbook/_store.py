"""Where a ledger keeps what was spent: in memory, or in an SQLite file that survives a crash and serves many processes.

Both stores do the same three things under one lock: read the total, ask `decide`, write the new record. Nothing is ever
changed or taken out.
"""

import contextlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from dpbook._amounts import Amounts, add

Decide = Callable[[Amounts], Amounts]  # from what was spent before to what is spent then, or an exception

APPLICATION_ID = 0x64704C67  # in the file's header, so that no other database is taken for a ledger
FORMAT = 1
_SCHEMA = (
    "CREATE TABLE budget (one INTEGER PRIMARY KEY CHECK (one = 1), id TEXT NOT NULL, terms TEXT NOT NULL)",
    """CREATE TABLE spends (number INTEGER PRIMARY KEY, time TEXT NOT NULL, who TEXT NOT NULL, label TEXT NOT NULL,
       amount TEXT NOT NULL, spent TEXT NOT NULL)""",
    """CREATE TRIGGER in_order BEFORE INSERT ON spends
       WHEN NEW.number <> (SELECT coalesce(max(number), 0) + 1 FROM spends)
       BEGIN SELECT RAISE(ABORT, 'spends are numbered in order'); END""",
    """CREATE TRIGGER one_budget BEFORE INSERT ON budget WHEN EXISTS (SELECT 1 FROM budget)
       BEGIN SELECT RAISE(ABORT, 'a ledger has one budget'); END""",
    *(
        f"""CREATE TRIGGER no_{action}_{table} BEFORE {action} ON {table}
            BEGIN SELECT RAISE(ABORT, 'a ledger is only added to'); END"""
        for table in ("budget", "spends")
        for action in ("UPDATE", "DELETE")
    ),
)


class LedgerError(RuntimeError):
    """The ledger cannot be used, so nothing may be released: its file is missing, damaged, or of another budget."""


class LedgerLockedError(LedgerError):
    """Another process held the ledger's file for longer than the timeout; nothing was spent, try again."""


class Record(NamedTuple):
    number: int
    time: str
    who: str
    label: str
    amount: Amounts
    spent: Amounts  # the total, this record included


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


class MemoryStore:
    """The records of one process."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._lock = threading.Lock()
        self._process = os.getpid()

    def append(self, *, who: str, label: str, amount: Amounts, decide: Decide) -> Record:
        if os.getpid() != self._process:  # before the lock, which a fork may have copied while it was held
            raise LedgerError(
                "this ledger is a copy in another process, and two copies would spend the budget twice; "
                "share a file between processes: Ledger.create"
            )
        with self._lock:
            spent = decide(self._records[-1].spent if self._records else {})
            record = Record(len(self._records) + 1, _now(), who, label, amount, spent)
            self._records.append(record)
        return record

    def records(self) -> list[Record]:
        with self._lock:
            return list(self._records)

    def spent(self) -> Amounts:
        with self._lock:
            return self._records[-1].spent if self._records else {}


def _dump(amounts: Amounts) -> str:
    return json.dumps({name: str(value) for name, value in amounts.items()})


def _load(text: str) -> dict[str, Decimal]:
    return {name: Decimal(value) for name, value in json.loads(text).items()}


class FileStore:
    """Records in an SQLite file: each spend is on the disk before it is acknowledged.

    Every call opens a connection of its own, so threads, forks and a replaced file are harmless. `BEGIN IMMEDIATE`
    takes the write lock before the total is read: no other process can spend between the check and the write.

    What is acknowledged survives the death of the process and the loss of power, as far as the disk keeps what it has
    confirmed. With `synchronous=FULL` a commit is: old pages to the journal, sync it and its directory; their number to
    its header, sync; new pages to the file, sync; zeros over the header, sync; return. A loss of power before the last
    step undoes a spend that nobody was told of. After it nothing can undo the spend, and the ledger's own file is all
    that is needed: the journal that stays beside it is empty in meaning.

    Why not in other ways. A journal that is deleted at each commit, as SQLite does by itself, also needs its directory
    synced after that (`synchronous=EXTRA`), or a loss of power could bring it back and undo the last spend; and files
    that come and go cost most on a busy disk. A write-ahead log syncs once a commit and is faster, but keeps what was
    acknowledged in a second file: whoever copies, moves or mounts the first one alone after a crash has an older total
    that looks whole, and could spend again. It also needs a connection that stays open, which no fork may copy.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path, self._timeout = path, timeout
        self._id: str | None = None

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        import sqlite3  # only for files: some Pythons are built without it

        if not self.path.exists():
            raise LedgerError(f"there is no ledger at {self.path}; if it was moved, open it where it is now")
        connection = None
        try:
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode=rw", uri=True, timeout=self._timeout, isolation_level=None
            )
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA fullfsync=ON")  # macOS: through the drive's own cache
            if connection.execute("PRAGMA journal_mode=PERSIST").fetchone()[0] != "persist":
                raise LedgerError(
                    f"the ledger {self.path} is used by a program that changed its journal; stop that first"
                )
            yield connection
        except (sqlite3.Error, ValueError, TypeError, AttributeError, ArithmeticError) as error:
            if isinstance(error, sqlite3.OperationalError) and "locked" in str(error):
                raise LedgerLockedError(
                    f"the ledger {self.path} was locked for {self._timeout:g} s by another process; nothing was spent"
                ) from error
            raise LedgerError(
                f"the ledger {self.path} is damaged, no ledger, or cannot be written ({error}); release nothing"
            ) from error
        finally:
            if connection is not None:
                connection.close()  # an open transaction is rolled back

    def create(self, terms: str) -> None:
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666))
        except FileExistsError:
            raise LedgerError(
                f"{self.path} exists already; continue it with Ledger.open, or choose another name"
            ) from None
        except OSError as error:
            raise LedgerError(f"the ledger {self.path} cannot be created: {error.strerror}") from None
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA:
                connection.execute(statement)
            self._id = secrets.token_hex(16)
            connection.execute("INSERT INTO budget VALUES (1, ?, ?)", (self._id, terms))
            connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version={FORMAT}")
            connection.execute("COMMIT")

    def _terms(self, connection: Any) -> str:
        """Return the terms, in a transaction that has begun, and make sure that it is the file of before."""
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise LedgerError(f"{self.path} is no ledger of dpbook, or its creation was cut short")
        if version != FORMAT:
            raise LedgerError(f"the ledger {self.path} has format {version}; this version of dpbook knows {FORMAT}")
        budget_id, terms = connection.execute("SELECT id, terms FROM budget").fetchone()
        if self._id is not None and budget_id != self._id:
            raise LedgerError(f"the file {self.path} is now another ledger than the one that was opened")
        self._id = budget_id
        return str(terms)

    def open(self) -> str:
        """Return the terms, after a look at the whole file."""
        with self._connection() as connection:
            connection.execute("BEGIN")
            terms = self._terms(connection)
            (report,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if report != "ok":
                raise LedgerError(f"the ledger {self.path} is damaged: {report}; release nothing")
            self._read(connection)
        return terms

    def _read(self, connection: Any) -> list[Record]:
        records: list[Record] = []
        spent: Amounts = {}
        for row in connection.execute("SELECT number, time, who, label, amount, spent FROM spends ORDER BY number"):
            record = Record(row[0], row[1], row[2], row[3], _load(row[4]), _load(row[5]))
            spent = add(spent, record.amount)
            if record.number != len(records) + 1 or record.spent != spent:
                raise LedgerError(f"the ledger {self.path} does not add up at spend {record.number}; release nothing")
            records.append(record)
        return records

    def append(self, *, who: str, label: str, amount: Amounts, decide: Decide) -> Record:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            self._terms(connection)
            last = connection.execute("SELECT number, spent FROM spends ORDER BY number DESC LIMIT 1").fetchone()
            spent = decide(_load(last[1]) if last else {})
            record = Record((last[0] if last else 0) + 1, _now(), who, label, amount, spent)
            connection.execute(
                "INSERT INTO spends VALUES (?, ?, ?, ?, ?, ?)", (*record[:4], _dump(amount), _dump(spent))
            )
            connection.execute("COMMIT")
        return record

    def records(self) -> list[Record]:
        with self._connection() as connection:
            connection.execute("BEGIN")
            self._terms(connection)
            return self._read(connection)

    def spent(self) -> Amounts:
        with self._connection() as connection:
            connection.execute("BEGIN")
            self._terms(connection)
            last = connection.execute("SELECT spent FROM spends ORDER BY number DESC LIMIT 1").fetchone()
            return _load(last[0]) if last else {}
