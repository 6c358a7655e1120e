"""Learning-rate schedules: pure functions of the update, so that a resumed run cannot differ."""


def constant(update: int, total: int) -> float:
    """The optimiser's own rate throughout. Factor for update 0, 1, .. of `total`."""
    return 1.0


def trapezoid(update: int, total: int, *, warmup: int, hold: float, final: float) -> float:
    """Linear warm-up over `warmup` updates, full rate until the share `hold` of all updates, then linear decay to
    `final` times the rate at the last one. Returns the factor for update 0, 1, .. of `total`."""
    rise = (update + 1) / max(warmup, 1)
    fall = 1.0 if total <= 1 else (1 - update / (total - 1)) / (1 - hold)
    return min(1.0, rise, max(final, final + (1 - final) * fall))
