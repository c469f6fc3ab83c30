"""Triton kernels of a pass with one row: what lies between two messages, in few launches.

A launch from the host costs more than the work of most steps here; so each of these reads bytes as
they came, adds, permutes, and writes bytes as they leave. All words are exact, as in `messages`;
the kernels compute what `exchange` and `incremental` say, for one row on CUDA.
"""

import torch

try:
    import triton  # type: ignore[import-not-found,unused-ignore]
    import triton.language as tl  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # a CPU build of torch comes without Triton
    triton = None

BLOCK = 512
SIZES = ["n", "at", "first", "total", "split", "first_drop", "second_drop", "drop"]
"""Integers that no kernel is to be compiled anew for."""


def is_available(device: torch.device) -> bool:
    """Say whether these kernels run on a device."""
    return triton is not None and device.type == "cuda"


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def load_words(octets, at, i, n, mask, NBYTES: tl.constexpr):  # type: ignore[no-untyped-def]
        """Read word i of n, which lie in planes of four, two and one bytes from ``at`` on."""
        word = tl.zeros_like(i).to(tl.int64)
        if NBYTES == 8:
            for b in tl.static_range(8):
                octet = tl.load(octets + at + 8 * i + b, mask=mask, other=0)
                word |= octet.to(tl.int64) << (8 * b)
        else:
            if NBYTES & 4:
                for b in tl.static_range(4):
                    octet = tl.load(octets + at + 4 * i + b, mask=mask, other=0)
                    word |= octet.to(tl.int64) << (8 * b)
            if NBYTES & 2:
                for b in tl.static_range(2):
                    plane = at + (NBYTES & 4) * n
                    octet = tl.load(octets + plane + 2 * i + b, mask=mask, other=0)
                    word |= octet.to(tl.int64) << (8 * (NBYTES & 4) + 8 * b)
            if NBYTES & 1:
                octet = tl.load(octets + at + (NBYTES & 6) * n + i, mask=mask, other=0)
                word |= octet.to(tl.int64) << (8 * (NBYTES & 6))
            word = (word << (64 - 8 * NBYTES)) >> (64 - 8 * NBYTES)
        return word

    @triton.jit  # type: ignore[untyped-decorator]
    def store_words(octets, at, i, n, word, mask, NBYTES: tl.constexpr):  # type: ignore[no-untyped-def]
        """Write word i of n as `load_words` reads it."""
        if NBYTES == 8:
            for b in tl.static_range(8):
                tl.store(octets + at + 8 * i + b, (word >> (8 * b)).to(tl.uint8), mask=mask)
        else:
            if NBYTES & 4:
                for b in tl.static_range(4):
                    tl.store(octets + at + 4 * i + b, (word >> (8 * b)).to(tl.uint8), mask=mask)
            if NBYTES & 2:
                for b in tl.static_range(2):
                    octet = (word >> (8 * (NBYTES & 4) + 8 * b)).to(tl.uint8)
                    tl.store(octets + at + (NBYTES & 4) * n + 2 * i + b, octet, mask=mask)
            if NBYTES & 1:
                octet = (word >> (8 * (NBYTES & 6))).to(tl.uint8)
                tl.store(octets + at + (NBYTES & 6) * n + i, octet, mask=mask)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def show(  # type: ignore[no-untyped-def]
        first,
        second,
        split,
        first_drop,
        second_drop,
        places,
        reveal_correction,
        out,
        at,
        n,
        NBYTES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Permute two vectors that lie end to end, without their low bits, and mask them."""
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        place = tl.load(places + i, mask=mask, other=0)
        is_first = place < split
        a = tl.load(first + place, mask=mask & is_first, other=0) >> first_drop
        b = tl.load(second + (place - split), mask=mask & (place >= split), other=0)
        word = tl.where(is_first, a, b >> second_drop) + tl.load(
            reveal_correction + i, mask=mask, other=0
        )
        store_words(out, at, i, n, word, mask, NBYTES)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def take(  # type: ignore[no-untyped-def]
        octets, at, answer_correction, places, out, n, NBYTES: tl.constexpr, BLOCK: tl.constexpr
    ):
        """Read words, add, and put each where it belongs."""
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        word = load_words(octets, at, i, n, mask, NBYTES) + tl.load(
            answer_correction + i, mask=mask, other=0
        )
        tl.store(out + tl.load(places + i, mask=mask, other=0), word, mask=mask)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def add(  # type: ignore[no-untyped-def]
        octets,
        at,
        one,
        two,
        out,
        place,
        n,
        drop,
        ADDS: tl.constexpr,
        IN_CACHE: tl.constexpr,
        NBYTES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Read words, add none, one or two vectors, and drop low bits.

        With IN_CACHE, ``one`` and ``out`` have a row of n words for every place.
        """
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        word = load_words(octets, at, i, n, mask, NBYTES)
        row = i
        if IN_CACHE:
            row = i + tl.load(place) * n
        if ADDS >= 1:
            word += tl.load(one + row, mask=mask, other=0)
        if ADDS >= 2:
            word += tl.load(two + i, mask=mask, other=0)
        tl.store(out + row, word >> drop, mask=mask)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def see(  # type: ignore[no-untyped-def]
        octets,
        at,
        reveal_mask,
        out,
        peak,
        n,
        more,
        scale,
        NBYTES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Take the mask off, as doubles, and note how far the words go."""
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        word = (
            load_words(octets, at, i, n, mask, NBYTES)
            + tl.load(reveal_mask + i, mask=mask, other=0)
            + more
        )
        if NBYTES < 8:
            word = (word << (64 - 8 * NBYTES)) >> (64 - 8 * NBYTES)
        size = tl.where(mask, tl.where(word < 0, -word, word), 0)
        tl.atomic_max(peak, tl.max(size, axis=0))
        tl.store(out + i, word.to(tl.float64) * scale, mask=mask)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def spread(  # type: ignore[no-untyped-def]
        x, eps, stats, n, IS_LAYER: tl.constexpr, WHOLE: tl.constexpr
    ):
        """Compute mean (or 0) and σ of a vector, in one program."""
        i = tl.arange(0, WHOLE)
        mask = i < n
        value = tl.load(x + i, mask=mask, other=0.0)
        count = tl.sum(mask.to(tl.float64), axis=0)
        mean = tl.sum(value, axis=0) * 0.0
        if IS_LAYER:
            mean = tl.sum(value, axis=0) / count
            value = tl.where(mask, value - mean, 0.0)
        sigma = tl.sqrt(tl.sum(value * value, axis=0) / count + tl.load(eps))
        tl.store(stats, mean)
        tl.store(stats + 1, sigma)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def answer(  # type: ignore[no-untyped-def]
        values,
        stats,
        answer_mask,
        out,
        at,
        first,
        total,
        n,
        scale,
        CENTRES: tl.constexpr,
        DIVIDES: tl.constexpr,
        NBYTES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Normalise, encode (ties to even), mask, and write as words ``first`` … of ``total``.

        Adding 1.5 · 2^52 rounds what is below 2^51 in magnitude.
        """
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        value = tl.load(values + i, mask=mask, other=0.0)
        if CENTRES:
            value -= tl.load(stats)
        if DIVIDES:
            value /= tl.load(stats + 1)
        magic = tl.full((), 6755399441055744.0, tl.float64)
        rounded = (value * scale + magic) - magic
        word = rounded.to(tl.int64) - tl.load(answer_mask + i, mask=mask, other=0)
        store_words(out, at, first + i, total, word, mask, NBYTES)
