"""reference.py: initial values, shuffle and draws of generate, written from runtime/FORMULAS.md."""

import math
import struct

M64 = (1 << 64) - 1
M32 = (1 << 32) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix64(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & M64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def fnv(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & M64
    return h


def stream_key(seed, name):
    return mix64(mix64((seed + GOLDEN) & M64) ^ fnv(name))


def philox(key, counter):
    c = list(counter)
    k0, k1 = key & M32, key >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k0, p1 & M32, (p0 >> 32) ^ c[3] ^ k1, p0 & M32]
        k0, k1 = (k0 + 0x9E3779B9) & M32, (k1 + 0xBB67AE85) & M32
    return c


def uniform(block, i):
    return ((block[2 * i + 1] << 32 | block[2 * i]) >> 11) * 2.0**-53


def log(x):
    (bits,) = struct.unpack("<Q", struct.pack("<d", x))
    k = (bits >> 52) - 1023
    (m,) = struct.unpack("<d", struct.pack("<Q", bits & 0xFFFFFFFFFFFFF | 0x3FF0000000000000))
    if m >= 1.4142135623730951:
        m, k = m * 0.5, k + 1
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01))
    t2 = z * (
        6.666666666666735130e-01
        + w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    r = t2 + t1
    half = 0.5 * f * f
    return k * 6.93147180369123816490e-01 - ((half - (s * (half + r) + k * 1.90821492927058770002e-10)) - f)


def sin_cos_turns(turns):
    quarter = turns * 4.0
    q = int(quarter + 0.5)
    x = (quarter - q) * 1.57079632679489655800
    z = x * x
    ps = 8.33333333332248946124e-03 + z * (
        -1.98412698298579493134e-04
        + z * (2.75573137070700676789e-06 + z * (-2.50507602534068634195e-08 + z * 1.58969099521155010221e-10))
    )
    s = x + (z * x) * (-1.66666666666666324348e-01 + z * ps)
    pc = z * (
        4.16666666666666019037e-02
        + z
        * (
            -1.38888888888741095749e-03
            + z
            * (
                2.48015872894767294178e-05
                + z * (-2.75573143513906633035e-07 + z * (2.08757232129817482790e-09 + z * -1.13596475577881948265e-11))
            )
        )
    )
    c = 1.0 - (0.5 * z - z * pc)
    return [(s, c), (c, -s), (-s, -c), (-c, s)][q & 3]


def normal_pair(block):
    r = math.sqrt(-2.0 * log(1.0 - uniform(block, 0)))
    s, c = sin_cos_turns(uniform(block, 1))
    return r * c, r * s


INIT = 0x54494E49
GENE = 0x454E4547


def initial(seed, path, kind, a, count):
    key = stream_key(seed, path)
    block = lambda i, attempt=0: philox(key, [(i >> 1) & M32, i >> 33, attempt, INIT])
    values = []
    for i in range(count):
        if kind == "constant":
            values.append(a)
        elif kind == "normal":
            values.append(normal_pair(block(i))[i & 1] * a)
        elif kind == "uniform":
            values.append(a * (2.0 * uniform(block(i), i & 1) - 1.0))
        elif kind == "truncated_normal":
            attempt = 0
            while abs(normal_pair(block(i, attempt))[i & 1]) > 2.0:
                attempt += 1
            values.append(a * normal_pair(block(i, attempt))[i & 1])
    return values


def shuffled(seed, epoch, count, place):
    half = 1
    while half < 31 and 1 << 2 * half < count:
        half += 1
    mask = (1 << half) - 1
    key = mix64((stream_key(seed, "shuffle") + epoch * GOLDEN) & M64)
    x = place
    while True:
        left, right = x >> half, x & mask
        for r in range(1, 9):
            left, right = right, left ^ (mix64((key + r * 0xD1342543DE82EF95 + right) & M64) >> 32 & mask)
        x = left << half | right
        if x < count:
            return x


def draw(seed, position):
    return uniform(philox(stream_key(seed, "generate"), [position & M32, position >> 32, 0, GENE]), 0)
