"""Answer which key encrypts new volumes by default, for which moto lacks the call."""

from typing import Final

from moto.core.responses import ActionResult
from moto.ec2.responses.elastic_block_store import ElasticBlockStore

from local.control_plane.moto_patching import add

AWS_KEY: Final = "alias/aws/ebs"
"""AWS's own key, the default of an account that has chosen none."""


def install() -> None:
    """Patch moto: answer GetEbsDefaultKmsKeyId."""
    add(ElasticBlockStore, "get_ebs_default_kms_key_id", _get_default_key)


def _get_default_key(response: ElasticBlockStore) -> ActionResult:
    backend = response.ec2_backend
    chosen = backend.default_kms_key_id
    # This also makes AWS's key the default, so restore the choice.
    aws_key = backend._create_default_encryption_key()
    backend.default_kms_key_id = chosen or aws_key
    is_aws_key = backend.default_kms_key_id == aws_key
    return ActionResult({"KmsKeyId": AWS_KEY if is_aws_key else chosen})
