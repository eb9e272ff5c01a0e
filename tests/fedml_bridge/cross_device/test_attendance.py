"""Who can be chosen, who is invited, and who is left alone."""

from __future__ import annotations

from mrtf_fedml.fedml_bridge.cross_device.attendance import Attendance


def test_those_who_are_missing_are_invited_once_in_a_while() -> None:
    attendance = Attendance([11, 12, 13], invite_seconds=1000.0)
    assert attendance.to_be_invited() == [0, 1, 2]
    assert attendance.to_be_invited() == []
    attendance.heard(1)
    assert attendance.here == [1]
    assert (attendance.id_of(1), attendance.client_of(12), attendance.client_of(99)) == (12, 1, None)
    eager = Attendance([11, 12], invite_seconds=0.0)
    eager.heard(0)
    assert eager.to_be_invited() == eager.to_be_invited() == [1]


def test_one_that_is_late_is_left_alone_until_it_is_heard_of() -> None:
    attendance = Attendance([1, 2], invite_seconds=0.0)
    attendance.heard(0)
    attendance.late(0)
    assert attendance.here == []
    assert attendance.to_be_invited() == [1]
    attendance.heard(0)
    assert attendance.here == [0]


def test_one_that_was_lost_or_started_anew_is_invited_again() -> None:
    attendance = Attendance([1, 2], invite_seconds=1000.0)
    assert attendance.to_be_invited() == [0, 1]
    attendance.heard(0)
    attendance.away(0)
    assert attendance.seconds_away(0) > 0
    # It was lost in a round and did not answer: still lost, not silent.
    attendance.late(0)
    attendance.away(0, at_once=True)
    assert attendance.to_be_invited() == [0]
    attendance.heard(0)
    assert attendance.seconds_away(0) == 0


def test_only_who_was_silent_is_woken_by_a_word_of_no_use() -> None:
    attendance = Attendance([1, 2, 3], invite_seconds=0.0)
    attendance.heard(0)
    attendance.late(0)
    attendance.heard(1)
    attendance.away(1)
    for client in range(3):
        attendance.woke(client)
    assert attendance.here == [0]
