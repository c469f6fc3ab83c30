import math
import re
from dataclasses import replace

import pytest

from tacit.report.network import draw_network
from tacit.result import Cost, Traffic


def _mesh(example, count):
    names = [f"p{index}" for index in range(count)]
    traffic = tuple(
        Traffic(sender=a, receiver=b, phase=phase, messages=1, payload_bytes=100)
        for a in names
        for b in names
        if a != b
        for phase in ("offline", "online")
    )
    cost = Cost(traffic=traffic, offline_rounds=1, online_rounds=1)
    parties = tuple(replace(example.parties[0], name=name) for name in names)
    return replace(
        example, parties=parties, metered=cost, forecast=replace(example.forecast, cost=cost)
    )


def _numbers(drawn, pattern):
    return [tuple(map(float, found)) for found in re.findall(pattern, drawn)]


@pytest.mark.parametrize("count", range(1, 9))
def test_every_party_has_a_node_inside_the_picture_and_none_overlap(example, count):
    drawn = draw_network(_mesh(example, count))
    (size,) = _numbers(drawn, r'viewBox="0 0 (\d+) (\d+)"')
    spot = r'<rect x="([\d.]+)" y="([\d.]+)" width="164" height="70" rx="10" class="node"'
    nodes = _numbers(drawn, spot)
    assert len(nodes) == count
    assert all(0 <= x <= size[0] - 164 and 0 <= y <= size[1] - 70 for x, y in nodes)
    for index, (x, y) in enumerate(nodes):
        assert all(abs(x - u) >= 164 or abs(y - v) >= 70 for u, v in nodes[:index])


@pytest.mark.parametrize("count", [2, 3, 8])
def test_no_two_arrows_lie_on_each_other(example, count):
    drawn = draw_network(_mesh(example, count))
    lines = _numbers(drawn, r'x1="([\d.]+)" y1="([\d.]+)" x2="([\d.]+)" y2="([\d.]+)"')
    assert len(lines) == 2 * count * (count - 1)
    middles = [((a + c) / 2, (b + d) / 2, math.atan2(d - b, c - a)) for a, b, c, d in lines]
    for index, (x, y, angle) in enumerate(middles):
        assert all(
            math.dist((x, y), (u, v)) > 4 or abs(math.sin(angle - other)) > 0.1
            for u, v, other in middles[:index]
        )


def _star(example, count):
    """Everyone talks with the first party, in both phases."""
    mesh = _mesh(example, count)
    traffic = tuple(t for t in mesh.metered.traffic if "p0" in (t.sender, t.receiver))
    cost = replace(mesh.metered, traffic=traffic)
    return replace(mesh, metered=cost, forecast=replace(mesh.forecast, cost=cost))


def _ring(example, count):
    """Everyone talks with both neighbours and the party opposite, online."""
    mesh = _mesh(example, count)
    near = {1, count - 1, count // 2}
    traffic = tuple(
        t
        for t in mesh.metered.traffic
        if t.phase == "online" and (int(t.sender[1:]) - int(t.receiver[1:])) % count in near
    )[:16]
    cost = replace(mesh.metered, traffic=traffic)
    return replace(mesh, metered=cost, forecast=replace(mesh.forecast, cost=cost))


def _boxes(drawn, css):
    size = r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)" rx="\d+"'
    return _numbers(drawn, f'{size} class="{css}"')


@pytest.mark.parametrize("shape", [_mesh, _star, _ring])
@pytest.mark.parametrize("count", range(2, 7))
def test_no_two_labels_and_no_label_and_node_overlap(example, shape, count):
    result = shape(example, count)
    # As wide as labels get.
    traffic = tuple(replace(t, payload_bytes=888_000_000) for t in result.metered.traffic)
    cost = replace(result.metered, traffic=traffic)
    drawn = draw_network(
        replace(result, metered=cost, forecast=replace(result.forecast, cost=cost))
    )
    plates, nodes = _boxes(drawn, "plate"), _boxes(drawn, "node")
    pairs = {frozenset((t.sender, t.receiver)) for t in traffic}
    assert len(plates) == (len(pairs) if len(traffic) <= 16 else 0)
    assert drawn.count("888") >= len(traffic)
    for index, (x, y, width, height) in enumerate(plates):
        for u, v, w, h in (*plates[:index], *nodes):
            assert x + width <= u or u + w <= x or y + height <= v or v + h <= y


def test_arrows_are_as_wide_as_their_bytes_and_named(example):
    drawn = draw_network(example)
    widths = dict(re.findall(r"<title>([^<]*)</title><line [^>]*stroke-width=\"([\d.]+)\"", drawn))
    by_name = {name.replace("\u00a0", " "): float(width) for name, width in widths.items()}
    assert by_name == {
        "dealer to hospital, offline: 32 B": 1.5,
        "dealer to lab, offline: 96.3 kB": 10.0,
        "hospital to lab, online: 49.2 kB": pytest.approx(5.85),
        "lab to hospital, online: 19 kB": pytest.approx(3.18),
    }


def test_traffic_that_nobody_metered_is_marked_as_forecast(example):
    alone = replace(
        example,
        parties=example.parties[:1],
        metered=replace(example.metered, traffic=example.metered.traffic[:1]),
    )
    assert "(forecast, not metered)" in draw_network(alone)


def test_a_long_name_is_cut_in_the_node_and_whole_in_its_title(example):
    name = "Gemeinschaftskrankenhaus"
    drawn = draw_network(replace(example, parties=(replace(example.parties[0], name=name),)))
    assert f"<title>{name}: owns the records</title>" in drawn
    assert ">Gemeinschaftsk…<" in drawn


@pytest.mark.parametrize(
    ("role", "lines"),
    [
        ("dealer", ["dealer"]),
        ("model owner, computes", ["model owner,", "computes"]),
        ("data owner, model owner, computes", ["data owner, model", "owner, computes"]),
        ("word " * 20, ["word word word word", "word word word…"]),
        ("", []),
    ],
)
def test_a_role_is_whole_on_at_most_two_lines(example, role, lines):
    drawn = draw_network(replace(example, parties=(replace(example.parties[0], role=role),)))
    (node,) = re.findall(r"<title>hospital: .*?</g>", drawn)
    assert re.findall(r'class="role">([^<]*)<', node) == lines
