"""Accounting beside dp-accounting 0.6, in one run: tightness and speed. Needs an environment that has both packages."""

import platform
import time

import numpy as np
import scipy
from dp_accounting import dp_event
from dp_accounting.pld import pld_privacy_accountant, privacy_loss_distribution

from dpbook import accounting
from dpbook.accounting import Accountant, Laplace, SubsampledGaussian

CASES = [  # sampling_prob, noise_multiplier, steps, delta
    (0.01, 1.1, 10_000, 1e-5),
    (256 / 60_000, 1.3, 3510, 1e-5),
    (0.001, 0.8, 100_000, 1e-6),
]
ROUNDS = 7


def best(function, rounds=ROUNDS):
    """Return the result and the least of several times, each without what earlier calls left behind."""
    times = []
    for _ in range(rounds):
        accounting._epsilon_bounds.cache_clear()
        accounting._delta_bounds.cache_clear()
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return result, min(times)


def theirs(q, sigma, steps, delta, interval):
    event = dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma)), steps)
    accountant = pld_privacy_accountant.PLDAccountant(value_discretization_interval=interval)
    return accountant.compose(event).get_epsilon(delta)


def ours(q, sigma, steps, delta, gap):
    step = SubsampledGaussian(noise_multiplier=sigma, sampling_prob=q)
    return Accountant(neighbors="add_remove").add(step, steps=steps).epsilon_bounds(delta=delta, gap=gap)


def laplace_theirs(scale, steps, delta, interval):
    one = privacy_loss_distribution.from_laplace_mechanism(scale, value_discretization_interval=interval)
    return one.self_compose(steps).get_epsilon_for_delta(delta)


def laplace_ours(scale, steps, delta, gap):
    account = Accountant(neighbors="add_remove").add(Laplace(scale=scale), steps=steps)
    return account.epsilon_bounds(delta=delta, gap=gap)


def calibrate_theirs(q, steps, delta, target):
    import dp_accounting

    def event(sigma):
        one = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(sigma))
        return dp_event.SelfComposedDpEvent(one, steps)

    bracket = dp_accounting.LowerEndpointAndGuess(0.3, 2.0)
    make = pld_privacy_accountant.PLDAccountant
    return dp_accounting.calibrate_dp_mechanism(make, event, target, delta, bracket, tol=1e-4)


def line(what, lower, upper, seconds, reference):
    low = f"{lower:12.7f}" if lower is not None else " " * 12
    print(f"  {what:34}{low}{upper:12.7f}{seconds * 1e3:11.2f} ms{reference / seconds:9.1f} x")


def main():
    print(
        f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}, {platform.machine()}"
    )
    print(f"  {'':34}{'lower':>12}{'upper':>12}{'time':>14}{'speed':>11}")
    for case in CASES:
        print("q = {:.6g}, noise multiplier {}, {} steps, delta {}".format(*case))
        value, reference = best(lambda case=case: theirs(*case, 1e-4), 2)
        line("dp-accounting, grid 1e-4 (default)", None, value, reference, reference)
        value, seconds = best(lambda case=case: theirs(*case, 1e-3), 3)
        line("dp-accounting, grid 1e-3", None, value, seconds, reference)
        for gap in (1e-3, 1e-4, 1e-5):
            (low, high), seconds = best(lambda case=case, gap=gap: ours(*case, gap))
            line(f"dpbook, gap {gap:g}", low, high, seconds, reference)
    print("1000 releases with Laplace noise of scale 20, delta 1e-5")
    value, reference = best(lambda: laplace_theirs(20.0, 1000, 1e-5, 1e-4), 2)
    line("dp-accounting, grid 1e-4 (default)", None, value, reference, reference)
    for gap in (1e-3, 1e-5):
        (low, high), seconds = best(lambda gap=gap: laplace_ours(20.0, 1000, 1e-5, gap))
        line(f"dpbook, gap {gap:g}", low, high, seconds, reference)
    print("noise multiplier for epsilon 1 at delta 1e-5, q = 0.01, 10000 steps")
    value, reference = best(lambda: calibrate_theirs(0.01, 10_000, 1e-5, 1.0), 1)
    line("dp-accounting, tolerance 1e-4", None, value, reference, reference)
    wish = {"target_epsilon": 1.0, "delta": 1e-5, "sampling_prob": 0.01, "steps": 10_000, "neighbors": "add_remove"}
    value, seconds = best(lambda: accounting.calibrate_noise_multiplier(**wish), 3)
    line("dpbook", None, value, seconds, reference)


if __name__ == "__main__":
    main()
