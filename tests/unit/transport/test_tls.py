from tacit import crypto
from tacit.transport import fingerprint


def test_both_rooms_that_name_a_certificate_give_it_the_same_name(keys):
    der = keys["ann"].certificate()
    assert fingerprint(der) == crypto.fingerprint(der)
    assert crypto.parse_fingerprint(fingerprint(der)) == fingerprint(der)
