"""Lists the findings of cdk-nag that are intended, each with its reason."""

from collections.abc import Mapping

from aws_cdk import Acknowledgment, Stack, Validations

from deploy.aws.site import Site

_OWN = "AWS completes the name with an id, so the full name is not known in advance"
_NO_RESOURCE = "these actions have no resource; a condition limits what they may write"


def reasons(site: Site) -> Mapping[str, str]:
    """Return the reasons, keyed by the name that cdk-nag gives the rule."""
    groups = "arn:<AWS::Partition>:autoscaling:{}:<AWS::AccountId>:autoScalingGroup:*"
    stacks = "arn:<AWS::Partition>:cloudformation:{}:<AWS::AccountId>:stack"
    group = groups.format(site.region) + ":autoScalingGroupName/"
    managed = "arn:<AWS::Partition>:iam::aws:policy/"
    by_rule = {
        "EC23": "the balancer is public by design, on one port, over TLS",
        "ELB2": "the inner balancer is plain TCP, for which AWS writes no log",
        "EC26": "each volume of the launch template is encrypted; the rule does not look there",
        "AS3": "machines come and go by design: only failures are worth a mail",
        "S1": "an access log of the log and release buckets would grow without a reader",
        "SMG4": "a person rotates secrets and restarts the services that use them (docs/aws.md)",
        "IAM5[Resource::*]": _NO_RESOURCE,
        **{
            f"IAM5[Resource::{stacks.format(site.region)}/{site.named(stack)}/*]": _OWN
            for stack in ("fleet", "observe")
        },
        **{
            f"IAM5[Resource::{group}{site.named(each)}]": _OWN
            for each in ("gateway", "workers", "observe")
        },
        **{
            f"IAM4[Policy::{managed}{policy}]": "Image Builder requires it of a builder"
            for policy in ("EC2InstanceProfileForImageBuilder", "AmazonSSMManagedInstanceCore")
        },
    }
    if site.is_express:
        by_rule["MSK6"] = "Express has no broker logs"
    return {f"AwsSolutions::AwsSolutions-{rule}": reason for rule, reason in by_rule.items()}


def acknowledge(site: Site, *stacks: Stack) -> None:
    for stack in stacks:
        for rule, reason in reasons(site).items():
            Validations.of(stack).acknowledge(Acknowledgment(id=rule, reason=reason))
