"""Where the nodes of a directed acyclic graph stand, in layers from left to right."""

import numpy as np

SWEEPS = 12


def layout(parents):
    """Place nodes in columns by their longest path, and in rows so that few edges cross.

    Parameters
    ----------
    parents : list of list of int
        Of each node those that it depends on, all earlier in the list.

    Returns
    -------
    columns, rows : ndarray of shape (n_nodes,)
        Rows of one column differ by at least 1.
    routes : dict of (int, int) to list of (float, float)
        (column, row) at which an edge (parent, child) passes the columns between its ends.

    References
    ----------
    Sugiyama, Tagawa and Toda, IEEE Trans. SMC 11 (1981): layers, places for long edges, barycentres.
    """
    columns = _columns(parents)
    edges, routes = _short_edges(parents, columns)
    every = np.concatenate([columns, [c for points in routes.values() for c, _ in points]]).astype(int)
    layers = [list(np.flatnonzero(every == c)) for c in range(every.max() + 1)]
    layers = _ordered(layers, edges, len(every))
    rows = _rows(layers, edges, len(every))
    placed = {edge: [(c, rows[node]) for c, node in points] for edge, points in routes.items()}
    return columns, rows[: len(columns)], placed


def _columns(parents):
    columns = np.zeros(len(parents), int)
    for i, above in enumerate(parents):
        columns[i] = max((columns[p] + 1 for p in above), default=0)
    for i, above in enumerate(parents):  # an input stands before what first uses it
        used = [columns[j] for j, some in enumerate(parents) if i in some]
        if not above and used:
            columns[i] = min(used) - 1
    return columns - columns.min(initial=0)


def _short_edges(parents, columns):
    """Cut edges into pieces from one column to the next, with a node of its own between them."""
    edges, routes, count = [], {}, len(parents)
    for i, above in enumerate(parents):
        for p in dict.fromkeys(above):
            last = p
            for c in range(columns[p] + 1, columns[i]):
                routes.setdefault((p, i), []).append((c, count))
                edges.append((last, count))
                last, count = count, count + 1
            edges.append((last, i))
    return edges, routes


def _neighbours(edges, count):
    left, right = [[] for _ in range(count)], [[] for _ in range(count)]
    for a, b in edges:
        right[a].append(b)
        left[b].append(a)
    return left, right


def _ordered(layers, edges, count):
    """Order layers by the mean place of their neighbours, to and fro; keep the order of fewest crossings."""
    sides = _neighbours(edges, count)
    best, fewest = layers, _crossings(layers, edges)
    for sweep in range(SWEEPS):
        layers = [list(layer) for layer in layers]
        side = sides[sweep % 2]
        for k in range(len(layers)) if sweep % 2 == 0 else reversed(range(len(layers))):
            place = {node: j for layer in layers for j, node in enumerate(layer)}
            layers[k].sort(key=lambda n: np.mean([place[m] for m in side[n]]) if side[n] else place[n])
        now = _crossings(layers, edges)
        if now < fewest:
            best, fewest = layers, now
    return best


def _crossings(layers, edges):
    place = {node: (k, j) for k, layer in enumerate(layers) for j, node in enumerate(layer)}
    spans = [(*place[a], place[b][1]) for a, b in edges]
    return sum(
        p[0] == q[0] and (p[1] - q[1]) * (p[2] - q[2]) < 0 for i, p in enumerate(spans) for q in spans[:i]
    )


def _rows(layers, edges, count):
    """Bring nodes near the mean of their neighbours, a distance of 1 apart."""
    rows = np.zeros(count)
    for layer in layers:
        rows[layer] = (len(layer) - 1) / 2 - np.arange(len(layer))
    left, right = _neighbours(edges, count)
    for sweep in range(SWEEPS):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [np.mean(rows[left[n] + right[n]]) if left[n] or right[n] else rows[n] for n in layer]
            rows[layer] = _apart(np.array(wanted))
    return rows


def _apart(wanted):
    """Return the decreasing numbers 1 apart that are nearest to those wanted, in squares."""
    # With the distances taken out it is the monotone regression, by pooling neighbours that violate it.
    shifted = wanted + np.arange(len(wanted))
    blocks = []
    for x in shifted:
        blocks.append([x, 1])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            (a, m), (b, n) = blocks[-2:]
            blocks[-2:] = [[(a * m + b * n) / (m + n), m + n]]
    return np.repeat([b[0] for b in blocks], [b[1] for b in blocks]) - np.arange(len(wanted))
