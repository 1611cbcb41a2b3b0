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


_BP, _DP_H, _DP_L = (
    np.array([1.0, 1.5]),
    np.array([0.0, 5.84962487220764160156e-01]),
    np.array([0.0, 1.35003920212974897128e-08]),
)
_CP, _CP_H, _CP_L = 9.61796693925975554329e-01, 9.61796700954437255859e-01, -7.02846165095275826516e-09
_IVLN2, _IVLN2_H, _IVLN2_L = 1.44269504088896338700e00, 1.44269502162933349609e00, 1.92596299112661746887e-08
_LG2, _LG2_H, _LG2_L = 6.93147180559945286227e-01, 6.93147182464599609375e-01, -1.90465429995776804525e-09
_OVT = 8.0085662595372944372e-17


def _chopped(x: Doubles) -> Doubles:
    """Without the lower 32 bits."""
    return np.ascontiguousarray(np.ascontiguousarray(x).view(np.int64) & ~np.int64(0xFFFFFFFF)).view(np.float64)


def power(x: Doubles, y: Doubles) -> Doubles:
    """X to the power of y (e_pow.c)."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    size = np.abs(x)
    is_odd = (np.abs(y) < 2.0**53) & (np.fmod(y, 2.0) != 0) & (np.floor(y) == y)
    is_whole = np.floor(y) == y
    usual = np.isfinite(x) & np.isfinite(y) & (size != 0)
    base, exponent = np.where(usual, size, 2.0), np.where(usual, y, 3.0)
    out = _positive_power(base, exponent)
    out = np.where((x < 0) & is_odd, -out, np.where((x < 0) & ~is_whole, np.nan, out))
    out = np.where(usual, out, _special_power(x, y, is_odd))
    out = np.where(y == 0.5, np.where(x >= -np.finfo(np.float64).max, np.sqrt(x + 0.0), out), out)
    out = np.where(y == 2.0, x * x, out)
    out = np.where(y == -1.0, 1.0 / x, out)
    out = np.where(y == 1.0, x, out)
    return np.where(y == 0.0, 1.0, out)


def _special_power(x: Doubles, y: Doubles, is_odd: npt.NDArray[np.bool_]) -> Doubles:
    """Zero, infinity or NaN on one side. Java's power of one to infinity is NaN."""
    size = np.abs(x)
    grows = (size > 1) == (y > 0)
    out = np.where(grows, np.inf, 0.0)
    out = np.where(np.isinf(y), np.where(size == 1.0, np.nan, out), np.where(is_odd & np.signbit(x), -out, out))
    return np.where(np.isnan(x) | np.isnan(y), np.nan, out)


def _positive_power(x: Doubles, y: Doubles) -> Doubles:
    """Of finite x > 0 and finite y. log2(x) is computed as t1 + t2, and y times that as p_h + p_l."""
    t1, t2 = _log2_in_two(x)
    near_t1, near_t2 = _near_log2_in_two(x)
    is_huge = np.abs(y) > 2.0**31
    t1, t2 = np.where(is_huge, near_t1, t1), np.where(is_huge, near_t2, t2)
    y1 = _chopped(y)
    p_l = (y - y1) * t1 + y * t2
    p_h = y1 * t1
    z = p_l + p_h
    over = (z > 1024.0) | ((z == 1024.0) & (p_l + _OVT > z - p_h))
    under = (z < -1075.0) | ((z == -1075.0) & (p_l <= z - p_h))
    high = _high(x)
    is_far = is_huge & ((high < 0x3FEFFFFF) | (high > 0x3FF00000) | (np.abs(y) > 2.0**64))
    grows = (high >= 0x3FF00000) == (y > 0)
    over, under = np.where(is_far, grows, over), np.where(is_far, ~grows, under)
    fits = ~(over | under)
    out = _exp2_of_two(np.where(fits, p_h, 0.0), np.where(fits, p_l, 0.0))
    out = np.where(over, np.inf, np.where(under, 0.0, out))
    return np.where(x == 1.0, 1.0, out)


