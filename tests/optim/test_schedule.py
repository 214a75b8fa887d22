"""Schedules: closed forms, values at the corners, resuming."""

import numpy as np
import pytest

from minitx import Tensor
from minitx.optim import SGD, AdamW, Schedule, constant, noam, warmup_cosine, warmup_linear


def optimizer(lr=1e-3):
    return SGD([Tensor(np.zeros(1), requires_grad=True)], lr=lr)


def rates(schedule, n):
    out = []
    for _ in range(n):
        schedule.step()
        out.append(schedule.optimizer.lr)
    return out


def test_pitfall_22_cosine_values():
    f = warmup_cosine(100)
    np.testing.assert_allclose([1e-3 * f(45), 1e-3 * f(50)], [5.782172325e-4, 5.0e-4], rtol=1e-9)
    assert f(100) == f(101) == f(150) == 0.0


def test_pitfall_22_resuming_is_bit_equal_and_groups_keep_their_base_rates():
    def made():
        a, b = (Tensor(np.zeros(1), requires_grad=True) for _ in range(2))
        groups = AdamW([{"params": [("a", a)]}, {"params": [("b", b)], "lr": 1e-2}], lr=1e-3)
        return groups, Schedule(groups, warmup_cosine(100))

    def steps(groups, schedule, n):
        out = []
        for _ in range(n):
            schedule.step()
            out.append([g["lr"] for g in groups.groups])
        return out

    groups, schedule = made()
    steps(groups, schedule, 45)
    saved = groups.state_dict(), schedule.state_dict()
    whole = steps(groups, schedule, 60)
    for order in (0, 1), (1, 0):
        again = made()
        for i in order:
            again[i].load_state_dict(saved[i])
        assert again[0].groups[1]["lr"] == pytest.approx(5.782172325e-3, rel=1e-9)
        assert steps(*again, 60) == whole


@pytest.mark.parametrize("schedule", [warmup_cosine, warmup_linear])
@pytest.mark.parametrize(("total", "warmup", "minimum"), [(7, 0, 0.0), (7, 3, 0.1), (100, 10, 0.25), (2, 1, 0.0)])
def test_corners(schedule, total, warmup, minimum):
    f = schedule(total, warmup, minimum)
    values = [f(t) for t in range(1, total + 3)]
    assert values[0] > 0
    assert values[:warmup] == [t / warmup for t in range(1, warmup + 1)]
    assert values[total - 1 :] == [minimum] * 3
    assert max(values) <= 1
    fall = np.diff(values[max(warmup - 1, 0) : total])
    assert (fall < 0).all()


def test_linear_by_hand():
    f = warmup_linear(total=6, warmup=2, minimum=0.2)
    np.testing.assert_allclose([f(t) for t in range(1, 8)], [0.5, 1.0, 0.8, 0.6, 0.4, 0.2, 0.2], rtol=1e-15)


def test_constant():
    assert [constant()(t) for t in (1, 2, 1000)] == [1.0] * 3
    assert [constant(4)(t) for t in (1, 2, 4, 5)] == [0.25, 0.5, 1.0, 1.0]


def test_noam_is_the_formula_of_the_paper():
    f = noam(512, 4000)
    np.testing.assert_allclose(f(4000), (512 * 4000) ** -0.5, rtol=1e-14)
    np.testing.assert_allclose([f(1), f(16000)], [1.746928107421711e-07, 3.4938562148434216e-4], rtol=1e-12)
    assert max(range(1, 9000), key=f) == 4000
    assert noam(512, 4000, factor=2.0)(7) == 2 * f(7)


def test_the_first_update_has_the_rate_of_step_one():
    schedule = Schedule(optimizer(), warmup_linear(10, 5))
    assert schedule.optimizer.lr == pytest.approx(2e-4)  # also before the first call
    np.testing.assert_allclose(rates(schedule, 5), [2e-4, 4e-4, 6e-4, 8e-4, 1e-3])
    assert schedule.number == 5


def test_steps_count_from_one():
    for f in constant(), warmup_cosine(10), warmup_linear(10, 2), noam(8, 2):
        with pytest.raises(ValueError, match="no step 0"):
            f(0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: warmup_cosine(10, 10),
        lambda: warmup_cosine(0),
        lambda: warmup_linear(10, -1),
        lambda: warmup_linear(10, 1, -0.1),
        lambda: noam(0, 10),
        lambda: noam(10, 0),
        lambda: Schedule(optimizer(), constant()).load_state_dict({"number": -1}),
    ],
)
def test_bad_options_are_refused(make):
    with pytest.raises(ValueError, match="not"):
        make()
