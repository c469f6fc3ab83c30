"""Proofs by exhaustion: what the server of a masked round reads is the sum of all, or nothing."""

import itertools
import math
import random
from collections import Counter

import pytest

from support.federated import make_spec
from support.formal_sums import Masked, quick
from tacit.errors import ConfigError
from tacit.federated import Privacy, round_config
from tacit.federated.secagg import Neighbourhood, plan_secagg
from tacit.federated.secagg.graph import share_of
from tacit.federated.secagg.sides import plan_from

RATES = [(0.1, 0.1), (0.0, 0.0), (0.2, 0.2), (0.1, 0.35), (0.4, 0.1)]
STAGES = 4  # the last set that a client is in: nobody's, the listed, those who shared, who stayed


@pytest.fixture(autouse=True)
def _quick():
    with quick():
        yield


def plan_of(clients, drop_rate, colluding_share, **changes):
    spec = make_spec(
        clients=clients,
        rounds=1,
        privacy=Privacy(clip=1.0),
        drop_rate=drop_rate,
        colluding_share=colluding_share,
        **changes,
    )
    return plan_from(round_config(spec, 1))


def counts(total):
    """Divide so many clients among the stages: (count at each, in how many ways)."""
    for cuts in itertools.combinations(range(total + STAGES - 1), STAGES - 1):
        edges = (-1, *cuts, total + STAGES - 1)
        found = [high - low - 1 for low, high in itertools.pairwise(edges)]
        ways = math.factorial(total) // math.prod(map(math.factorial, found))
        yield found, ways


def sets_of(members, found):
    """List who is listed, who shared and who stayed, where clients leave from the first on."""
    starts = list(itertools.accumulate(found))[:-1]
    return [members[start:] for start in starts]


def check_all(plan, colluding):
    """Try every list, every stage at which somebody falls silent; clients are alike.

    Who is silent later still takes away from what is seen here, where all others answer.
    """
    friends = list(range(colluding))
    round_ = Masked(plan, friends)
    cases = stood_for = 0
    whole = False
    for one, ways in counts(len(round_.honest)):
        for two, others in counts(colluding):
            listed, present, alive = (
                a + b
                for a, b in zip(sets_of(round_.honest, one), sets_of(friends, two), strict=True)
            )
            cases, stood_for = cases + 1, stood_for + ways * others
            least = max(plan.minimum, plan.neighbourhood.threshold)
            if len(listed) < least:
                continue  # refused by `read_roster`: see test_client
            total = frozenset(alive) - frozenset(friends)
            allowed = {total} if len(alive) >= plan.minimum else set()
            read = round_.read(round_.same(listed, present, alive))
            assert read <= allowed, (one, two, read)
            whole |= read == {frozenset(round_.honest)}
    assert stood_for == STAGES**plan.clients
    assert whole  # the observer does read what is meant to be read
    return cases


def check_rates(clients):
    for (drop_rate, share), minimum in itertools.product(RATES, (0, 2)):
        try:
            plan = plan_of(clients, drop_rate, share, minimum=minimum)
        except ConfigError:
            continue  # no graph withstands so much
        for colluding in range(share_of(clients, share) + 1):
            check_all(plan, colluding)


@pytest.mark.parametrize("clients", range(2, 8))
def test_a_server_reads_the_sum_of_all_or_nothing(clients):
    check_rates(clients)


@pytest.mark.slow
@pytest.mark.parametrize("clients", range(8, 11))
def test_a_server_reads_the_sum_of_all_or_nothing_of_more_clients(clients):
    check_rates(clients)


# Whether it is listed, whether its shares are delivered, whether it is said to have stayed.
FATES = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1), (1, 0, 1)]


def check_two_stories(clients, threshold, friends, fates):
    """Tell two groups two stories of who is listed, who shared and who stayed, in every way."""
    near = Neighbourhood(neighbours=clients - 1, threshold=threshold)
    round_ = Masked(
        plan_secagg(clients, 1, bound=1.0, neighbourhood=near, minimum=2), range(friends)
    )
    found = set()
    stories = list(itertools.product(fates, repeat=2))
    kinds = list(itertools.product((0, 1), stories))
    for honest in itertools.combinations_with_replacement(kinds, clients - friends):
        for others in itertools.combinations_with_replacement(stories, friends):
            told = [(0, one) for one in others] + list(honest)
            views = {}
            for index, (group, _) in enumerate(told):
                if index not in round_.colluding:
                    views[index] = tuple(
                        frozenset(i for i, (_, fate) in enumerate(told) if fate[group][stage])
                        for stage in range(3)
                    )
            read = round_.read(views)
            stayed = {view[2] for view in views.values() if len(view[2]) >= threshold}
            assert len(read) <= 1, (told, read)
            assert read <= {one - round_.colluding for one in stayed}, (told, read)
            found |= read
    return found


