"""The closed-form bound of the Gryphon paper (section 4): what a search of the level tree visits at most, on average.

Theory of operation
-------------------
K attributes of V values each, S arbitrary subscriptions of equality tests, events uniform.

1. A node whose path has j value edges is visited with chance V^-j.
2. Lemma 1. A path of length i with j value edges is given by the places of these edges and their values: at most
   binomial(i, j) V^j paths. Over all lengths i <= K that makes binomial(K+1, j+1) V^j <= (K+1) (KV)^j nodes.
3. So at most M(i) = (K+1) (1 + KV + ... + (KV)^i) < B (KV)^(i+1) nodes have a chance of V^-i or more,
   where B = (K+1) / (KV-1).
4. Sort the nodes by falling chance. If M(i-1) < x <= M(i), the x-th has at most V^-i. From x < B (KV)^(i+1) follows
   (KV)^i > x / (BKV), and with lambda = ln V / (ln V + ln K), that is V = (KV)^lambda, its chance is at most
   (BKV / x)^lambda.
5. Lemma 2. Each subscription is one path of K+1 nodes, so there are at most n = S (K+1) nodes.
6. The expected number of visits is the sum of all chances, at most the integral of (BKV / x)^lambda from 0 to n,
   which is (BKV)^lambda n^(1-lambda) / (1-lambda). With n and B put in:

       visits <= C S^(1-lambda),   C = (K+1) / (1-lambda) * (KV / (KV-1))^lambda

Collapsing `*` chains only takes nodes away, so the bound holds for the collapsed tree as well.
"""

from __future__ import annotations

from math import log


def bound_exponent(attributes: int, values: int) -> float:
    """1 - lambda: the power of the number of subscriptions with which visits grow at most."""
    if attributes < 2 or values < 2:
        raise ValueError(f"the bound is for at least 2 attributes of 2 values, not {attributes} of {values}")
    return log(attributes) / (log(attributes) + log(values))


def bound_visits(subscriptions: int, attributes: int, values: int) -> float:
    """Most nodes of a level tree that a uniform event visits on average, whatever the subscriptions are."""
    power = bound_exponent(attributes, values)
    pairs = attributes * values
    factor = (attributes + 1) / power * (pairs / (pairs - 1)) ** (1 - power)
    return float(factor * subscriptions**power)
