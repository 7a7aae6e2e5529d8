"""A progress bar with the residual that is left, by tqdm where it is installed."""

from contextlib import contextmanager

import numpy as np

__all__ = ["progress"]


@contextmanager
def progress(verbose, description, total=None):
    """Yield ``on_step(n_iter, residual)`` for a solver, or None if nothing is to be shown.

    Parameters
    ----------
    verbose : bool or int
        Whether to show anything.
    description : str
        What stands before the bar.
    total : int or None
        Steps at most.
    """
    if not verbose:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:

        def on_step(n_iter, residual):
            if n_iter % 10 == 0:
                print(f"{description}: step {n_iter}, residual {float(np.max(residual)):.1e}", flush=True)

        yield on_step
        return
    with tqdm(total=total, desc=description, leave=True) as bar:

        def on_step(n_iter, residual):
            bar.set_postfix_str(f"residual {float(np.max(residual)):.1e}", refresh=False)
            bar.update(n_iter - bar.n)

        yield on_step
