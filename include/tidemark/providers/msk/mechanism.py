"""``sasl.mechanism: AWS_MSK_IAM``: both clients sign with keys of AWS IAM, which they find by AWS's own rules.

librdkafka logs in with OAUTHBEARER: AWS's signer makes its token, a signed URL that is valid for 15 minutes. Java's
client logs in with AWS_MSK_IAM, from AWS's jar.
"""

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from tidemark.connections.lookup import Unusable
from tidemark.kafka.mechanisms import SaslMechanism

NAME: Final = "AWS_MSK_IAM"
# Names of MSK's brokers, of provisioned clusters and of serverless ones; those in China end in .com.cn.
_BROKER: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?(?=:|$)", re.IGNORECASE)
_JAVA: Final = "software.amazon.msk.auth.iam"
REGION_VARIABLES: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
RIGHTS: Final = ("Connect", "DescribeCluster", "DescribeTopic", "DescribeTopicDynamicConfiguration", "ReadData")


class MskIam(SaslMechanism):
    jars = ("aws-msk-iam-auth",)

    def is_meant(self, options: Mapping[str, str], servers: str) -> bool:
        """Return true for the form of Airflow's Kafka provider: OAUTHBEARER, brokers of MSK, no endpoint of tokens."""
        return (
            options.get("sasl.mechanism", "").upper() == "OAUTHBEARER"
            and bool(_regions_in(servers))
            and not any(name.startswith("sasl.oauthbearer.") for name in options)
        )

    def check(self, options: Mapping[str, str], servers: str) -> None:
        if options["security.protocol"] != "SASL_SSL":
            raise Unusable(f"{NAME} needs TLS", "write security.protocol: SASL_SSL, and the port for IAM, mostly 9098")
        regions = _regions_in(servers)
        if len(regions) > 1:
            raise Unusable(f"its brokers are in {' and '.join(regions)}", "name the brokers of one cluster")
        if not region_of(servers):
            raise Unusable(
                "the names of its brokers have no region of AWS, and AWS_REGION is not set",
                "set AWS_REGION to the cluster's region, here and on Spark's machines",
            )

    def client_options(self, servers: str) -> dict[str, Any]:
        from tidemark.providers.msk.tokens import Tokens  # boto3 takes 0.3 s to import

        tokens = Tokens(region_of(servers))
        tokens.check()
        return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": tokens.token}

    def java_options(self) -> dict[str, str]:
        return {
            "sasl.mechanism": NAME,
            "sasl.jaas.config": f"{_JAVA}.IAMLoginModule required;",
            "sasl.client.callback.handler.class": f"{_JAVA}.IAMClientCallbackHandler",
        }

    def after_refusal(self, servers: str) -> str:
        return (
            "give the identity that `aws sts get-caller-identity` shows these rights on cluster and topics: "
            f"kafka-cluster:{', '.join(RIGHTS)}; its login was for the region "
            f"{region_of(servers)}, which must be the cluster's"
        )


def region_of(servers: str) -> str:
    """Return the region of the brokers: that in their names, else that of AWS's variables or profile; empty if none.

    Java's client has the same rule, but reads AWS_REGION or a profile only.
    """
    if regions := _regions_in(servers):
        return regions[0]
    named = next(filter(None, map(os.environ.get, REGION_VARIABLES)), None)
    if named:
        return named
    from botocore.session import Session

    return str(Session().get_config_variable("region") or "")


def _regions_in(servers: str) -> list[str]:
    names = (server.strip().lower() for server in servers.split(","))
    return sorted({match[1] for name in names if (match := _BROKER.search(name))})


def open_mechanism() -> MskIam:
    return MskIam()
