"""Hifi on AWS as templates of the CDK; docs/aws.md takes it from an account to a first event."""
