"""Run ``bootstrap mxnet-environment``, a service that provides the MXNet environment and reports to the agent."""

import errno
import logging
import time
from functools import cache
from pathlib import Path
from typing import Final

from bootstrap.aws.clients import connect
from bootstrap.config import NodeConfig, parse_config
from bootstrap.contract import MASTER, NODE_CONFIG_FILE
from bootstrap.errors import MxnetEnvironmentError
from bootstrap.files.paths import under_root
from bootstrap.mxnet_environment.archive import Archive
from bootstrap.mxnet_environment.archive_hash import HashRecord
from bootstrap.mxnet_environment.build import Builder
from bootstrap.mxnet_environment.install_environment import EnvironmentDependencies, install_environment
from bootstrap.mxnet_environment.progress import EnvironmentProgress, write_progress
from bootstrap.mxnet_environment.recipe import Recipe, recipe_for_this_machine

log = logging.getLogger(__name__)

BUILD_S: Final = 900.0
"""Longest build in seconds: Horovod takes three CPU-minutes, the rest allows for a slow mirror."""


def provide_mxnet_environment(root: Path) -> None:
    """Provide the MXNet environment of the node's configuration, if any."""
    config = parse_config(under_root(root, NODE_CONFIG_FILE).read_text())
    if config.mxnet_environment is None:
        return
    try:
        recipe = recipe_for_this_machine(config.mxnet_environment)
        is_master = config.node_type == MASTER
        install_environment(
            recipe,
            is_master=is_master,
            wait_s=config.bootstrap_timeout_s,
            dependencies=_create_dependencies(config, root),
        )
    except MxnetEnvironmentError as error:
        _fail(root, error.short, str(error))
    except OSError as error:
        _fail(root, errno.errorcode.get(error.errno or 0, "OSError"), str(error))


def _fail(root: Path, short: str, detail: str) -> None:
    log.error("%s: %s", short, detail)
    write_progress(root, EnvironmentProgress(state="failed", failure=short, detail=detail))


def _create_dependencies(config: NodeConfig, root: Path) -> EnvironmentDependencies:
    @cache
    def archive(recipe: Recipe) -> Archive:
        return Archive(connect(config.region).s3, bucket=config.bucket, key=recipe.object_key(config.cluster_name))

    @cache
    def record() -> HashRecord:
        return HashRecord(connect(config.region).dynamodb, table=config.table)

    def build(recipe: Recipe, directory: Path, limit_s: float) -> None:
        Builder(deadline=time.monotonic() + min(BUILD_S, limit_s)).build(recipe, directory)

    return EnvironmentDependencies(root=root, archive=archive, record=record, build=build)