def _near_log2_in_two(x: Doubles) -> tuple[Doubles, Doubles]:
    """For x within 2**-20 of one."""
    t = x - 1.0
    w = (t * t) * (0.5 - t * (0.3333333333333333333333 - t * 0.25))
    u = _IVLN2_H * t
    v = t * _IVLN2_L - w * _IVLN2
    t1 = _chopped(u + v)
    return t1, v - (t1 - u)


def _log2_in_two(x: Doubles) -> tuple[Doubles, Doubles]:
    tiny = x < 2.0**-1022
    scaled = np.where(tiny, x * 2.0**53, x)
    high = _high(scaled)
    n = (high >> 20) - 0x3FF - np.where(tiny, 53, 0)
    j = high & 0x000FFFFF
    k = ((j > 0x3988E) & (j < 0xBB67A)).astype(np.int64)
    above = j >= 0xBB67A
    n = n + above
    ix = (j | 0x3FF00000) - np.where(above, 0x00100000, 0)
    ax, bp = _with_high(scaled, ix), _BP[k]
    u, v = ax - bp, 1.0 / (ax + bp)
    ss = u * v
    s_h = _chopped(ss)
    t_h = np.ascontiguousarray((((ix >> 1) | 0x20000000) + 0x00080000 + (k << 18)) << 32).view(np.float64)
    t_l = ax - (t_h - bp)
    s_l = v * ((u - s_h * t_h) - s_h * t_l)
    s2 = ss * ss
    r = (
        s2
        * s2
        * (
            5.99999999999994648725e-01
            + s2
            * (
                4.28571428578550184252e-01
                + s2
                * (
                    3.33333329818377432918e-01
                    + s2
                    * (2.72728123808534006489e-01 + s2 * (2.30660745775561754067e-01 + s2 * 2.06975017800338417784e-01))
                )
            )
        )
    )
    r = r + s_l * (s_h + ss)
    s2 = s_h * s_h
    t_h = _chopped(3.0 + s2 + r)
    t_l = r - ((t_h - 3.0) - s2)
    u, v = s_h * t_h, s_l * t_h + t_l * ss
    p_h = _chopped(u + v)
    p_l = v - (p_h - u)
    z_h = _CP_H * p_h
    z_l = _CP_L * p_h + p_l * _CP + _DP_L[k]
    t = n.astype(np.float64)
    t1 = _chopped(((z_h + z_l) + _DP_H[k]) + t)
    return t1, z_l - (((t1 - t) - _DP_H[k]) - z_h)


def _exp2_of_two(p_h: Doubles, p_l: Doubles) -> Doubles:
    """2 to the power of p_h + p_l."""
    z = p_l + p_h
    j = np.ascontiguousarray(z).view(np.int64) >> 32
    i = j & 0x7FFFFFFF
    split = i > 0x3FE00000
    k = np.where(split, (i >> 20) - 0x3FF, 0)
    n = j + (0x00100000 >> (k + 1))
    k = np.where(split, ((n & 0x7FFFFFFF) >> 20) - 0x3FF, 0)
    whole = np.ascontiguousarray((n & ~(0x000FFFFF >> k)) << 32).view(np.float64)
    n = ((n & 0x000FFFFF) | 0x00100000) >> (20 - k)
    n = np.where(split, np.where(j < 0, -n, n), 0)
    p_h = np.where(split, p_h - whole, p_h)
    t = _chopped(p_l + p_h)
    u = t * _LG2_H
    v = (p_l - (t - p_h)) * _LG2 + t * _LG2_L
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * (
        1.66666666666666019037e-01
        + t
        * (
            -2.77777777770155933842e-03
            + t * (6.61375632143793436117e-05 + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08))
        )
    )
    r = (z * t1) / (t1 - 2.0) - (w + z * w)
    z = 1.0 - (r - z)
    return np.ldexp(z, n.astype(np.int32))


# -- inverse trigonometric functions ------------------------------------------------------------------------------------

