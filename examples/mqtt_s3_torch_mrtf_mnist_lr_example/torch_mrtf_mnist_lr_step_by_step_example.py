"""The same, step by step: FedML's own steps, after `register()`."""

import mrtf_fedml  # first, so that FedML's imports do not warn of their own dependencies

import fedml
from fedml import FedMLRunner

if __name__ == "__main__":
    mrtf_fedml.register()

    # init FedML framework
    args = fedml.init()

    # init device
    device = fedml.device.get_device(args)

    # load data: test_global is what the server labels; its labels only score the answer
    dataset, output_dim = fedml.data.load(args)

    # load model
    model = fedml.model.create(args, output_dim)

    # start training; the summary at the end names the run directory
    FedMLRunner(args, device, dataset, model).run()