@pytest.mark.parametrize(("clients", "friends"), [(3, 0), (3, 1)])
def test_two_stories_give_one_sum_or_nothing(clients, friends):
    assert check_two_stories(clients, (clients + friends) // 2 + 1, friends, FATES[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("clients", "friends"), [(3, 0), (3, 1), (4, 0), (4, 1)])
def test_two_stories_told_in_more_ways_give_one_sum_or_nothing(clients, friends):
    threshold = (clients + friends) // 2 + 1
    for fates in (FATES[:-1], FATES[1:]) if clients > 3 else (FATES,):
        assert check_two_stories(clients, threshold, friends, fates)


def test_two_stories_give_more_where_half_of_the_shares_suffice():
    with pytest.raises(AssertionError, match="frozenset"):
        check_two_stories(3, 2, 1, FATES[1:])


def check_many_stories(clients, friends, seed, times):
    """Tell every client a story of its own, made of a few that could each be true."""
    threshold, drawn = (clients + friends) // 2 + 1, random.Random(seed)  # noqa: S311
    near = Neighbourhood(neighbours=clients - 1, threshold=threshold)
    round_ = Masked(
        plan_secagg(clients, 1, bound=1.0, neighbourhood=near, minimum=2), range(friends)
    )
    found = set()
    for _ in range(times):
        least = drawn.randint(2, clients)
        lists = [
            draw_among(drawn, round_.everybody, threshold) for _ in range(drawn.choice((1, 2)))
        ]
        stories = []
        for listed in drawn.choices(lists, k=drawn.randint(1, 3)):
            present = draw_among(drawn, listed, least)
            stories.append((listed, present, draw_among(drawn, present, least)))
        views = {}
        for index in round_.honest:
            listed, present, alive = drawn.choice(stories)
            if drawn.random() < 0.2:
                present = draw_among(drawn, listed, least)
            views[index] = listed, present | {index}, alive
        read = round_.read(views)
        assert len(read) <= 1, (seed, views, read)
        assert read <= {view[2] - round_.colluding for view in views.values()}, (seed, views, read)
        found |= read
    return found


def draw_among(drawn, members, least):
    count = drawn.randint(min(least, len(members)), len(members))
    return frozenset(drawn.sample(sorted(members), count))


@pytest.mark.parametrize(("clients", "friends"), [(5, 0), (7, 1), (9, 2)])
def test_many_stories_at_random_give_one_sum_or_nothing(clients, friends):
    assert check_many_stories(clients, friends, seed=1, times=60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("clients", "friends"), [(5, 0), (6, 2), (9, 0), (12, 3)])
def test_many_more_stories_at_random_give_one_sum_or_nothing(clients, friends, seed):
    check_many_stories(clients, friends, seed + 2, times=300)


def plan_with(clients, neighbours, threshold, minimum):
    near = Neighbourhood(neighbours=neighbours, threshold=threshold)
    return plan_secagg(clients, 1, bound=1.0, neighbourhood=near, minimum=minimum)


def test_the_old_graph_of_nine_clients_shows_sums_of_two_to_four():
    """The ring of two neighbours with threshold 2, that 0.1 and 0.2 planned for 4 to 9 clients."""
    round_, sizes = Masked(plan_with(9, 2, 2, minimum=5)), Counter()
    everybody = round_.everybody
    for silent in itertools.combinations(range(9), 2):
        read = round_.read(round_.same(everybody, everybody, everybody - set(silent)))
        sizes[tuple(sorted(map(len, read)))] += 1
    assert sizes == {(): 18, (2, 5): 9, (3, 4): 9}


def alike(stages, fixed):
    """Tell whether a placement on the ring is the first of those that turn or mirror into it."""
    turns = range(len(stages)) if not fixed else [0]
    mirrored = (stages[0], *stages[:0:-1])
    both = [one[at:] + one[:at] for one in (stages, mirrored) for at in turns]
    return min(both), len(set(both))


def check_ring(clients, side, friends):
    """Try who shared and who stayed in every way, on a ring that the rule of the plan makes."""
    threshold = side + friends + 2
    round_ = Masked(plan_with(clients, 2 * side, threshold, minimum=2), range(friends))
    everybody, stood_for = round_.everybody, 0
    for stages in itertools.product(range(1, STAGES), repeat=clients):
        first, ways = alike(stages, friends)
        if first != stages:
            continue
        stood_for += ways
        present, alive = (
            [round_.ring[at] for at, last in enumerate(stages) if last >= stage] for stage in (2, 3)
        )
        read = round_.read(round_.same(everybody, present, alive))
        assert read <= {frozenset(alive) - round_.colluding}, (stages, read)
        if stages == (STAGES - 1,) * clients:
            assert read == {frozenset(round_.honest)}
    assert stood_for == (STAGES - 1) ** clients


@pytest.mark.parametrize(("clients", "side", "friends"), [(7, 2, 0), (6, 2, 1)])
def test_no_silence_cuts_a_ring(clients, side, friends):
    check_ring(clients, side, friends)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clients", "side", "friends"), [(8, 2, 0), (9, 3, 0), (10, 2, 0), (8, 2, 1), (8, 3, 1)]
)
def test_no_silence_cuts_a_larger_ring(clients, side, friends):
    check_ring(clients, side, friends)


