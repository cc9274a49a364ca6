"""Test the local AWS's default key of volumes."""

from tests.local.control_plane.harness import Aws


def test_default_key_of_volumes_is_that_of_aws_until_another_is_chosen(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"] == "alias/aws/ebs"
    own = aws.client("kms").create_key()["KeyMetadata"]["Arn"]
    ec2.modify_ebs_default_kms_key_id(KmsKeyId=own)
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"] == own
    ec2.modify_ebs_default_kms_key_id(KmsKeyId="alias/aws/ebs")
    assert ec2.get_ebs_default_kms_key_id()["KmsKeyId"] == "alias/aws/ebs"