_ATAN_HI = np.array(
    [4.63647609000806093515e-01, 7.85398163397448278999e-01, 9.82793723247329054082e-01, 1.57079632679489655800e00]
)
_ATAN_LO = np.array(
    [2.26987774529616870924e-17, 3.06161699786838301793e-17, 1.39033110312309984516e-17, 6.12323399573676603587e-17]
)
_ODD = (
    3.33333333333329318027e-01,
    1.42857142725034663711e-01,
    9.09088713343650656196e-02,
    6.66107313738753120669e-02,
    4.97687799461593236017e-02,
    1.62858201153657823623e-02,
)
_EVEN = (
    -1.99999999998764832476e-01,
    -1.11111104054623557880e-01,
    -7.69187620504482999495e-02,
    -5.83357013379057348645e-02,
    -3.65315727442169155270e-02,
)
_PI, _PI_LO = 3.14159265358979311600e00, 1.2246467991473531772e-16
_HALF_PI, _HALF_PI_LO = _ATAN_HI[3], _ATAN_LO[3]
_P = (
    1.66666666666666657415e-01,
    -3.25565818622400915405e-01,
    2.01212532134862925881e-01,
    -4.00555345006794114027e-02,
    7.91534994289814532176e-04,
    3.47933107596021167570e-05,
)
_Q = (
    1.0,
    -2.40339491173441421878e00,
    2.02094576023350569471e00,
    -6.88283971605453293030e-01,
    7.70381505559019352791e-02,
)


