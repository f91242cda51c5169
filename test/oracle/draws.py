"""Random numbers of a training step: Philox4x32-10 as a pure function of (seed, step, key, example, element)."""

import numpy as np

from shuffle import WORD, mix64

MASK = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)


def key_of(chain):
    """The key of a draw: the numbers of the calls from `train` to it, with the block behind a `repeat`."""
    key = 0
    for number in chain:
        key = mix64((key + 0x9E3779B97F4A7C15 + number) & WORD)
    return key


def philox(counter, key):
    """`counter`: four arrays, `key`: two; all uint64 holding 32 bits."""
    c = [np.asarray(word, np.uint64) for word in counter]
    k0, k1 = (np.uint64(word) for word in key)
    for _ in range(10):
        p0 = c[0] * np.uint64(0xD2511F53)
        p1 = c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> HALF) ^ c[1] ^ k0, p1 & MASK, (p0 >> HALF) ^ c[3] ^ k1, p0 & MASK]
        k0 = (k0 + np.uint64(0x9E3779B9)) & MASK
        k1 = (k1 + np.uint64(0xBB67AE85)) & MASK
    return c


def halves(number):
    number = np.asarray(number, np.uint64)
    return number & MASK, number >> HALF


def bits16(seed, step, key, examples, count):
    """16 random bits for each of `count` elements of each example: array [examples, count]."""
    with np.errstate(over="ignore"):
        low, high = halves(np.uint64(key))
        draw_key = philox((low, high, *halves(step)), halves(seed))[:2]
        element = np.arange(count, dtype=np.uint64)[None, :]
        example = np.asarray(examples, np.uint64)[:, None]
        block = element // np.uint64(64) * np.uint64(8) + element % np.uint64(8)
        block, example = np.broadcast_arrays(block, example)
        words = np.stack(philox((*halves(block), *halves(example)), draw_key))
        j = (element % np.uint64(64) // np.uint64(8)).astype(np.int64)
        word = np.take_along_axis(words, np.broadcast_to(j // 2, block.shape)[None], axis=0)[0]
        return np.where(j % 2 == 1, word >> np.uint64(16), word & np.uint64(0xFFFF)).astype(np.int64)


def kept(seed, step, key, examples, count, probability):
    """random_bool(probability)."""
    return bits16(seed, step, key, examples, count) < round(probability * 65536)


def bits32(seed, step, key, examples, count):
    """The four words of each element's block, [4, examples, count], and which of them (0..3) is its own."""
    with np.errstate(over="ignore"):
        low, high = halves(np.uint64(key))
        draw_key = philox((low, high, *halves(step)), halves(seed))[:2]
        element = np.arange(count, dtype=np.uint64)[None, :]
        example = np.asarray(examples, np.uint64)[:, None]
        block = element // np.uint64(32) * np.uint64(8) + element % np.uint64(8)
        block, example = np.broadcast_arrays(block, example)
        words = np.stack(philox((*halves(block), *halves(example)), draw_key))
        which = np.broadcast_to((element % np.uint64(32) // np.uint64(8)).astype(np.int64), block.shape)
        return words, which


def own_word(seed, step, key, examples, count):
    words, which = bits32(seed, step, key, examples, count)
    return np.take_along_axis(words, which[None], axis=0)[0]


def uniform(seed, step, key, examples, count):
    """random_uniform."""
    return (own_word(seed, step, key, examples, count) >> np.uint64(8)) * 2.0**-24


def integers(seed, step, key, examples, count, limit):
    """random_int(limit)."""
    return (own_word(seed, step, key, examples, count) * np.uint64(limit) >> np.uint64(32)).astype(np.int64)


def normal(seed, step, key, examples, count):
    """random_normal: two of a block's words make two numbers."""
    words, which = bits32(seed, step, key, examples, count)
    first = which // 2 * 2
    u = ((np.take_along_axis(words, first[None], axis=0)[0] >> np.uint64(8)) + np.uint64(1)) * 2.0**-24
    v = (np.take_along_axis(words, first[None] + 1, axis=0)[0] >> np.uint64(8)) * 2.0**-24
    radius = np.sqrt(-2.0 * np.log(u))
    return radius * np.where(which % 2 == 0, np.cos(2 * np.pi * v), np.sin(2 * np.pi * v))
