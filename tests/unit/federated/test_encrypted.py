"""Encrypted sums attacked: keys of another job, too few holders, a server that asks for more."""

from dataclasses import replace

import numpy as np
import pytest

from support.federated import Stage, make_spec, provided
from tacit.crypto.cipher import combine, load_secret, load_share
from tacit.errors import DataError, PartyError
from tacit.federated import Privacy, Update, VoidRound, provision
from tacit.federated.contract import pack, unpack
from tacit.federated.encrypted import DECRYPT, PART, UPLOAD, claims, layout_of
from tacit.federated.provision import public_key_of, read_secret
from tacit.federated.secagg.plan import dequantise
from tacit.federated.secagg.sides import plan_sum, write_survivors
from tacit.ring import Prg

CLIENTS, SIZE = 5, 30


def policy(**changes):
    settings = {
        **{"clients": CLIENTS, "rounds": 1, "aggregator": "encrypted", "minimum": 4},
        "privacy": Privacy(kind="none", clip=1.0),
        "drop_rate": 0.2,
        "colluding_share": 0.0,
    }
    return make_spec(**{**settings, **changes})


THRESHOLD = {"cipher": "paillier", "threshold": 3, "colluding_share": 0.4}


def offers():
    return [Update(np.full(SIZE, 0.02 * (1 + at), np.float32), 1) for at in range(CLIENTS)]


def upload_of(stage, index=1):
    """Return a client's ciphertext, as the server has it."""
    answer = stage.answer(index, stage.server.invite()[index])
    (body,) = unpack(answer, UPLOAD, "b", sender="client")
    public = public_key_of(stage.terms.federated.cipher, stage.terms.public_key)
    return public.load(body, layout_of(stage.terms, plan_sum(stage.terms)))


def read(stage, numbers):
    return dequantise(plan_sum(stage.terms), numbers.reshape(-1).astype(np.uint32))[0]


@pytest.mark.parametrize("cipher", ["bfv", "paillier"])
def test_with_a_shared_key_one_client_and_the_server_open_every_update_and_it_is_said(cipher):
    """What is left open is shown to be open; the ledger's first line says it."""
    stage = Stage(policy(cipher=cipher), offers())
    key = load_secret(cipher, read_secret(stage.seats[0].secret).cipher)
    found = read(stage, key.decrypt(upload_of(stage)))
    assert np.allclose(found, offers()[1].values, atol=1e-6)
    assert "one that does opens everybody's updates" in claims(policy())[0].assumptions[0]


def test_fewer_holders_than_the_threshold_open_nothing_and_as_many_do():
    stage = Stage(policy(**THRESHOLD), offers())
    sealed, public = upload_of(stage), public_key_of("paillier", stage.terms.public_key)
    shares = [load_share(read_secret(seat.secret).cipher, public) for seat in stage.seats]
    parts = {one.point: one.decrypt_part(sealed) for one in shares}
    some = {"threshold": 3, "holders": CLIENTS}
    with pytest.raises(DataError, match="wanted parts of 3 of 5 holders, got 2"):
        combine(public, sealed, {1: parts[1], 2: parts[2]}, **some)
    with pytest.raises(DataError):  # two that pretend to be enough
        combine(public, sealed, {1: parts[1], 2: parts[2]}, threshold=2, holders=CLIENTS)
    found = combine(public, sealed, {at: parts[at] for at in (1, 3, 5)}, **some)
    assert np.allclose(read(stage, found), offers()[1].values, atol=1e-6)
    assert "up to 2 of the 5 clients" in claims(policy(**THRESHOLD))[0].assumptions[0]


@pytest.mark.parametrize("changes", [{}, THRESHOLD])
def test_a_secret_of_another_job_is_refused_by_name_and_nothing_is_lost(changes):
    stage = Stage(policy(**changes), offers())
    _, others = provision(policy(**changes), Prg.from_os(), bits=2048)
    seat = replace(stage.seats[2], secret=others[2])
    stage.clients[2] = stage.aggregator.make_client(stage.terms, seat, Prg.from_os())
    found = stage.run()
    assert found.survivors == (0, 1, 3, 4)
    assert "client 2" in str(stage.meter.refused[0])
    assert "of another key" in str(stage.meter.refused[0])


def test_a_client_without_a_secret_says_so():
    stage = Stage(policy(), offers())
    with pytest.raises(DataError, match="given no secret"):
        stage.aggregator.make_client(stage.terms, replace(stage.seats[0], secret=b""), None)


