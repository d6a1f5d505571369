"""DP-SGD: training by noisy steps.

Each step draws a fresh Poisson sample (each record on its own, with probability `sampling_prob`), clips the gradient of
each drawn record to the norm C (`dpbook.gradients`), adds Gaussian noise of standard deviation ``noise_multiplier * C``
once to the sum, all parameters in one vector, and divides by a public number, never by the size of the batch. An empty
batch gives a step of noise alone, and counts. All that follows, momentum, Adam, weight decay, the learning rate, uses
the noisy sum alone: post-processing, which costs nothing. So the intermediate models are covered by the same ε as the
last one; stopping early gives nothing back.

What ran is what is accounted: the loop and the account are made from one `Plan`, and there is one way through the loop.

What is public, and never read from the data: the number of columns, the classes, the bounds of the targets, C, all
numbers of the `Plan`. Under add/remove the number of records is private. The plan's ``n`` is then a rough, public
number that decides how far a step goes and how long an epoch is; it has no part in the guarantee.

One row is one person. Rows that depend on other people's rows (a scaler fitted to the data, features selected with
it) break the guarantee: use public bounds (`dpbook.estimators.BoundedScaler`). A seeded training is reproducible and
NOT private.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from dpbook import _validate, gradients, noise
from dpbook._exact import round_up
from dpbook._sampling import progress_stream
from dpbook._validate import FloatArray, IntArray
from dpbook.accounting import Accountant, SubsampledGaussian, calibrate_noise_multiplier
from dpbook.gradients import Model, Records

OPTIMIZERS = ("sgd", "adam")
LARGEST_RATE = 1e6
MOST_STEPS = 10**9
ADAM_DECAY, ADAM_FLOOR = (0.9, 0.999), 1e-8


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a training does, public and fixed before the data is read: made by `plan_training`."""

    noise_multiplier: float
    sampling_prob: float
    steps: int
    clipping_norm: float
    divisor: float
    neighbors: str
    delta: float

    def __post_init__(self) -> None:
        checked = {
            "noise_multiplier": self.mechanism.noise_multiplier,
            "sampling_prob": self.mechanism.sampling_prob,
            "steps": _validate.integer(steps=self.steps),
            "clipping_norm": gradients._clipping_norm(self.clipping_norm),
            "divisor": _validate.positive(divisor=self.divisor),
            "neighbors": _validate.neighbors(self.neighbors),
            "delta": _validate.open_unit(delta=self.delta),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def mechanism(self) -> SubsampledGaussian:
        """One step, as `dpbook.accounting` takes it."""
        return SubsampledGaussian(noise_multiplier=self.noise_multiplier, sampling_prob=self.sampling_prob)

    @property
    def account(self) -> Accountant:
        """The account of the whole training."""
        return Accountant(neighbors=self.neighbors).add(self.mechanism, steps=self.steps)

    @property
    def epsilon(self) -> float:
        """The ε at the plan's δ, for the final model and all before it together."""
        return self.account.epsilon(delta=self.delta)

    @property
    def strict_epsilon(self) -> float:
        """The ε at the next smaller δ in float64."""
        return self.account.epsilon(delta=math.nextafter(self.delta, 0.0))

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise on the sum of the clipped gradients, rounded up."""
        return round_up(Fraction(self.noise_multiplier) * Fraction(self.clipping_norm))


def plan_training(
    *,
    neighbors: str,
    delta: float,
    clipping_norm: float,
    target_epsilon: float | None = None,
    noise_multiplier: float | None = None,
    sampling_prob: float | None = None,
    expected_batch_size: float | None = None,
    n: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
) -> Plan:
    """Return the plan of a DP-SGD training that is (ε, δ)-DP under the relation named: with the noise for a target ε.

    Parameters
    ----------
    neighbors : {"add_remove", "replace_one"}
        Neighbour relation; one record a person.
    delta : float
        δ in (0, 1).
    clipping_norm : float
        C, from 2**-100 to 2**100: the most that one record adds to a sum of gradients, in L2.
    target_epsilon : float, optional
        ε, 0.001 to 200, that must not be passed: the least noise that keeps it is taken. Or else:
    noise_multiplier : float, optional
        Standard deviation of the noise over C, 0.01 to 10**6.
    sampling_prob : float, optional
        Probability in (0, 1] that a record is in a batch.
    expected_batch_size : float, optional
        A public number by which each sum is divided. Two of this, `sampling_prob` and `n` must be given; the third is
        such that the size is ``sampling_prob * n``.
    n : int, optional
        A public number of records; under add/remove a rough one, which is not ``len(data)``.
    steps : int, optional
        Number of steps. Or else:
    epochs : float, optional
        Number of passes: ``epochs / sampling_prob`` steps, rounded up.

    Returns
    -------
    Plan
        For `dp_sgd`, with its account and its ε.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, too many or too few are given, or no noise reaches the target.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, Alg. 1; `dpbook.accounting` for the cost.

    Examples
    --------
    >>> plan = plan_training(neighbors="add_remove", delta=1e-5, clipping_norm=1.0, target_epsilon=2.0,
    ...                      sampling_prob=0.1, n=2000, epochs=10)
    >>> plan.steps, plan.divisor, 1.99 < plan.epsilon <= 2.0
    (100, 200.0, True)
    """
    relation, at = _validate.neighbors(neighbors), _validate.open_unit(delta=delta)
    c = gradients._clipping_norm(clipping_norm)
    _one_of(target_epsilon=target_epsilon, noise_multiplier=noise_multiplier)
    _one_of(steps=steps, epochs=epochs)
    q, size = _batches(sampling_prob, expected_batch_size, n)
    if steps is not None:
        number = _validate.integer(steps=steps)
    else:
        number = math.ceil(Fraction(_validate.positive(epochs=epochs)) / Fraction(q))
    if number > MOST_STEPS:
        name, given = ("steps", steps) if epochs is None else ("epochs", epochs)
        raise ValueError(f"{name} must be for at most 10**9 steps, got {_validate.shown(given)}")
    target = math.inf if target_epsilon is None else _validate.positive(target_epsilon=target_epsilon)
    if target_epsilon is not None:
        multiplier = calibrate_noise_multiplier(
            target_epsilon=target, delta=at, sampling_prob=q, steps=number, neighbors=relation
        )
    else:
        multiplier = SubsampledGaussian(noise_multiplier=noise_multiplier, sampling_prob=q).noise_multiplier  # type: ignore[arg-type]
    plan = Plan(
        noise_multiplier=multiplier, sampling_prob=q, steps=number, clipping_norm=c, divisor=size, neighbors=relation,
        delta=at,
    )  # fmt: skip
    # Below the target, and at a δ below its own: a ledger reads both as decimals, half a last digit away.
    more = 1e-9
    while target < math.inf and plan.strict_epsilon >= target:
        plan, more = replace(plan, noise_multiplier=plan.noise_multiplier * (1 + more)), 2 * more
    return plan


def _one_of(**pair: Any) -> None:
    if sum(value is not None for value in pair.values()) != 1:
        given = ", ".join(f"{name}={_validate.shown(value)}" for name, value in pair.items())
        raise TypeError(f"{' or '.join(pair)} must be given, and not both, got {given}")


def _batches(sampling_prob: Any, expected_batch_size: Any, n: Any) -> tuple[float, float]:
    """Return the probability of a record and the number by which sums are divided."""
    given = {"n": n, "sampling_prob": sampling_prob, "expected_batch_size": expected_batch_size}
    if sum(value is not None for value in given.values()) != 2:
        listed = ", ".join(f"{name}={_validate.shown(value)}" for name, value in given.items())
        raise TypeError(
            "two of n, sampling_prob and expected_batch_size must be given (n: a public number of records, which the "
            f"size of the data is not), got {listed}"
        )
    size = None if expected_batch_size is None else _validate.positive(expected_batch_size=expected_batch_size)
    q = None if sampling_prob is None else _validate.closed_unit(sampling_prob=sampling_prob)
    if q == 0:
        raise ValueError(f"sampling_prob must be positive, got {_validate.shown(sampling_prob)}")
    if q is not None and size is not None:
        return q, size
    people = _validate.integer(n=n)
    if q is not None:
        return q, q * people
    assert size is not None
    if size > people:
        raise ValueError(f"expected_batch_size must be at most n={people}, got {_validate.shown(expected_batch_size)}")
    if size / people == 0:
        raise ValueError(
            f"expected_batch_size must be larger for n={people}, got {_validate.shown(expected_batch_size)}"
        )
    return size / people, size


# --- the loop --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Descent:
    """What is done with a noisy gradient: post-processing, from public numbers alone."""

    optimizer: str
    learning_rate: float
    momentum: float
    l2: float

    def __post_init__(self) -> None:
        kind = _validate.choice(OPTIMIZERS, optimizer=self.optimizer)
        momentum = _validate.half_open_unit(momentum=self.momentum)
        rates = {
            "learning_rate": _validate.positive(learning_rate=self.learning_rate),
            "l2": _validate.non_negative(l2=self.l2),
        }
        for name, value in rates.items():
            if value > LARGEST_RATE:
                raise ValueError(f"{name} must be at most {LARGEST_RATE:g}, got {_validate.shown(getattr(self, name))}")
            object.__setattr__(self, name, value)
        if kind == "adam" and momentum:
            raise ValueError(f"momentum must be 0 with adam, which has its own, got {_validate.shown(self.momentum)}")

    def start(self, model: Model) -> Callable[[FloatArray, FloatArray], FloatArray]:
        """Return the function from parameters and a noisy gradient to the next parameters, with its own memory."""
        rate, momentum, l2 = float(self.learning_rate), float(self.momentum), float(self.l2)
        decay = np.full(model.size, l2)
        if model.intercept:
            for layer in model.layers(decay):
                layer[-1] = 0.0  # intercepts are not pulled to zero
        first: FloatArray = np.zeros(model.size)
        second: FloatArray = np.zeros(model.size)
        count = 0

        def step(parameters: FloatArray, gradient: FloatArray) -> FloatArray:
            nonlocal first, second, count
            if l2:
                gradient = gradient + decay * parameters
            if self.optimizer == "adam":
                count += 1
                a, b = ADAM_DECAY
                first = a * first + (1 - a) * gradient
                second = b * second + (1 - b) * gradient * gradient
                gradient = first / (1 - a**count) / (np.sqrt(second / (1 - b**count)) + ADAM_FLOOR)
            elif momentum:
                first = gradient = momentum * first + gradient
            return np.clip(parameters - rate * gradient, -gradients.LARGEST_NORM, gradients.LARGEST_NORM)

        return step


Report = Callable[[int, FloatArray], None]


def _reporter(plan: Plan, callback: Any, progress: Any) -> Report:
    """Return what is done after each step: the callback, and a line of progress, at most ten times a second."""
    if callback is not None and not callable(callback):
        shown = f"{_validate.shown(callback)} of type {type(callback).__name__}"
        raise TypeError(f"callback must be callable or None, got {shown}")
    stream, last = progress_stream(progress), 0.0

    def report(step: int, parameters: FloatArray) -> None:
        nonlocal last
        if callback is not None:
            callback(step, parameters.copy())
        if stream is not None and (time.monotonic() - last > 0.1 or step == plan.steps):
            last, end = time.monotonic(), "\n" if step == plan.steps else ""
            stream.write(f"\rtraining: step {step:,} of {plan.steps:,}{end}")
            stream.flush()

    return report


def noisy_gradient(
    records: Records, parameters: FloatArray, *, plan: Plan, rng: np.random.Generator | None = None
) -> FloatArray:
    """Return the noisy mean gradient of one step: a fresh sample, clipped, summed, noise once, over a public number.

    One step of the plan is what `dpbook.accounting.SubsampledGaussian` stands for, under the plan's relation.

    Parameters
    ----------
    records : Records
        The data, made by `dpbook.gradients.Records`.
    parameters : numpy.ndarray of float64
        One vector of `Model.size` finite numbers.
    plan : Plan
        From `plan_training`.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded step is reproducible and therefore NOT private.

    Returns
    -------
    numpy.ndarray of float64
        One vector of `Model.size` entries, each with its own noise.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, Alg. 1.

    Examples
    --------
    >>> records = Records(Model(features=1, loss="squared"), [[1.0], [2.0]], [1.0, 2.0])
    >>> plan = plan_training(neighbors="add_remove", delta=1e-5, clipping_norm=1.0, noise_multiplier=1.0,
    ...                      sampling_prob=0.5, expected_batch_size=1, steps=1)
    >>> noisy_gradient(records, [0.0, 0.0], plan=plan).shape
    (2,)
    """
    if not isinstance(records, Records):
        raise TypeError(f"records must be Records, got {type(records).__name__}")
    _plan(plan)
    _validate.generator(rng)
    vector = gradients._parameters(records.model, parameters)
    sample, perturb = _sources(records, plan, rng)
    return _noisy(records, vector, plan, sample, perturb)


Sample = Callable[[], IntArray]
Perturb = Callable[[FloatArray], FloatArray]


def _sources(records: Records, plan: Plan, rng: np.random.Generator | None) -> tuple[Sample, Perturb]:
    """Return the two draws of a step: who is in the batch, and the noise."""
    count, q, sigma = records.count, plan.sampling_prob, plan.sigma
    return (
        lambda: noise.poisson_sample(count, sampling_prob=q, rng=rng),
        lambda total: np.asarray(noise.add_gaussian(total, sigma=sigma, rng=rng)),
    )


def _noisy(records: Records, parameters: FloatArray, plan: Plan, sample: Sample, perturb: Perturb) -> FloatArray:
    noisy = perturb(records.clipped_sum(parameters, plan.clipping_norm, sample()))
    with np.errstate(over="ignore"):
        # Never infinite: momentum would make NaN of it, and then an empty batch would show.
        return np.clip(noisy / plan.divisor, -gradients.LARGEST, gradients.LARGEST)


def _descend(
    records: Records,
    start: FloatArray,
    plan: Plan,
    descent: _Descent,
    report: Report,
    sources: tuple[Sample, Perturb],
) -> FloatArray:
    """Run the steps of the plan: the one loop."""
    parameters, advance = start, descent.start(records.model)
    for step in range(1, plan.steps + 1):
        parameters = advance(parameters, _noisy(records, parameters, plan, *sources))
        report(step, parameters)
    return parameters


def _plan(plan: Any) -> Plan:
    if not isinstance(plan, Plan):
        raise TypeError(f"plan must be a Plan, from plan_training, got {_validate.shown(plan)}")
    return plan


def dp_sgd(
    model: Model,
    rows: Any,
    targets: Any,
    *,
    plan: Plan,
    learning_rate: float,
    start: Any = None,
    optimizer: str = "sgd",
    momentum: float = 0.0,
    l2: float = 0.0,
    ledger: Any = None,
    label: str = "training",
    callback: Callable[[int, FloatArray], Any] | None = None,
    progress: bool | None = None,
    rng: np.random.Generator | None = None,
) -> FloatArray:
    """Return the parameters of a network trained with DP-SGD: (ε, δ)-DP for the plan's ε, δ and neighbour relation.

    All models on the way, together, are covered by the same ε.

    Parameters
    ----------
    model : Model
        The network, public.
    rows : array_like
        Two-dimensional, one row a person. A row with an entry that is no finite number has gradient zero.
    targets : array_like
        One for each row; a record whose target is no number, or no class from 0 on, has gradient zero.
    plan : Plan
        From `plan_training`.
    learning_rate : float
        At most 10**6.
    start : array_like, optional
        Parameters to start from, public or private already. By default zeros, or with hidden layers public random ones.
    optimizer : {"sgd", "adam"}, optional
        What is done with the noisy gradients.
    momentum : float, optional
        In [0, 1), for "sgd".
    l2 : float, optional
        Weight decay: this times the weights, without intercepts, is added to each noisy gradient.
    ledger : Ledger, optional
        A `dpbook.budget.Ledger` that is charged before the data is read, or refuses.
    label : str, optional
        What the ledger writes down.
    callback : callable, optional
        ``callback(step, parameters)`` after each step, with a copy.
    progress : bool, optional
        A line of progress on stderr; by default only when that is a terminal.
    rng : numpy.random.Generator, optional
        None reads the operating system's entropy. A seeded training is reproducible and therefore NOT private.

    Returns
    -------
    numpy.ndarray of float64
        One vector of `Model.size` entries.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the shapes do not fit.
    BudgetExceededError
        When the ledger refuses. The data is then not read.

    References
    ----------
    Abadi et al. (2016), Deep learning with differential privacy, Alg. 1; Kingma, Ba (2015), Adam.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)  # seeded: not private
    >>> x = rng.uniform(-1, 1, 2000)
    >>> plan = plan_training(neighbors="add_remove", delta=1e-5, clipping_norm=1.0, target_epsilon=2.0,
    ...                      sampling_prob=0.1, n=2000, epochs=10)
    >>> slope, intercept = dp_sgd(Model(features=1, loss="squared"), x[:, None], 0.5 * x, plan=plan,
    ...                           learning_rate=0.5, rng=rng)
    >>> bool(0.4 < slope < 0.6), bool(-0.1 < intercept < 0.1)
    (True, True)
    """
    gradients._model(model)
    _plan(plan)
    _validate.generator(rng)
    descent = _Descent(optimizer, learning_rate, momentum, l2)
    report = _reporter(plan, callback, progress)
    first = gradients.starting_parameters(model) if start is None else gradients._parameters(model, start, "start")
    charge(plan, ledger=ledger, label=label)
    records = Records(model, rows, targets)
    return _descend(records, first, plan, descent, report, _sources(records, plan, rng))


def charge(plan: Plan, *, ledger: Any, label: str, epsilon: float | None = None) -> None:
    """Charge a ledger for a whole training under the plan's neighbour relation, or refuse; None charges nobody.

    A `basic` budget pays the plan's ε and δ. A `zcdp` budget pays ``steps * (Δ / sigma)**2 / 2``, and is refused for
    sampled batches, whose cost it cannot state well. A `planned` budget is refused: it counts releases one by one.

    Parameters
    ----------
    plan : Plan
        From `plan_training`.
    ledger : Ledger or None
        A `dpbook.budget.Ledger` of the same relation.
    label : str
        What the ledger writes down.
    epsilon : float, optional
        Pay this ε instead of the plan's own; it must not be smaller.

    Raises
    ------
    TypeError, ValueError
        When a parameter breaks its rule, or the ledger's relation is another.
    BudgetExceededError
        When it does not fit.

    References
    ----------
    `dpbook.budget`.

    Examples
    --------
    >>> from dpbook import budget
    >>> ledger = budget.Ledger(budget.basic(epsilon=3.0, delta=1e-5, neighbors="add_remove"))
    >>> plan = plan_training(neighbors="add_remove", delta=1e-5, clipping_norm=1.0, target_epsilon=2.0,
    ...                      sampling_prob=0.1, n=2000, epochs=10)
    >>> charge(plan, ledger=ledger, label="first model", epsilon=2.0)
    >>> print(ledger.history[0])
    1. first model: epsilon 2, delta 1e-5; left: epsilon 1, delta 0
    """
    _plan(plan)
    if not isinstance(label, str):
        raise TypeError(f"label must be a text, got {_validate.shown(label)}")
    price = None if epsilon is None else _validate.positive(epsilon=epsilon)
    if ledger is None:
        return
    terms = getattr(ledger, "budget", None)
    if terms is None or not hasattr(ledger, "spend"):
        raise TypeError(f"ledger must be a Ledger or None, got {_validate.shown(ledger)}")
    if terms.neighbors != plan.neighbors:
        raise ValueError(f"ledger must be for neighbors={plan.neighbors!r}, got {terms.neighbors!r}")
    if terms.accounting == "basic":
        own = plan.strict_epsilon
        # A float stands for the shortest decimal that prints as it, which may be half a last digit below.
        cost = math.nextafter(own, math.inf) if price is None else price
        if own >= cost:
            raise ValueError(f"epsilon must be above the plan's own {own}, got {price}")
        ledger.spend(label=label, epsilon=cost, delta=plan.delta)
    elif terms.accounting == "zcdp" and plan.sampling_prob == 1.0:
        square = Fraction(4 if plan.neighbors == _validate.REPLACE_ONE else 1) / Fraction(plan.noise_multiplier) ** 2
        ledger.spend(label=label, rho=math.nextafter(round_up(plan.steps * square / 2), math.inf))
    else:
        kind = "sampled batches" if terms.accounting == "zcdp" else "a training"
        raise ValueError(f"ledger must have a basic budget for {kind}, got {terms.accounting}")
