"""Assembles the stacks of a site, with the checks that each synthesis must pass."""

from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from deploy.aws.findings import acknowledge
from deploy.aws.fleet import FleetStack, ObserveStack
from deploy.aws.image import ImageStack
from deploy.aws.kafka import KafkaStack
from deploy.aws.machine_groups import Ground
from deploy.aws.network import NetworkStack
from deploy.aws.site import Site
from deploy.aws.watch import WatchStack


def app_of(site: Site, folder: str) -> App:
    """Return the app; its `synth` writes the templates to `folder`, or fails if a check fails."""
    # The CDK's own rules for templates become errors; by default it only warns.
    strict = {"@aws-cdk/core:validateAgainstDefaultRules": True}
    app = App(outdir=folder, analytics_reporting=False, context=strict)
    network = NetworkStack(app, site)
    kafka = KafkaStack(app, site, network)
    watch = WatchStack(app, site)
    ground = Ground(network, kafka, watch)
    observe = ObserveStack(app, site, ground)
    fleet = FleetStack(app, site, ground, observe.address)
    image = ImageStack(app, site, network)
    acknowledge(site, network, kafka, watch, observe, fleet, image)
    Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    return app
