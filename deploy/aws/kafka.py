"""Makes the data stores of a site: the Kafka of MSK, its users, the keys and the secrets."""

from collections.abc import Iterable, Mapping

from aws_cdk import Environment, RemovalPolicy, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_msk as msk
from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from deploy.aws.network import INSIDE, NetworkStack
from deploy.aws.site import Site
from deploy.aws.topics import COPIES, SYNCED_MIN
from shared.event.rights import RIGHTS

# The secrets that services get besides their access to Kafka. `python -m deploy.aws secret NAME`
# makes them: a template must not hold a value.
SECRETS: Mapping[str, str] = {
    "seal": "the keys that seal destinations' secrets",
    "control": "the key that administers the gateway",
    "statements": "the key that signs statements, and the secret of the console's cookies",
}
_PASSWORD_LENGTH = 40


class KafkaStack(Stack):
    def __init__(self, scope: Construct, site: Site, network: NetworkStack) -> None:
        super().__init__(scope, site.named("kafka"), env=Environment(region=site.region))
        self.key = kms.Key(
            self,
            "Key",
            enable_key_rotation=True,
            removal_policy=RemovalPolicy.RETAIN,
            description=f"{site.named('kafka')}: records at rest, and secrets",
        )
        self.cluster = self._cluster(site, network)
        self.users = {user: self._user(site, user) for user in RIGHTS}
        msk.CfnBatchScramSecret(
            self,
            "Users",
            cluster_arn=self.cluster.attr_arn,
            secret_arn_list=[secret.ref for secret in self.users.values()],
        )
        self.secrets = {
            name: self._secret(f"hifi/{site.name}/{name}", name.title(), meaning)
            for name, meaning in SECRETS.items()
        }

    def _cluster(self, site: Site, network: NetworkStack) -> msk.CfnCluster:
        sizes = site.sizes.kafka
        # Express lets us set only a few properties; the others always have the right values.
        properties = ["auto.create.topics.enable=false"]
        if not site.is_express:
            properties += [
                f"default.replication.factor={COPIES}",
                f"min.insync.replicas={SYNCED_MIN}",
                "unclean.leader.election.enable=false",
            ]
        configuration = msk.CfnConfiguration(
            self,
            "Configuration",
            name=site.named(f"kafka-{sizes.kind}"),
            server_properties="\n".join(properties),
        )
        parts = msk.CfnCluster
        disks = parts.StorageInfoProperty(
            ebs_storage_info=parts.EBSStorageInfoProperty(volume_size=sizes.disk_gb)
        )
        cluster = msk.CfnCluster(
            self,
            "Cluster",
            cluster_name=site.named("kafka"),
            kafka_version=site.kafka_release,
            number_of_broker_nodes=sizes.broker_count,
            enhanced_monitoring="PER_BROKER",
            broker_node_group_info=parts.BrokerNodeGroupInfoProperty(
                instance_type=sizes.broker,
                client_subnets=network.subnets(INSIDE),
                security_groups=[network.groups["kafka"].security_group_id],
                storage_info=None if site.is_express else disks,
            ),
            configuration_info=parts.ConfigurationInfoProperty(
                arn=configuration.attr_arn, revision=1
            ),
            logging_info=None if site.is_express else self._broker_log(),
            client_authentication=parts.ClientAuthenticationProperty(
                sasl=parts.SaslProperty(scram=parts.ScramProperty(enabled=True)),
                unauthenticated=parts.UnauthenticatedProperty(enabled=False),
            ),
            encryption_info=parts.EncryptionInfoProperty(
                encryption_at_rest=parts.EncryptionAtRestProperty(
                    data_volume_kms_key_id=self.key.key_arn
                ),
                encryption_in_transit=parts.EncryptionInTransitProperty(
                    client_broker="TLS", in_cluster=True
                ),
            ),
        )
        cluster.apply_removal_policy(RemovalPolicy.RETAIN)
        return cluster

    def _broker_log(self) -> msk.CfnCluster.LoggingInfoProperty:
        """Return where standard brokers write their logs; Express brokers have none."""
        log = logs.LogGroup(
            self,
            "Log",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=RemovalPolicy.RETAIN,
        )
        parts = msk.CfnCluster
        return parts.LoggingInfoProperty(
            broker_logs=parts.BrokerLogsProperty(
                cloud_watch_logs=parts.CloudWatchLogsProperty(
                    enabled=True, log_group=log.log_group_name
                )
            )
        )

    def _user(self, site: Site, user: str) -> secretsmanager.CfnSecret:
        # MSK accepts only secrets with this prefix in their names.
        made = secretsmanager.CfnSecret.GenerateSecretStringProperty(
            secret_string_template=f'{{"username": "{user}"}}',
            generate_string_key="password",
            exclude_punctuation=True,
            password_length=_PASSWORD_LENGTH,
        )
        name = f"AmazonMSK_hifi_{site.name}_{user}"
        return self._secret(name, f"User {user}", f"the Kafka user {user}", made)

    def _secret(
        self,
        name: str,
        construct: str,
        meaning: str,
        made: secretsmanager.CfnSecret.GenerateSecretStringProperty | None = None,
    ) -> secretsmanager.CfnSecret:
        secret = secretsmanager.CfnSecret(
            self,
            construct,
            name=name,
            description=meaning,
            kms_key_id=self.key.key_arn,
            generate_secret_string=made,
        )
        secret.apply_removal_policy(RemovalPolicy.RETAIN)
        return secret

    def rights(self, users: Iterable[str], secrets: Iterable[str]) -> list[iam.PolicyStatement]:
        """Return the rights to use Kafka as these users and to read these secrets."""
        read = [*(self.users[user] for user in users), *(self.secrets[name] for name in secrets)]
        return [
            iam.PolicyStatement(
                actions=["secretsmanager:GetSecretValue"], resources=[each.ref for each in read]
            ),
            iam.PolicyStatement(actions=["kms:Decrypt"], resources=[self.key.key_arn]),
            iam.PolicyStatement(
                actions=["kafka:GetBootstrapBrokers"], resources=[self.cluster.attr_arn]
            ),
        ]
