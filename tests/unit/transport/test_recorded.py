from tacit.transport import Frame, Meter, Received, Recorded, frame_bytes, memory_pair


def test_a_record_holds_what_was_handed_out_and_nothing_else():
    ann, bob = memory_pair("ann", "bob", meter_a=Meter("ann"), meter_b=Meter("bob"))
    spy = Recorded(bob)
    ann.send("a/1", frame_bytes(b"one"), phase="offline")
    ann.send("b/1", Frame("i32", (2,), memoryview(bytes(8))))
    ann.send("c/1", frame_bytes(b"never asked for"))
    spy.recv("b/1").data[:] = b"\xff" * 8  # the record is a copy
    spy.recv("a/1")
    spy.send("d/1", frame_bytes(b"sent"))
    assert spy.received == [
        Received("b/1", "online", "i32", (2,), bytes(8)),
        Received("a/1", "offline", "u8", (3,), b"one"),
    ]
    assert bytes(ann.recv("d/1").data) == b"sent"
    ann.close()
    spy.close()
