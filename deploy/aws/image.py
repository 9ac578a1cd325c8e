"""Makes the pipeline of the machines' image, which is complete, so that no boot fetches more."""

from collections.abc import Mapping

from aws_cdk import Environment, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_imagebuilder as imagebuilder
from aws_cdk import aws_s3 as s3
from constructs import Construct

from deploy.aws.machine.units import DATA, HOME, JARS_CACHE
from deploy.aws.network import SENDING, NetworkStack
from deploy.aws.site import Site

# Packages of Ubuntu, which gets security updates for them: Java 17, Python 3.12, Prometheus.
_PACKAGES = "openjdk-17-jre-headless python3-venv python3-dev make prometheus"
_PARENT = "ssm:/aws/service/canonical/ubuntu/server/24.04/stable/current/{kind}/hvm/ebs-gp3/ami-id"
# Image Builder requires a new version when a recipe changes.
_VERSION = "1.0.0"
_BUILDER = "c7g.large"


def steps(site: Site, bucket: str) -> Mapping[str, object]:
    """Return the steps that change the parent image, in AWS' format (JSON is YAML)."""
    tarball = "/tmp/release.tar.gz"  # noqa: S108 - the machine exists only for this build
    tried = "/tmp/hifi"  # noqa: S108 - as above
    up = f"up --data {tried}"
    as_hifi = f"sudo -u hifi HIFI_CACHE={JARS_CACHE}"
    commands = [
        "set -eu",
        "export DEBIAN_FRONTEND=noninteractive",
        f"apt-get update -qq && apt-get install -qq -y --no-install-recommends {_PACKAGES}",
        # Ubuntu's own Prometheus service is not used.
        "systemctl disable --now prometheus",
        f"useradd --system --home-dir {HOME} hifi",
        f"mkdir -p {HOME} {DATA} {JARS_CACHE}",
        f"tar -xzf {tarball} -C {HOME} --strip-components=1",
        f"chown -R hifi {HOME} {DATA}",
        # Lock files fix the versions and checksums of Python packages and jars.
        f"cd {HOME} && {as_hifi} make setup",
        # Run all of Hifi once: this fetches the jars, writes the class archive at its end, and
        # proves that the image works. `timeout` returns 124 if it had to end the command.
        f"cd {HOME} && {as_hifi} timeout -s INT 300 .venv/bin/hifi {up} || test $? = 124",
        f"{HOME}/.venv/bin/python -m deploy.aws.machine units --folder /etc/systemd/system",
        "systemctl daemon-reload && systemctl enable /etc/systemd/system/hifi-*.service",
        f"rm -rf {tried} {tarball} /var/lib/apt/lists/*",
    ]
    download = {"source": f"s3://{bucket}/{site.release}", "destination": tarball}
    build = [
        {"name": "Release", "action": "S3Download", "inputs": [download]},
        {"name": "Install", "action": "ExecuteBash", "inputs": {"commands": ["\n".join(commands)]}},
    ]
    # A boot needs these files and has no internet, so the image's tests must find a missing one.
    check = f"cd {HOME} && test -s .venv/bin/hifi && ls {JARS_CACHE}/classes/spark-*.jsa"
    test = [{"name": "Whole", "action": "ExecuteBash", "inputs": {"commands": [check]}}]
    return {
        "schemaVersion": "1.0",
        "phases": [{"name": "build", "steps": build}, {"name": "test", "steps": test}],
    }


class ImageStack(Stack):
    def __init__(self, scope: Construct, site: Site, network: NetworkStack) -> None:
        super().__init__(scope, site.named("image"), env=Environment(region=site.region))
        releases = s3.Bucket(
            self,
            "Releases",
            bucket_name=f"{site.named('releases')}-{self.account}-{site.region}",
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            versioned=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            removal_policy=RemovalPolicy.RETAIN,
        )
        name = site.named("image")
        data = self.to_json_string(steps(site, releases.bucket_name))
        component = imagebuilder.CfnComponent(
            self, "Install", name=name, platform="Linux", version=_VERSION, data=data
        )
        kind = "arm64" if "g." in site.sizes.gateway.instance else "amd64"
        parts = imagebuilder.CfnImageRecipe
        recipe = imagebuilder.CfnImageRecipe(
            self,
            "Recipe",
            name=name,
            version=_VERSION,
            parent_image=_PARENT.format(kind=kind),
            components=[parts.ComponentConfigurationProperty(component_arn=component.attr_arn)],
        )
        imagebuilder.CfnImagePipeline(
            self,
            "Pipeline",
            name=name,
            image_recipe_arn=recipe.attr_arn,
            infrastructure_configuration_arn=self._builder(site, network, releases).attr_arn,
            enhanced_image_metadata_enabled=True,
        )

    def _builder(
        self, site: Site, network: NetworkStack, releases: s3.Bucket
    ) -> imagebuilder.CfnInfrastructureConfiguration:
        role = iam.Role(self, "Builder", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
        # Image Builder requires these policies of the builder; AWS maintains them.
        for policy in ("EC2InstanceProfileForImageBuilder", "AmazonSSMManagedInstanceCore"):
            role.add_managed_policy(iam.ManagedPolicy.from_aws_managed_policy_name(policy))
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["s3:GetObject"], resources=[releases.arn_for_objects(site.release)]
            )
        )
        profile = iam.CfnInstanceProfile(self, "Profile", roles=[role.role_name])
        parts = imagebuilder.CfnInfrastructureConfiguration
        return imagebuilder.CfnInfrastructureConfiguration(
            self,
            "Machine",
            name=site.named("image"),
            instance_profile_name=profile.ref,
            instance_types=[_BUILDER],
            subnet_id=network.subnets(SENDING)[0],
            security_group_ids=[network.groups["image"].security_group_id],
            terminate_instance_on_failure=True,
            instance_metadata_options=parts.InstanceMetadataOptionsProperty(
                http_tokens="required", http_put_response_hop_limit=1
            ),
        )
