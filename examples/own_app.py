"""Define your own CDK app with a training cluster in it: ``cdk deploy --all --app 'python own_app.py'``."""

import aws_cdk as cdk
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import ClusterProps, ClusterStack

app = cdk.App()
data = cdk.Stack(app, "vision-data")
images = s3.Bucket(data, "Images")

training = ClusterStack(app, "Training", props=ClusterProps(cluster_name="vision", worker_count=1, key_name="me"))
images.grant_read(training.cluster.roles.master)
images.grant_read(training.cluster.roles.worker)

app.synth()
