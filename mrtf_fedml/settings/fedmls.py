"""Keys of FedML's that we read, by the section in which FedML writes them: `--set` takes them from nothing too."""

from __future__ import annotations

FEDMLS_KEYS: dict[str, tuple[str, ...]] = {
    "common_args": ("run_id", "scenario", "using_mlops"),
    "device_args": ("gpu_mapping_file", "gpu_mapping_key", "device_type"),
    "comm_args": (
        "grpc_ipconfig_path",
        "trpc_master_config_path",
        "customized_training_mqtt_config",
        "customized_training_s3_config",
        "enable_cuda_rpc",
        "cuda_rpc_gpu_mapping",
    ),
    "tracking_args": (
        "enable_tracking",
        "enable_tensorboard",
        "enable_wandb",
        "wandb_key",
        "wandb_project",
        "wandb_name",
    ),
    "attack_args": ("enable_attack", "attack_type", "attack_mode"),
    "defense_args": ("enable_defense", "defense_type", "byzantine_client_num", "norm_bound", "krum_param_m", "beta"),
    "dp_args": ("dp_solution_type", "mechanism_type", "epsilon", "sensitivity"),
}
