"""A progress bar with what there is left to do, by tqdm where it is installed."""

from contextlib import contextmanager

import numpy as np

__all__ = ["progress"]


@contextmanager
def progress(verbose, description, total=None, *, label="residual"):
    """Yield ``on_step(n_done, reached)`` for a solver, or None if nothing is to be shown.

    Parameters
    ----------
    verbose : bool or int
        Whether to show anything.
    description : str
        What stands before the bar.
    total : int or None
        Steps at most.
    label : str
        What `reached` is.
    """
    if not isinstance(verbose, bool | np.bool_ | int | np.integer) or verbose < 0:
        raise TypeError(f"verbose must be True, False or an integer of at least 0, got {verbose!r}")
    if not verbose:
        yield None
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:
        last = shown = None

        def on_step(n_done, reached):
            nonlocal last, shown
            last = f"{description}: step {n_done}, {label} {float(np.max(reached)):.1e}"
            if n_done % 10 == 0 and last != shown:
                print(last, flush=True)
                shown = last

        yield on_step
        if last != shown:
            print(last, flush=True)
        return
    with tqdm(total=total, desc=description, leave=True) as bar:

        def on_step(n_done, reached):
            bar.set_postfix_str(f"{label} {float(np.max(reached)):.1e}", refresh=False)
            bar.update(n_done - bar.n)

        yield on_step
