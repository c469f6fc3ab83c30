"""Triton kernels of a pass with one row: what lies between two messages, in few launches.

A launch from the host costs more than the work of most steps here; so each of these reads bytes as
they came, adds, permutes, and writes bytes as they leave. All words are exact, as in `messages`;
the kernels compute what `exchange` and `attention` say, for one row on CUDA.
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

    # Incremental attention with one row. The length of the text is read on the device, from
    # ``place``, the place of the new token: what a graph recorded for one token is right for the
    # next.

    @triton.jit
    def length(place):  # type: ignore[no-untyped-def]
        """Return how many keys there are, the new token's with them."""
        return (tl.load(place) + 1).to(tl.int32)

    @triton.jit  # type: ignore[untyped-decorator]
    def gather(  # type: ignore[no-untyped-def]
        cache, head, m, d, keys, GROUPS: tl.constexpr, SIZE: tl.constexpr, DIM: tl.constexpr
    ):
        """Read entries d of rows m of a cache, as a head has them: (rows, entries)."""
        where = (m[:, None] * GROUPS + head // SIZE) * DIM + d[None, :]
        return tl.load(cache + where, mask=(m < keys)[:, None] & (d < DIM)[None, :], other=0)

    @triton.jit  # type: ignore[untyped-decorator]
    def entries(place, HEADS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        """Return this program's part of one number per head and key, and how many there are."""
        n = length(place) * HEADS
        return tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), n

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def mask_heads(  # type: ignore[no-untyped-def]
        words,
        cos,
        sin,
        blind,
        kept,
        out,
        place,
        at,
        n,
        drop,
        DIM: tl.constexpr,
        HALF: tl.constexpr,
        IN_CACHE: tl.constexpr,
        NBYTES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Turn heads by their position (HALF > 0), drop bits, keep them, and send them blinded.

        With IN_CACHE, ``kept`` has a row for every place.
        """
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = i < n
        word = tl.load(words + i, mask=mask, other=0)
        if HALF > 0:
            d = i % DIM
            is_first = d % (2 * HALF) < HALF
            other = tl.load(words + tl.where(is_first, i + HALF, i - HALF), mask=mask, other=0)
            other = tl.where(is_first, -other, other)
            word = word * tl.load(cos + d) + other * tl.load(sin + d)
        word = word >> drop
        if IN_CACHE:
            kept += tl.load(place) * n
        tl.store(kept + i, word, mask=mask)
        store_words(out, at, i, n, word + tl.load(blind + i, mask=mask, other=0), mask, NBYTES)

    @triton.jit  # type: ignore[untyped-decorator]
    def dot(  # type: ignore[no-untyped-def]
        query,
        cache,
        m,
        keys,
        GROUPS: tl.constexpr,
        SIZE: tl.constexpr,
        DIM: tl.constexpr,
        WIDE: tl.constexpr,
    ):
        """Multiply this program's head of a query with keys m."""
        head, d = tl.program_id(0), tl.arange(0, WIDE)
        q = tl.load(query + head * DIM + d, mask=d < DIM, other=0)
        k = gather(cache, head, m, d, keys, GROUPS, SIZE, DIM)
        return tl.sum(k * q[None, :], axis=1)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def scores(  # type: ignore[no-untyped-def]
        query,
        cached,
        out,
        place,
        drop,
        GROUPS: tl.constexpr,
        SIZE: tl.constexpr,
        DIM: tl.constexpr,
        WIDE: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Multiply one query with all keys, (heads, keys), and drop low bits."""
        keys, m = length(place), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        total = dot(query, cached, m, keys, GROUPS, SIZE, DIM, WIDE) >> drop
        tl.store(out + tl.program_id(0) * keys + m, total, mask=m < keys)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def score_shares(  # type: ignore[no-untyped-def]
        asked,
        masks,
        query,
        masked_kv,
        split,
        out,
        place,
        drop,
        GROUPS: tl.constexpr,
        SIZE: tl.constexpr,
        DIM: tl.constexpr,
        WIDE: tl.constexpr,
        NBYTES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Compute the user's part of the scores from two products, and send it split."""
        keys, m = length(place), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        total = dot(asked, masks, m, keys, GROUPS, SIZE, DIM, WIDE)
        total += dot(query, masked_kv, m, keys, GROUPS, SIZE, DIM, WIDE)
        i = tl.program_id(0) * keys + m
        word = (total >> drop) - tl.load(split + i, mask=m < keys, other=0)
        store_words(out, 0, i, tl.num_programs(0) * keys, word, m < keys, NBYTES)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def reshow(  # type: ignore[no-untyped-def]
        own,
        octets,
        permutation,
        delta,
        out,
        place,
        HEADS: tl.constexpr,
        NBYTES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Add both parts of the scores, permute them, and mask them."""
        i, n = entries(place, HEADS, BLOCK)
        mask = i < n
        at = tl.load(permutation + i, mask=mask, other=0)
        word = tl.load(own + at, mask=mask, other=0) + load_words(octets, 0, at, n, mask, NBYTES)
        store_words(out, 0, i, n, word + tl.load(delta + i, mask=mask, other=0), mask, NBYTES)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def reweigh(  # type: ignore[no-untyped-def]
        octets,
        answer_correction,
        permutation,
        blind,
        kept,
        out,
        place,
        HEADS: tl.constexpr,
        NBYTES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Put attention weights back in their order, keep them, and send them blinded."""
        i, n = entries(place, HEADS, BLOCK)
        mask = i < n
        at = tl.load(permutation + i, mask=mask, other=0)
        word = load_words(octets, 0, i, n, mask, NBYTES) + tl.load(
            answer_correction + i, mask=mask, other=0
        )
        tl.store(kept + at, word, mask=mask)
        word += tl.load(blind + at, mask=mask, other=0)
        store_words(out, 0, at, n, word, mask, NBYTES)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def weigh(  # type: ignore[no-untyped-def]
        octets,
        reveal_mask,
        answer_mask,
        out,
        peak,
        place,
        seen_scale,
        scale,
        SEEN: tl.constexpr,
        NBYTES: tl.constexpr,
        WHOLE: tl.constexpr,
    ):
        """Take the mask off one head's scores, and answer with their softmax."""
        keys = length(place)
        n = tl.num_programs(0) * keys
        m = tl.arange(0, WHOLE)
        mask = m < keys
        i = tl.program_id(0) * keys + m
        word = load_words(octets, 0, i, n, mask, SEEN) + tl.load(
            reveal_mask + i, mask=mask, other=0
        )
        if SEEN < 8:
            word = (word << (64 - 8 * SEEN)) >> (64 - 8 * SEEN)
        size = tl.where(mask, tl.where(word < 0, -word, word), 0)
        tl.atomic_max(peak, tl.max(size, axis=0))
        score = tl.where(mask, word.to(tl.float64) * seen_scale, float("-inf"))
        power = tl.exp(score - tl.max(score, axis=0))
        weight = power / tl.sum(power, axis=0)
        magic = tl.full((), 6755399441055744.0, tl.float64)
        rounded = (weight * scale + magic) - magic
        word = rounded.to(tl.int64) - tl.load(answer_mask + i, mask=mask, other=0)
        store_words(out, 0, i, n, word, mask, NBYTES)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def mix(  # type: ignore[no-untyped-def]
        weights,
        values,
        out,
        place,
        GROUPS: tl.constexpr,
        SIZE: tl.constexpr,
        DIM: tl.constexpr,
        WIDE: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Weigh values, head by head."""
        head, keys = tl.program_id(0), length(place)
        d = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
        total = tl.zeros((WIDE,), dtype=tl.int64)
        for start in range(0, keys, BLOCK):
            m = start + tl.arange(0, BLOCK)
            w = tl.load(weights + head * keys + m, mask=m < keys, other=0)
            v = gather(values, head, m, d, keys, GROUPS, SIZE, DIM)
            total += tl.sum(w[:, None] * v, axis=0)
        tl.store(out + head * DIM + d, total, mask=d < DIM)

    @triton.jit(do_not_specialize=SIZES)  # type: ignore[untyped-decorator]
    def mixed(  # type: ignore[no-untyped-def]
        weights,
        masked_kv,
        octets,
        masks,
        rest,
        out,
        place,
        GROUPS: tl.constexpr,
        SIZE: tl.constexpr,
        DIM: tl.constexpr,
        WIDE: tl.constexpr,
        NBYTES: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Compute the user's part of the weighed values from two products, and send it masked."""
        head, heads, keys = tl.program_id(0), tl.num_programs(0), length(place)
        d = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
        total = tl.zeros((WIDE,), dtype=tl.int64)
        for start in range(0, keys, BLOCK):
            m = start + tl.arange(0, BLOCK)
            i = head * keys + m
            w = tl.load(weights + i, mask=m < keys, other=0)
            sent = load_words(octets, 0, i, heads * keys, m < keys, NBYTES)
            p = gather(masked_kv, head, m, d, keys, GROUPS, SIZE, DIM)
            r = gather(masks, head, m, d, keys, GROUPS, SIZE, DIM)
            total += tl.sum(w[:, None] * p + sent[:, None] * r, axis=0)
        i = head * DIM + d
        word = total - tl.load(rest + i, mask=d < DIM, other=0)
        store_words(out, 0, i, heads * DIM, word, d < DIM, NBYTES)
