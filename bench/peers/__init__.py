"""Side-by-side runs of mercer and other packages: the same data, threads and tolerance in one run."""
