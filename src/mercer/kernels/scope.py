"""Where a node of an expression stands: its hyperparameters' prefix, and the columns that it reads.

Place on the way: kernel expression → **scope** → ``program``.
"""

from dataclasses import dataclass, replace

from .views import Chain, Columns, Identity, View

__all__ = ["Scope"]

_ALL = Identity()


@dataclass(frozen=True)
class Scope:
    """The surroundings of a node while an expression compiles.

    Attributes
    ----------
    n_features : int or None
        Columns of the samples; None where they are no matrix.
    prefix : str
        Path of the node, ending in ``__`` unless it is the root.
    columns : View
        `Identity`, or the `Columns` that ``.on`` chose.
    """

    n_features: int | None = None
    prefix: str = ""
    columns: View = _ALL

    @property
    def width(self):
        """Columns that the node sees."""
        return self.columns.n_features(self.n_features)

    def path(self, name):
        """Full path of one of the node's hyperparameters."""
        return self.prefix + name

    def child(self, name):
        """Scope of the child of that name."""
        return replace(self, prefix=f"{self.prefix}{name}__")

    def on(self, indices):
        """Scope that sees only these of the columns seen here."""
        if isinstance(self.columns, Columns):
            if max(indices) >= len(self.columns.indices):
                raise ValueError(
                    f".on({list(indices)}) reads column {max(indices)} of the {len(self.columns.indices)} "
                    "that an outer .on left"
                )
            indices = tuple(self.columns.indices[i] for i in indices)
        return replace(self, columns=Columns(tuple(indices)))

    def view(self, view=None):
        """A leaf's view of the samples: these columns, then ``view``."""
        if view is None or isinstance(view, Identity):
            return self.columns
        if isinstance(self.columns, Identity):
            return view
        return Chain(self.columns, view)