def test_a_ciphertext_of_another_key_or_cipher_is_refused_by_name():
    mine, theirs = Stage(policy(), offers()), Stage(policy(cipher="paillier"), offers())
    strange = theirs.answer(0, theirs.server.invite()[0])
    public_key, secrets = provision(policy(), Prg.from_os())
    other = replace(mine.terms, public_key=public_key)
    seat = replace(mine.seats[0], secret=secrets[0])
    server = mine.aggregator.make_server(other, Prg.from_os())
    foreign = mine.aggregator.make_client(other, seat, Prg.from_os()).answer(
        server.invite()[0], lambda: offers()[0]
    )
    for message in (strange, foreign):
        with pytest.raises(PartyError, match=r"'client 0' failed: .*(another key|ciphertext of)"):
            mine.server.accept(0, message)
    mine.run()


@pytest.mark.parametrize("changes", [{}, THRESHOLD])
def test_a_client_decrypts_one_sum_of_enough_clients_it_is_in(changes):
    stage = Stage(policy(**changes), offers())
    server, messages = stage.server, stage.server.invite()
    for index, message in messages.items():
        server.accept(index, stage.answer(index, message))
    asked = server.close()
    first = asked[0]
    _, sealed = unpack(first, DECRYPT, "bb", sender="server")
    for survivors in [(0,), (0, 1, 2), (1, 2, 3, 4), (0, 1, 1, 2)]:
        stage.invitations = dict.fromkeys(range(CLIENTS), messages[0])
        stage.resume(0)
        with pytest.raises(PartyError, match=r"the config wants|not me"):
            stage.clients[0].answer(pack(DECRYPT, write_survivors(survivors), sealed), None)
        stage.clients[0]._is_over = False
    assert stage.clients[0].answer(first, None)
    with pytest.raises(PartyError, match="a second decryption"):
        stage.clients[0].answer(first, None)
    stage.resume(0)
    with pytest.raises(PartyError, match="a second decryption"):  # after a restart too
        stage.clients[0].answer(first, None)


def test_a_server_that_shows_one_ciphertext_for_the_sum_is_not_noticed_and_it_is_said():
    """Why the claim begins with semi-honest: of one BFV ciphertext a client sees no more."""
    stage = Stage(policy(), offers())
    sealed, public = upload_of(stage), public_key_of("bfv", stage.terms.public_key)
    zero = public.encrypt(
        np.zeros((sealed.layout.rows, 1), np.int64),
        replace(sealed.layout, by_owner=False),
        Prg.from_os().bytes,
    )
    false = public.dump(public.add(sealed, zero))
    message = pack(DECRYPT, write_survivors((0, 1, 2, 3)), false)
    stage.answer(0, stage.server.invite()[0])
    (body,) = unpack(stage.clients[0].answer(message, None), 83, "b", sender="client")
    found = read(stage, np.frombuffer(body, np.uint32))
    assert np.allclose(found, offers()[1].values, atol=1e-6)
    assert claims(policy())[0].assumptions[0].startswith("semi-honest: every party follows")


def test_a_wrong_part_of_a_decryption_voids_the_round_and_a_malformed_one_is_refused_by_name():
    def swap(index, answer):
        if answer[4] != PART or index != 1:
            return answer
        point, part = unpack(answer, PART, "ib", sender="client")
        return pack(PART, point, part[:-3] + bytes(3))

    with pytest.raises(VoidRound, match="do not fit together"):
        Stage(policy(**THRESHOLD), offers(), tamper=swap).run()

    def cut(index, answer):
        return answer[:-1] if answer[4] == PART and index == 1 else answer

    stage = Stage(policy(**THRESHOLD), offers(), tamper=cut)
    assert len(stage.run().survivors) == CLIENTS  # another holder takes its place
    assert stage.meter.refused[0].party == "client 1"


def test_two_encryptions_of_one_update_have_nothing_in_common():
    """And a Paillier ciphertext without its random power, 1 + n·x, is told from a hidden one."""
    stage = Stage(policy(**THRESHOLD), offers())
    public = public_key_of("paillier", stage.terms.public_key)
    first, second = upload_of(stage), upload_of(Stage(policy(**THRESHOLD), offers()))
    assert not set(first.parts) & set(second.parts)
    assert all((part - 1) % public.n for part in first.parts)
    bare = [
        public.raise_plain(word) for word in public.packed(np.ones((9, 1), np.int64), first.layout)
    ]
    assert not any((part - 1) % public.n for part in bare)
    bodies = []
    for _ in range(2):
        made = Stage(policy(), offers())
        bodies.append(made.answer(0, made.server.invite()[0]))
    same = sum(one == two for one, two in zip(*bodies, strict=True))
    assert same < 0.2 * len(bodies[0])  # headers and padding; the rest differs


def test_keys_are_made_for_every_client_and_told_apart():
    _, secrets = provided(policy(**THRESHOLD))
    assert len(set(secrets)) == CLIENTS
    assert len({read_secret(one).shared for one in secrets}) == 1
    _, shared = provided(policy())
    assert len(set(shared)) == 1  # the same key for all, as the claim says
