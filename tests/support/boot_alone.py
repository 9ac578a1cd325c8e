"""Boots a machine where its own address is all the network there is; for `unshare --net`."""

import subprocess
import sys

from deploy.aws.machine.instance import ADDRESS
from tests.support.fake_aws import fake_aws, machine_config

host = ADDRESS.removeprefix("http://")
with fake_aws(host, 80) as aws:
    aws.config = machine_config(
        aws, gateway={"secrets": ["user"], "env": {}, "ready": "", "live": ""}
    )
    aws.secrets = {"user": {"username": "gateway", "password": "p"}}
    command = [sys.executable, "-m", "deploy.aws.machine", "boot", "--folder", sys.argv[1]]
    sys.exit(subprocess.run(command, check=False).returncode)
