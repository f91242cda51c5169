"""The order of the examples: a seeded permutation of every epoch, one place at a time."""

WORD = (1 << 64) - 1


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD
    return z ^ z >> 31


def hash_text(text):
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & WORD
    return h


def stream_key(seed, name):
    return mix64(mix64((seed + 0x9E3779B97F4A7C15) & WORD) ^ hash_text(name))


def shuffled(seed, epoch, count, place):
    """The example at `place` of an epoch over `count` examples."""
    half = 1
    while half < 31 and (1 << 2 * half) < count:
        half += 1
    mask = (1 << half) - 1
    key = mix64((stream_key(seed, "shuffle") + epoch * 0x9E3779B97F4A7C15) & WORD)
    x = place
    while True:
        left, right = x >> half, x & mask
        for step in range(1, 9):
            left, right = right, left ^ (mix64((key + step * 0xD1342543DE82EF95 + right) & WORD) >> 32 & mask)
        x = left << half | right
        if x < count:
            return x


def batch(seed, step, size, count):
    """The examples of a step: training walks the permutations without end."""
    places = range(step * size, (step + 1) * size)
    return [shuffled(seed, place // count, count, place % count) for place in places]