@pytest.mark.parametrize(("threshold", "read"), [(3, {3}), (4, set())])
def test_with_a_threshold_one_lower_two_arcs_of_a_ring_are_read_apart(threshold, read):
    round_ = Masked(plan_with(10, 4, threshold, minimum=2))
    silent = {round_.ring[place] for place in (3, 4, 8, 9)}
    view = round_.same(round_.everybody, round_.everybody, round_.everybody - silent)
    assert set(map(len, round_.read(view))) == read


def test_the_old_ring_of_a_hundred_clients_shows_twelve_alone():
    """As planned before for a tenth of drop-outs and nobody who colludes: 22 neighbours, 12."""
    round_ = Masked(plan_with(100, 22, 12, minimum=60))
    silent = {round_.ring[place] for place in (*range(12, 23), *range(89, 100))}
    view = round_.same(round_.everybody, round_.everybody, round_.everybody - silent)
    assert set(map(len, round_.read(view))) == {12, 66}


def silences(round_, drawn, side):
    """Draw who falls silent: arcs just too short or long enough to cut, or anybody."""
    count = round_.plan.clients
    for length in (side - 1, side, side + 1):
        first = drawn.randrange(count)
        second = (first + drawn.randint(length + 1, count - length - 1)) % count
        arcs = {(start + step) % count for start in (first, second) for step in range(length)}
        yield {round_.ring[place] for place in arcs}
    # All but an arc: whoever is beside it has the fewest left around.
    length, first = drawn.randint(1, side), drawn.randrange(count)
    yield {round_.ring[(first + step) % count] for step in range(side + length)}
    yield set(drawn.sample(range(count), drawn.randint(0, count // 3)))
    yield set()


def check_planned_ring(clients, colluding_share, seed):
    plan = plan_of(clients, 0.1, colluding_share)
    side, drawn = plan.neighbourhood.neighbours // 2, random.Random(seed)  # noqa: S311
    assert 2 * side < clients - 1
    friends = drawn.sample(range(clients), share_of(clients, colluding_share))
    together = range(len(friends))  # next to each other, which no bound on chance allows
    for places in (friends, together):
        round_ = Masked(plan, places)
        everybody = round_.everybody
        completed = 0
        for silent in silences(round_, drawn, side):
            for present in (everybody, everybody - silent):
                alive = everybody - silent
                read = round_.read(round_.same(everybody, present, alive))
                assert read <= {alive - round_.colluding}, (seed, silent, list(map(len, read)))
                completed += len(read)
        assert completed


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("clients", "share"), [(102, 0.0), (102, 0.1), (130, 0.05)])
def test_no_silence_cuts_a_ring_as_it_is_planned(clients, share, seed):
    check_planned_ring(clients, share, seed)