def _polynomial(x: Doubles, coefficients: tuple[float, ...]) -> Doubles:
    out = np.full_like(x, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        out = coefficient + x * out
    return out


def atan(x: Doubles) -> Doubles:
    """The arc tangent (s_atan.c)."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    steps = [size < 0.4375, size < 0.6875, size < 1.1875, size < 2.4375]
    moved = [x, (2.0 * size - 1.0) / (2.0 + size), (size - 1.0) / (size + 1.0), (size - 1.5) / (1.0 + 1.5 * size)]
    t = np.select(steps, moved, -1.0 / size)
    z = t * t
    w = z * z
    sum_ = z * _polynomial(w, _ODD) + w * _polynomial(w, _EVEN)
    near = t - t * sum_
    number = np.select(steps[1:], [0, 1, 2], 3)
    far = np.copysign(_ATAN_HI[number] - ((t * sum_ - _ATAN_LO[number]) - t), x)
    out = np.where(steps[0], np.where(size < 2.0**-29, x, near), far)
    return np.where(size >= 2.0**66, np.copysign(_HALF_PI + _HALF_PI_LO, x), np.where(np.isnan(x), x, out))


def _ratio(t: Doubles) -> Doubles:
    return t * _polynomial(t, _P) / _polynomial(t, _Q)


def asin(x: Doubles) -> Doubles:
    """The arc sine (e_asin.c); NaN beyond 1."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    near = np.where(size < 2.0**-27, x, x + x * _ratio(x * x))
    t = (1.0 - size) * 0.5
    s = np.sqrt(t)
    ratio = _ratio(t)
    top = _HALF_PI - (2.0 * (s + s * ratio) - _HALF_PI_LO)
    w = _chopped(s)
    c = (t - w * w) / (s + w)
    middle = _ATAN_HI[1] - ((2.0 * s * ratio - (_HALF_PI_LO - 2.0 * c)) - (_ATAN_HI[1] - 2.0 * w))
    far = np.copysign(np.where(_high(size) >= 0x3FEF3333, top, middle), x)
    out = np.where(size < 0.5, near, np.where(size == 1.0, x * _HALF_PI + x * _HALF_PI_LO, far))
    return np.where(size > 1.0, np.nan, out)


def acos(x: Doubles) -> Doubles:
    """The arc cosine (e_acos.c); NaN beyond 1."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    near = _HALF_PI - (x - (_HALF_PI_LO - x * _ratio(x * x)))
    near = np.where(_high(size) <= 0x3C600000, _HALF_PI + _HALF_PI_LO, near)
    z = (1.0 - size) * 0.5
    s, ratio = np.sqrt(z), _ratio(z)
    below = _PI - 2.0 * (s + (ratio * s - _HALF_PI_LO))
    df = _chopped(s)
    above = 2.0 * (df + (ratio * s + (z - df * df) / (s + df)))
    end = np.where(x > 0, 0.0, _PI + 2.0 * _HALF_PI_LO)
    out = np.where(size < 0.5, near, np.where(size == 1.0, end, np.where(x < 0, below, above)))
    return np.where(size > 1.0, np.nan, out)


def atan2(y: Doubles, x: Doubles) -> Doubles:
    """The angle of a point (e_atan2.c), of coordinates that are not -0.0."""
    y, x = np.asarray(y, np.float64), np.asarray(x, np.float64)
    k = (_high(np.abs(y)) - _high(np.abs(x))) >> 20
    z = np.where(k > 60, _HALF_PI + 0.5 * _PI_LO, np.where((x < 0) & (k < -60), 0.0, atan(np.abs(y / x))))
    left = np.where(y < 0, (z - _PI_LO) - _PI, _PI - (z - _PI_LO))
    out = np.where(x == 1.0, atan(y), np.where(x < 0, left, np.where(y < 0, -z, z)))
    corner = np.where(np.isinf(y), np.where(x > 0, _PI / 4, 3.0 * (_PI / 4)), np.where(x > 0, 0.0, _PI))
    out = np.where(np.isinf(x), np.copysign(corner, y), out)
    out = np.where((np.isinf(y) & np.isfinite(x)) | ((x == 0) & (y != 0)), np.copysign(_HALF_PI, y), out)
    out = np.where(y == 0, np.where((x > 0) | (x == 0), y, np.copysign(_PI, y)), out)
    return np.where(np.isnan(x) | np.isnan(y), np.nan, out)


# -- near one and near zero ---------------------------------------------------------------------------------------------

_LP = (
    6.666666666666735130e-01,
    3.999999999940941908e-01,
    2.857142874366239149e-01,
    2.222219843214978396e-01,
    1.818357216161805012e-01,
    1.531383769920937332e-01,
    1.479819860511658591e-01,
)


def log1p(x: Doubles) -> Doubles:
    """The logarithm of 1 + x (s_log1p.c); NaN below -1."""
    x = np.asarray(x, np.float64)
    size = _high(np.abs(x))
    whole = (_high(x) < 0x3FDA827A) & (x > 0) | ((x < 0) & (size <= 0x3FD2BEC3))  # 1 + x needs no scaling
    u = np.where(size < 0x43400000, 1.0 + x, x)
    k = (_high(u) >> 20) - 1023
    c = np.where(size < 0x43400000, np.where(k > 0, 1.0 - (u - x), x - (u - 1.0)) / u, 0.0)
    hu = _high(u) & 0xFFFFF
    is_low = hu < 0x6A09E
    normal = _with_high(u, np.where(is_low, hu | 0x3FF00000, hu | 0x3FE00000))
    k = np.where(is_low, k, k + 1)
    hu = np.where(is_low, hu, (0x00100000 - hu) >> 2)
    f, hu = np.where(whole, x, normal - 1.0), np.where(whole, 1, hu)
    dk, c = np.where(whole, 0.0, k.astype(np.float64)), np.where(whole, 0.0, c)
    hfsq = 0.5 * f * f
    r = hfsq * (1.0 - 0.66666666666666666 * f)
    zero = np.where(dk == 0, 0.0, dk * _LN2_HI + (c + dk * _LN2_LO))
    near = np.where(f == 0.0, zero, np.where(dk == 0, f - r, dk * _LN2_HI - ((r - (dk * _LN2_LO + c)) - f)))
    s = f / (2.0 + f)
    z = s * s
    r = z * _polynomial(z, _LP)
    far = dk * _LN2_HI - ((hfsq - (s * (hfsq + r) + (dk * _LN2_LO + c))) - f)
    out = np.where(hu == 0, near, np.where(dk == 0, f - (hfsq - s * (hfsq + r)), far))
    out = np.where(size < 0x3E200000, np.where(size < 0x3C900000, x, x - x * x * 0.5), out)
    out = np.where(np.isinf(x) | np.isnan(x), x, out)
    return np.where(x == -1.0, -np.inf, np.where(x < -1.0, np.nan, out))


_EQ = (
    1.0,
    -3.33333333333331316428e-02,
    1.58730158725481460165e-03,
    -7.93650757867487942473e-05,
    4.00821782732936239552e-06,
    -2.01099218183624371326e-07,
)


def expm1(x: Doubles) -> Doubles:
    """E to the power of x, less 1 (s_expm1.c)."""
    x = np.asarray(x, np.float64)
    size = _high(np.abs(x))
    k = np.trunc(np.where(np.isfinite(x), 1.44269504088896338700 * x, 0.0) + np.copysign(0.5, x))
    k = np.where(size < 0x3FF0A2B2, np.copysign(1.0, x), k)
    k = np.clip(np.where(size > 0x3FD62E42, k, 0.0), -2000, 2000)
    hi, lo = x - k * _LN2_HI, k * _LN2_LO
    t = np.where(k == 0, x, hi - lo)
    c = np.where(k == 0, 0.0, (hi - t) - lo)
    hfx = 0.5 * t
    hxs = t * hfx
    r1 = _polynomial(hxs, _EQ)
    w = 3.0 - r1 * hfx
    e = hxs * ((r1 - w) / (6.0 - t * w))
    plain = t - (t * e - hxs)
    e = (t * (e - c) - c) - hxs
    whole = k.astype(np.int64)
    y1 = _scaled(1.0 - (e - t), whole)
    many = np.where(k == 1024, (1.0 - (e - t)) * 2.0 * 2.0**1023, y1) - 1.0
    less = _scaled((1.0 - 2.0 ** (-np.clip(k, 0, 60))) - (e - t), whole)
    more = _scaled((t - (e + 2.0 ** (-np.clip(k, 0, 1000)))) + 1.0, whole)
    out = np.where((k <= -2) | (k > 56), many, np.where(k < 20, less, more))
    one = np.where(t < -0.25, -2.0 * (e - (t + 0.5)), 1.0 + 2.0 * (t - e))
    out = np.where(k == 0, plain, np.where(k == -1, 0.5 * (t - e) - 0.5, np.where(k == 1, one, out)))
    out = np.where(size < 0x3C900000, x, out)
    out = np.where((size >= 0x4043687A) & (x < 0), -1.0, out)
    out = np.where(x > 7.09782712893383973096e02, np.inf, out)
    return np.where(np.isnan(x), x, out)


def _scaled(x: Doubles, k: npt.NDArray[np.int64]) -> Doubles:
    """X times 2 to the power of k, by adding to the exponent."""
    return np.ascontiguousarray(np.ascontiguousarray(x).view(np.int64) + (k << 52)).view(np.float64)


# -- hyperbolic functions -----------------------------------------------------------------------------------------------


def sinh(x: Doubles) -> Doubles:
    """The hyperbolic sine (e_sinh.c)."""
    x = np.asarray(x, np.float64)
    size, h = np.abs(x), np.copysign(0.5, x)
    t = expm1(size)
    near = np.where(size < 1.0, h * (2.0 * t - t * t / (t + 1.0)), h * (t + t / (t + 1.0)))
    w = exp(0.5 * size)
    far = np.where(_high(size) < 0x40862E42, h * exp(size), h * w * w)
    out = np.where(size < 2.0**-28, x, np.where(size < 22.0, near, far))
    return np.where(np.isnan(x), x, out)


def cosh(x: Doubles) -> Doubles:
    """The hyperbolic cosine (e_cosh.c)."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    t = expm1(size)
    near = np.where(_high(size) < 0x3C800000, 1.0 + t, 1.0 + (t * t) / ((1.0 + t) + (1.0 + t)))
    e, w = exp(size), exp(0.5 * size)
    far = np.where(_high(size) < 0x40862E42, 0.5 * e, 0.5 * w * w)
    middle = np.where(size < 22.0, 0.5 * e + 0.5 / e, far)
    return np.where(np.isnan(x), x, np.where(_high(size) < 0x3FD62E43, near, middle))


def tanh(x: Doubles) -> Doubles:
    """The hyperbolic tangent (s_tanh.c)."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    t, u = expm1(2.0 * np.minimum(size, 22.0)), expm1(-2.0 * np.minimum(size, 22.0))
    z = np.where(size < 22.0, np.where(size >= 1.0, 1.0 - 2.0 / (t + 2.0), -u / (u + 2.0)), 1.0)
    out = np.where(_high(size) < 0x3C800000, x * (1.0 + x), np.copysign(z, x))
    return np.where(np.isnan(x), x, out)
