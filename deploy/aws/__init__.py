"""CDK templates for Hifi on AWS; docs/aws.md leads from an empty account to a first event."""
