"""DeviceMembership: which devices can be selected, and which are invited."""

from __future__ import annotations

from mrtf_fedml.fedml_bridge.backends.cross_device.coordinator import DeviceMembership


def test_offline_devices_are_invited_periodically() -> None:
    membership = DeviceMembership([11, 12, 13], invitation_seconds=1000.0)
    assert membership.next_invitations() == [0, 1, 2]
    assert membership.next_invitations() == []
    membership.mark_connected(1)
    assert membership.connected == [1]
    assert (membership.id_of(1), membership.client_of(12), membership.client_of(99)) == (12, 1, None)
    eager = DeviceMembership([11, 12], invitation_seconds=0.0)
    eager.mark_connected(0)
    assert eager.next_invitations() == eager.next_invitations() == [1]


def test_unresponsive_device_is_not_invited_until_it_sends_a_message() -> None:
    membership = DeviceMembership([1, 2], invitation_seconds=0.0)
    membership.mark_connected(0)
    membership.mark_unresponsive(0)
    assert membership.connected == []
    assert membership.next_invitations() == [1]
    membership.mark_connected(0)
    assert membership.connected == [0]


def test_lost_or_restarted_device_is_invited_again() -> None:
    membership = DeviceMembership([1, 2], invitation_seconds=1000.0)
    assert membership.next_invitations() == [0, 1]
    membership.mark_connected(0)
    membership.mark_offline(0)
    assert membership.seconds_offline(0) > 0
    # A device that was lost in a round and did not reply is offline, not unresponsive.
    membership.mark_unresponsive(0)
    membership.mark_offline(0, invite_now=True)
    assert membership.next_invitations() == [0]
    membership.mark_connected(0)
    assert membership.seconds_offline(0) == 0


def test_mark_alive_connects_only_unresponsive_devices() -> None:
    membership = DeviceMembership([1, 2, 3], invitation_seconds=0.0)
    membership.mark_connected(0)
    membership.mark_unresponsive(0)
    membership.mark_connected(1)
    membership.mark_offline(1)
    for client in range(3):
        membership.mark_alive(client)
    assert membership.connected == [0]
