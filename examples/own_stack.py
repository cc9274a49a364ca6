"""Put the training cluster into a stack of your own: ``cdk deploy --app 'python own_stack.py'``."""

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deeplearning_cdk import ClusterProps, DeepLearningCluster


class Vision(cdk.Stack):
    """A team's images, and the nodes that train on them."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        images = s3.Bucket(self, "Images")
        props = ClusterProps(cluster_name="vision", worker_count=1, key_name="me")
        training = DeepLearningCluster(self, "Training", props=props)
        images.grant_read(training.roles.master)
        images.grant_read(training.roles.worker)


app = cdk.App()
Vision(app, "Vision")
app.synth()
