"""exp, log and the like to the last bit as in Java's StrictMath, which is fdlibm, for arrays of doubles.

fdlibm (Sun Microsystems, 1993, freely redistributable) computes with nothing but additions, multiplications and divisions
of doubles in a fixed order, so the same steps give the same bits here. Its branches become `np.where`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

_LN2_HI, _LN2_LO = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_TWO54 = 2.0**54


def _high(x: Doubles) -> npt.NDArray[np.int64]:
    """The upper 32 bits, without a sign."""
    return (np.ascontiguousarray(x).view(np.int64) >> 32) & 0xFFFFFFFF


def _with_high(x: Doubles, high: npt.NDArray[np.int64]) -> Doubles:
    low = np.ascontiguousarray(x).view(np.int64) & 0xFFFFFFFF
    return np.ascontiguousarray((high << 32) | low).view(np.float64)


def log(x: Doubles) -> Doubles:
    """The natural logarithm (e_log.c) of numbers that are not negative."""
    x = np.asarray(x, np.float64)
    tiny = x < 2.0**-1022
    scaled = np.where(tiny, x * _TWO54, x)
    high = _high(scaled)
    k = (high >> 20) - 1023 - np.where(tiny, 54, 0)
    mantissa = high & 0x000FFFFF
    i = (mantissa + 0x95F64) & 0x100000
    normal = _with_high(scaled, mantissa | (i ^ 0x3FF00000))
    k = k + (i >> 20)
    f = normal - 1.0
    dk = k.astype(np.float64)
    # |f| < 2**-20
    r = f * f * (0.5 - 0.33333333333333333 * f)
    near_zero = np.where(f == 0.0, dk * _LN2_HI + dk * _LN2_LO, dk * _LN2_HI - ((r - dk * _LN2_LO) - f))
    near = np.where(k == 0, np.where(f == 0.0, 0.0, f - r), near_zero)
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
    t2 = z * (
        6.666666666666735130e-01
        + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    r = t2 + t1
    wide = ((mantissa - 0x6147A) | (0x6B851 - mantissa)) > 0
    hfsq = 0.5 * f * f
    far_wide = np.where(
        k == 0, f - (hfsq - s * (hfsq + r)), dk * _LN2_HI - ((hfsq - (s * (hfsq + r) + dk * _LN2_LO)) - f)
    )
    far_thin = np.where(k == 0, f - s * (f - r), dk * _LN2_HI - ((s * (f - r) - dk * _LN2_LO) - f))
    out = np.where((0x000FFFFF & (2 + mantissa)) < 3, near, np.where(wide, far_wide, far_thin))
    out = np.where(x == 0.0, -np.inf, out)
    return np.where(np.isnan(x) | np.isinf(x), x, out)


def log2(x: Doubles) -> Doubles:
    """As Spark computes it."""
    return log(x) / log(np.full_like(x, 2.0))


def log10(x: Doubles) -> Doubles:
    """The decimal logarithm (e_log10.c) of numbers that are not negative."""
    x = np.asarray(x, np.float64)
    tiny = x < 2.0**-1022
    scaled = np.where(tiny, x * _TWO54, x)
    high = _high(scaled)
    k = (high >> 20) - 1023 - np.where(tiny, 54, 0)
    i = (k < 0).astype(np.int64)
    normal = _with_high(scaled, (high & 0x000FFFFF) | ((0x3FF - i) << 20))
    y = (k + i).astype(np.float64)
    z = y * 3.69423907715893078616e-13 + 4.34294481903251816668e-01 * log(normal)
    out = z + y * 3.01029995663611771306e-01
    out = np.where(x == 0.0, -np.inf, out)
    return np.where(np.isnan(x) | np.isinf(x), x, out)


def exp(x: Doubles) -> Doubles:
    """E to the power of x (e_exp.c)."""
    x = np.asarray(x, np.float64)
    high = _high(x) & 0x7FFFFFFF
    negative = np.signbit(x)
    sign = np.where(negative, -1, 1)
    usual = np.where(np.isfinite(x), np.clip(x, -750.0, 750.0), 0.0)
    # Reduce the argument to |r| <= 0.5 ln 2.
    between = (high > 0x3FD62E42) & (high < 0x3FF0A2B2)
    large = high >= 0x3FF0A2B2
    k = np.where(
        between,
        sign,
        np.where(large, (1.44269504088896338700 * usual + np.where(negative, -0.5, 0.5)).astype(np.int64), 0),
    )
    t = k.astype(np.float64)
    hi = np.where(between, usual - np.where(negative, -_LN2_HI, _LN2_HI), usual - t * _LN2_HI)
    lo = np.where(between, np.where(negative, -_LN2_LO, _LN2_LO), t * _LN2_LO)
    r = np.where(between | large, hi - lo, usual)
    t = r * r
    c = r - t * (
        1.66666666666666019037e-01
        + t
        * (
            -2.77777777770155933842e-03
            + t * (6.61375632143793436117e-05 + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))
        )
    )
    plain = 1.0 - ((r * c) / (c - 2.0) - r)
    y = 1.0 - ((lo - (r * c) / (2.0 - c)) - hi)
    scaled = np.ldexp(y, np.where(k >= -1021, k, k + 1000).astype(np.int32))
    scaled = np.where(k >= -1021, scaled, scaled * 2.0**-1000)
    out = np.where(k == 0, plain, scaled)
    out = np.where(high < 0x3E300000, 1.0 + x, out)
    out = np.where(x > 7.09782712893383973096e02, np.inf, out)
    out = np.where(x < -7.45133219101941108420e02, 0.0, out)
    return np.where(np.isnan(x), x, out)


def cbrt(x: Doubles) -> Doubles:
    """The cubic root (s_cbrt.c)."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    high = _high(size)
    subnormal = high < 0x00100000
    grown = size * _TWO54
    rough = np.where(subnormal, _high(grown) // 3 + 696_219_795, high // 3 + 715_094_163)
    t = np.ascontiguousarray(rough << 32).view(np.float64)
    r = t * t / np.where(size == 0.0, 1.0, size)
    s = 5.42857142857142815906e-01 + r * t
    t = t * (
        3.57142857142857150787e-01
        + 1.60714285714285720630e00 / (s + 1.41428571428571436819e00 + -7.05306122448979611050e-01 / s)
    )
    # Chopped to 20 bits and made larger than the root, so that the last step is one of Newton's without an error.
    t = np.ascontiguousarray((_high(t) + 1) << 32).view(np.float64)
    s = t * t
    r = size / s
    w = t + t
    r = (r - t) / (w + r)
    t = t + t * r
    out = np.copysign(t, x)
    return np.where((x == 0.0) | ~np.isfinite(x), x, out)
