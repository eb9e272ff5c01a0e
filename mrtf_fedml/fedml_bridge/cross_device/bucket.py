"""The S3 bucket through which models travel, in FedML's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import boto3
from boto3.exceptions import Boto3Error
from botocore.client import Config
from botocore.exceptions import BotoCoreError, ClientError

from ...errors import UserError

S3_ERRORS = (BotoCoreError, ClientError, Boto3Error)
_KEYS = ("BUCKET_NAME", "CN_S3_AKI", "CN_S3_SAK")
_PAGE = 1000


class Bucket:
    """One bucket; every failure is one of S3_ERRORS.

    Args:
        config: `comm_args.customized_training_s3_config`.
    """

    def __init__(self, config: Any) -> None:
        if not isinstance(config, Mapping) or any(key not in config for key in _KEYS):
            raise UserError(
                f"backend MQTT_S3_MNN needs comm_args.customized_training_s3_config with {', '.join(_KEYS)}"
            )
        self.name = str(config["BUCKET_NAME"])
        self._s3 = boto3.client(
            "s3",
            endpoint_url=config.get("CN_S3_ENDPOINT") or None,
            region_name=config.get("CN_REGION_NAME") or "us-east-1",
            aws_access_key_id=config["CN_S3_AKI"],
            aws_secret_access_key=config["CN_S3_SAK"],
            config=Config(signature_version="s3v4"),
        )

    def put(self, key: str, content: bytes) -> None:
        """Store an object."""
        self._s3.put_object(Bucket=self.name, Key=key, Body=content)

    def get(self, key: str, at_most: int | None = None) -> bytes:
        """An object's content; of one that is longer than `at_most`, no more than that and a byte."""
        body = self._s3.get_object(Bucket=self.name, Key=key)["Body"]
        try:
            content: bytes = body.read(None if at_most is None else at_most + 1)
            return content
        finally:
            body.close()

    def remove(self, key: str) -> None:
        """Remove an object; one that is not there is no error."""
        self._s3.delete_object(Bucket=self.name, Key=key)

    def keys(self, prefix: str) -> list[str]:
        """The first keys that begin so, a page of them at most."""
        listed = self._s3.list_objects_v2(Bucket=self.name, Prefix=prefix, MaxKeys=_PAGE)
        return [entry["Key"] for entry in listed.get("Contents", [])]
