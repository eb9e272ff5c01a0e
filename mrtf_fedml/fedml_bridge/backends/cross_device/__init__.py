"""FedML's cross-device platform: a Python server, and devices that train MNN models and speak MQTT and S3."""
