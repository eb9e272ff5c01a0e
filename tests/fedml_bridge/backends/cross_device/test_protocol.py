"""Messages have FedML's types and keys, and other messages are rejected."""

from __future__ import annotations

import pytest
from fedml.core.distributed.communication.constants import CommunicationConstants
from fedml.core.distributed.communication.message import Message
from fedml.cross_device.server_mnn.fedml_server_manager import FedMLServerManager
from fedml.cross_device.server_mnn.message_define import MyMessage

from mrtf_fedml.fedml_bridge.backends.cross_device import protocol


def test_types_and_keys_equal_those_of_fedml() -> None:
    kinds = (protocol.INIT, protocol.SYNC, protocol.CHECK, protocol.FINISH, protocol.UPDATE, protocol.STATUS)
    assert kinds == (
        MyMessage.MSG_TYPE_S2C_INIT_CONFIG,
        MyMessage.MSG_TYPE_S2C_SYNC_MODEL_TO_CLIENT,
        MyMessage.MSG_TYPE_S2C_CHECK_CLIENT_STATUS,
        MyMessage.MSG_TYPE_S2C_FINISH,
        MyMessage.MSG_TYPE_C2S_SEND_MODEL_TO_SERVER,
        MyMessage.MSG_TYPE_C2S_CLIENT_STATUS,
    )
    task = {
        MyMessage.MSG_ARG_KEY_TYPE: 2,
        MyMessage.MSG_ARG_KEY_SENDER: 0,
        MyMessage.MSG_ARG_KEY_RECEIVER: 7,
        MyMessage.MSG_ARG_KEY_MODEL_PARAMS: "key",
        MyMessage.MSG_ARG_KEY_MODEL_PARAMS_KEY: "key",
        MyMessage.MSG_ARG_KEY_CLIENT_INDEX: "5",
        MyMessage.MSG_ARG_KEY_CLIENT_OS: "AndroidClient",
    }
    assert protocol.task_message(protocol.SYNC, server=0, device=7, round_index=5, key="key") == task
    update = protocol.update_message(7, "5", "key", samples=30)
    message = Message()
    message.init_from_json_object(update)
    assert (message.get_sender_id(), message.get_receiver_id(), message.get_type()) == (7, 0, 3)
    assert message.get(MyMessage.MSG_ARG_KEY_NUM_SAMPLES) == 30
    statuses = (FedMLServerManager.ONLINE_STATUS_FLAG, FedMLServerManager.RUN_FINISHED_STATUS_FLAG)
    assert statuses == (protocol.ONLINE, protocol.FINISHED)
    assert protocol.status_message(7, protocol.ONLINE)[MyMessage.MSG_ARG_KEY_CLIENT_STATUS] == statuses[0]
    assert CommunicationConstants.SERVER_TOP_LAST_WILL_MSG == protocol.SERVER_LAST_WILL_TOPIC


def test_invalid_message_is_rejected() -> None:
    for payload in (b"", b"\xff\xfe", b"[1]", b"7", b"{", b"[" * 100_000):
        with pytest.raises(protocol.UnreadableMessage):
            protocol.decode(payload)
    for value in (None, True, 1.5, "x", "", [1], {}):
        with pytest.raises(protocol.UnreadableMessage, match="its client_idx is"):
            protocol.get_integer({"client_idx": value}, "client_idx")
    with pytest.raises(protocol.UnreadableMessage, match="has no model_params"):
        protocol.get_string({"model_params": 3}, "model_params")
