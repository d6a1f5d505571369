"""Independent draws of a release on two inputs, from this process or from several, with a line of progress."""

import multiprocessing
import os
import random
import sys
from collections.abc import Callable, Iterator
from concurrent import futures  # which loads its processes when they are asked for
from typing import Any, NamedTuple, TextIO

import numpy as np

from dpbook import _events, _validate
from dpbook._events import Batch
from dpbook._validate import FloatArray

VECTOR_CHUNK, CHUNK = 2**18, 5_000  # draws of one call, or of one batch of calls


def progress_stream(progress: bool | None) -> TextIO | None:
    """Return where progress is shown, or None."""
    wanted = progress is not None and _validate.flag(progress=progress)
    if progress is None:
        wanted = sys.stderr is not None and sys.stderr.isatty()
    return sys.stderr if wanted else None


def _draw(release: Callable[..., Any], data: Any, count: int, many: bool) -> tuple[Batch, BaseException | None]:
    """Return `count` outputs, and the last exception that stood for one."""
    if many:
        array = np.asarray(release(data, count))
        if array.ndim == 0 or len(array) != count:
            raise ValueError(
                f"release must return one output for each of count={count} along its first axis when vectorized, "
                f"got shape {array.shape}"
            )
        return _events.batch_of_array(array), None
    outputs, error = [], None
    for _ in range(count):
        try:
            outputs.append(release(data))
        except Exception as raised:
            outputs.append(_events.Raised(type(raised).__name__))
            error = raised
    return _events.batch_of_list(outputs), error


class _Job(NamedTuple):
    """What a worker process runs, and its first draws: a generator that was copied repeats them in every process."""

    release: Callable[..., Any]
    inputs: tuple[Any, Any]
    many: bool
    probe: Batch


_JOB: _Job | None = None


def _start_worker(release: Callable[..., Any], inputs: tuple[Any, Any], many: bool, probes: int) -> None:
    global _JOB
    # Not noise of ours: a release under audit may draw from the global generators, and a fork has copied their state.
    random.seed()
    np.random.seed()  # noqa: NPY002
    _JOB = _Job(release, inputs, many, _draw(release, inputs[0], probes, many)[0])


def _work(side: int, count: int) -> tuple[int, Batch, int, Batch]:
    assert _JOB is not None
    return side, _draw(_JOB.release, _JOB.inputs[side], count, _JOB.many)[0], os.getpid(), _JOB.probe


def _bits(values: FloatArray) -> float:
    """Return about -log2 of the probability that as many independent draws come out the same, in this order."""
    share = np.unique(values, return_counts=True)[1] / len(values)
    return len(values) * -float((share * np.log2(share)).sum())


class Source:
    """Draws of both sides, from this process or from others."""

    def __init__(
        self, release: Callable[..., Any], inputs: tuple[Any, Any], many: bool, workers: int, show: Any, total: int
    ) -> None:
        self.release, self.inputs, self.many, self.workers, self.show = release, inputs, many, workers, show
        self.total, self.done = 2 * total, 0
        self.pool: futures.ProcessPoolExecutor | None = None
        self.constant: dict[int, bytes] = {}
        self.probes: dict[int, bytes] = {}
        self.error: BaseException | None = None
        self.returned = False

    def __enter__(self) -> "Source":
        if self.workers > 1:
            # With fork the callable may be anything; elsewhere it has to be importable.
            method = "fork" if sys.platform.startswith("linux") else "spawn"
            job = (self.release, self.inputs, self.many, min(256, max(16, self.total // 100)))
            context = multiprocessing.get_context(method)
            self.pool = futures.ProcessPoolExecutor(self.workers, context, _start_worker, job)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
        if self.show is not None and self.done:
            self.show.write("\n")

    def more(self, count: int) -> Iterator[tuple[int, Batch]]:
        """Yield batches that together hold `count` more draws of each side."""
        for side, batch in self._from_pool(count) if self.pool is not None else self._from_here(count):
            self._independent(side, batch)
            self.done += len(batch.rows)
            if self.show is not None:
                self.show.write(f"\raudit: {self.done:,} of at most {self.total:,} draws")
                self.show.flush()
            yield side, batch
        if not self.returned:
            name = type(self.error).__name__ if self.error is not None else "an exception"
            raise ValueError(f"release must return an output, got {name} in every draw") from self.error

    def _chunks(self, count: int) -> list[int]:
        largest = min(VECTOR_CHUNK if self.many else CHUNK, -(-count // max(2, 2 * (self.workers > 1) * self.workers)))
        return [min(largest, count - at) for at in range(0, count, largest)]

    def _from_here(self, count: int) -> Iterator[tuple[int, Batch]]:
        for size in self._chunks(count):
            for side in (0, 1):
                batch, error = _draw(self.release, self.inputs[side], size, self.many)
                self.error = error or self.error
                yield side, batch

    def _from_pool(self, count: int) -> Iterator[tuple[int, Batch]]:
        assert self.pool is not None
        waiting = [self.pool.submit(_work, side, size) for size in self._chunks(count) for side in (0, 1)]
        for future in futures.as_completed(waiting):
            side, batch, process, probe = future.result()
            if probe.forms is None and probe.rows.shape[1] and _bits(probe.rows[:, 0]) > 48:
                content = probe.rows.tobytes()
                self.probes[process] = content
                if list(self.probes.values()).count(content) > 1:
                    raise ValueError(
                        "release must not keep a random generator when workers > 1: its copies repeat their draws; "
                        "make the generator inside release, or use workers=1"
                    )
            yield side, batch

    def _independent(self, side: int, batch: Batch) -> None:
        """Refuse draws that visibly repeat each other: the bounds hold for independent ones."""
        self.returned = self.returned or batch.forms is not None or not _events.is_raised(batch.form)
        if batch.forms is not None or len(batch.rows) < 2 or not batch.rows.shape[1]:
            return
        rows = batch.rows
        if self.many and (rows == rows[0]).all():
            before = self.constant.setdefault(side, rows[0].tobytes())
            if before != rows[0].tobytes():
                raise ValueError("release must draw anew for each of count outputs when vectorized, got one for all")
