"""CrystalCache S1-S6 as plain loops over numbers, read from the paper equation by equation.

Shares nothing with the package. attention[head][row][slot], lists or anything that indexes like them; the
row after `origin` older slots is that of slot `origin`. Ties keep the lower position; E is a list of directed
entries (i, j, weight).
"""

import math


def salience(attention, chunk, lowest, highest, origin=0):
    """Eq. 11, of the slots from the origin on."""
    return [min(max(total, lowest), highest) for total in received(attention, chunk, origin)]


def received(attention, chunk, origin=0):
    """Eq. 11 before its clip."""
    n = len(attention[0])
    result = []
    for i in range(n):
        start = i // chunk * chunk
        queries = range(start, min(start + chunk, n))
        per_head = sorted((sum(head[q][origin + i] for q in queries) for head in attention), reverse=True)
        result.append(sum(per_head[:3]))
    return result


def edges(attention, chunk, intra_k, intra_threshold, cross_k, cross_threshold, origin=0):
    """Eq. 12-15; chunks are counted from the origin."""
    heads, n = len(attention), origin + len(attention[0])
    mean = {q: [sum(head[q - origin][k] for head in attention) / heads for k in range(n)] for q in range(origin, n)}
    found = []
    for start in range(origin, n, chunk):
        members = range(start, min(start + chunk, n))
        unit = {}
        for q in members:
            norm = math.sqrt(sum(mean[q][k] ** 2 for k in members))
            unit[q] = [mean[q][k] / (norm + 1e-8) for k in members]
        for i in members:
            cosine = {j: sum(x * y for x, y in zip(unit[i], unit[j], strict=True)) for j in members if j != i}
            nearest = sorted(cosine, key=lambda j: (-cosine[j], j))[:intra_k]
            found += [(i, j, cosine[j]) for j in nearest if cosine[j] > intra_threshold]
        for j in members:
            strongest = sorted(range(start), key=lambda i: (-mean[j][i], i))[:cross_k]
            found += [(i, j, mean[j][i]) for i in strongest if mean[j][i] > cross_threshold]
    return found


def sentences(ids, ends, origin=0):
    """Step 1."""
    result, current = [], []
    for position, token in enumerate(ids):
        current.append(origin + position)
        if token in ends:
            result.append(current)
            current = []
    return [*result, current] if current else result


def strength(before, after, found):
    """Eq. 16-18."""
    window = [w for a, b, w in found if a in before[-5:] and b in after[:5]]
    return sum(window) / len(window) if window else 0


def trunks(ids, ends, found, merge_threshold, max_trunk, origin=0):
    """Eq. 16-19 and the split of step 3."""
    parts = sentences(ids, ends, origin)
    merged, running = [], parts[0]
    for sentence in parts[1:]:
        joins = strength(running, sentence, found) > merge_threshold
        if joins and len(running) + len(sentence) <= max_trunk:
            running = running + sentence
        else:
            merged.append(running)
            running = sentence
    merged.append(running)
    result = []
    for trunk in merged:
        left = math.ceil(len(trunk) / max_trunk)
        while left:
            size = math.ceil(len(trunk) / left)
            result.append(trunk[:size])
            trunk, left = trunk[size:], left - 1
    return result


def impact(salient, ids, lowest, highest):
    """Eq. 20-22, of the last of all tokens, as many as there are salient."""
    result = []
    for s, token in zip(salient, ids[-len(salient) :], strict=True):
        rarity = 1 / (1 + math.log(1 + ids.count(token)))
        result.append(min(max(highest * (0.5 * s / highest + 0.5 * rarity), lowest), highest))
    return result


def trunk_impact(worth, groups):
    """Eq. 23."""
    result = []
    for group in groups:
        top = sorted((worth[i] for i in group), reverse=True)[:3]
        result.append(sum(top) / min(3, len(group)))
    return result


def weights(groups, found, edge_threshold):
    """Eq. 24-25: {(a, b): weight} of the pairs a < b that are linked."""
    owner = {i: g for g, group in enumerate(groups) for i in group}
    between = {}
    for i, j, w in found:
        if owner[i] != owner[j]:
            between.setdefault((min(owner[i], owner[j]), max(owner[i], owner[j])), []).append(w)
    result = {}
    for (a, b), ws in between.items():
        weight = sum(ws) / len(ws) * math.sqrt(len(ws) / (len(groups[a]) * len(groups[b])))
        if weight > edge_threshold:
            result[a, b] = weight
    return result


def crystallization(linked, count, steepness):
    """Eq. 26-27, of `count` trunks."""
    degree = [sum(w for pair, w in linked.items() if g in pair) for g in range(count)]
    mu = sum(degree) / count
    sigma = math.sqrt(sum((x - mu) ** 2 for x in degree) / count)
    if sigma < 1e-8:
        sigma = 1.0
    return [1 / (1 + math.exp(-steepness * (x - mu) / sigma)) for x in degree]


def protected(groups, n, sinks, recent):
    return [any(i < sinks or i >= n - recent for i in group) for group in groups]


def scores(d, mean_impact, whole, alpha):
    """Eq. 28-29, over the unprotected trunks; None for a protected one."""
    logs = [math.log(1 + m) for m in mean_impact]
    pool = [x for x, is_whole in zip(logs, whole, strict=True) if not is_whole]
    return [
        None if is_whole else max(x, alpha * (y - min(pool)) / (max(pool) - min(pool) + 1e-8))
        for x, y, is_whole in zip(d, logs, whole, strict=True)
    ]


def dissolve(groups, score, whole, worth, budget, min_keep):
    """Eq. 31-33: kept positions and r of each trunk; None where the protected trunks exceed the budget."""
    available = budget - sum(len(g) for g, is_whole in zip(groups, whole, strict=True) if is_whole)
    if available < 0:
        return None
    alive = [g for g in range(len(groups)) if not whole[g]]
    cut = max(0, sum(len(groups[g]) for g in alive) - available)
    share = [1.0] * len(groups)
    for g in sorted(alive, key=lambda g: (score[g], -g)):
        size = len(groups[g])
        if cut <= 0:
            break
        if size <= cut:
            share[g], cut = 0.0, cut - size
        elif size - cut >= min_keep:
            share[g], cut = (size - cut) / size, 0
        else:
            share[g], cut = 0.0, cut - size
    kept = []
    for g, group in enumerate(groups):
        if share[g] == 1:
            kept += group
        elif share[g] > 0:
            many = min(len(group), max(min_keep, round(share[g] * len(group))))
            kept += sorted(group, key=lambda i: (-worth[i], i))[:many]
    return sorted(kept), share
