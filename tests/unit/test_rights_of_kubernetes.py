"""The API of Kubernetes in tests grants what `examples/kubernetes/rights.yaml` says, as a cluster does."""

import pytest

from sandbox.services.kubernetes_api import FORBIDDEN, refusal, rights

DEFAULT = "/api/v1/namespaces/default"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"


@pytest.mark.parametrize(
    ("method", "address", "refused"),
    [
        ("GET", "/version", ""),
        ("GET", f"{DEFAULT}/pods?watch=true&labelSelector=a%3Db", ""),
        ("DELETE", f"{DEFAULT}/pods?labelSelector=a%3Db", ""),
        ("PATCH", f"{DEFAULT}/services/a?fieldManager=b", ""),
        ("PATCH", f"{POLICIES}/a", ""),
        ("GET", f"{DEFAULT}/secrets/a", 'cannot get resource "secrets"'),
        ("GET", POLICIES, 'cannot list resource "networkpolicies" in API group "networking.k8s.io"'),
        ("GET", f"{DEFAULT}/services/a", 'cannot get resource "services"'),
        ("POST", f"/api/v1/namespaces/{FORBIDDEN}/pods", 'cannot create resource "pods"'),
    ],
)
def test_a_request_is_refused_unless_the_role_has_its_verb(method: str, address: str, refused: str) -> None:
    answer = refusal(method, address, rights())
    assert refused in answer
    assert bool(answer) == bool(refused)
