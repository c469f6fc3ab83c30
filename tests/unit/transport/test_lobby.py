import socket

import pytest

from tacit.transport.meeting import MAX_GUESTS, MAX_GUESTS_PER_HOST, MAX_NOTES, Lobby, Notes


@pytest.fixture
def call():
    """Return a function that makes a caller enter a lobby and tells whether it is still in."""
    lobby, guests, ends = Lobby(), [], []

    def enter(host):
        near, far = socket.socketpair()
        far.setblocking(False)
        ends.extend((near, far))
        guest = lobby.enter(near, host)
        guests.append(guest)

        def is_in() -> bool:
            try:
                return far.recv(1) != b""
            except BlockingIOError:
                return True

        return lobby, guest, is_in

    yield enter
    for guest in guests:
        lobby.leave(guest)
    for end in ends:
        end.close()


def test_the_oldest_of_too_many_from_one_host_is_cut(call):
    callers = [call("mallory")[2] for _ in range(MAX_GUESTS_PER_HOST + 3)]
    assert [is_in() for is_in in callers] == [False] * 3 + [True] * MAX_GUESTS_PER_HOST


def test_many_from_one_host_do_not_push_out_another(call):
    bob = call("bob")[2]
    for _ in range(3 * MAX_GUESTS_PER_HOST):
        call("mallory")
    assert bob()


def test_a_full_lobby_cuts_whoever_has_most_in_it(call):
    bob = call("bob")[2]
    for i in range(2 * MAX_GUESTS):
        call(f"mallory {i % 10}")
    assert bob()


def test_who_has_left_is_not_cut_any_more(call):
    lobby, guest, is_in = call("bob")
    lobby.leave(guest)
    lobby.leave(guest)
    for _ in range(3 * MAX_GUESTS_PER_HOST):
        call("bob")
    assert is_in()


def test_a_caller_that_hung_up_can_still_be_cut_and_leave(call):
    near, far = socket.socketpair()
    with near, far:
        lobby, _, _ = call("mallory")
        guest = lobby.enter(near, "mallory")
        far.close()
        for _ in range(2 * MAX_GUESTS_PER_HOST):
            call("mallory")
        lobby.leave(guest)


def test_notes_are_logged_once_and_bounded_for_each_party(caplog):
    notes = Notes()
    for i in range(20):
        for _ in range(2):
            notes.add(f"noise {i}", party=None)
            notes.add(f"about cat {i}", party="cat")
    notes.add("about bob", party="bob")
    assert len(caplog.records) == 2 * MAX_NOTES + 1
    noise = [f"noise {i}" for i in range(MAX_NOTES)]
    assert notes.about(["bob"]) == "; ".join(["about bob", *noise])


def test_a_known_party_is_not_pushed_out_by_strangers_of_its_host(call):
    lobby, guest, is_in = call("nat")
    lobby.know(guest, "bob")
    for _ in range(3 * MAX_GUESTS_PER_HOST):
        call("nat")
    assert is_in()


def test_a_known_party_has_no_more_guests_than_a_stranger_wherever_it_dials_from(call):
    callers = [call(f"host {i}") for i in range(MAX_GUESTS_PER_HOST + 3)]
    for lobby, guest, _ in callers:
        lobby.know(guest, "bob")
    assert [is_in() for _, _, is_in in callers] == [False] * 3 + [True] * MAX_GUESTS_PER_HOST
    lobby.know(callers[0][1], "bob")  # was cut: nothing happens
