"""Asserted headers: what a web server in front of others says about a client and its request.
Pure.

Programs believe these headers: frameworks take the client's address from them, dashboards the name
of a user who has signed in, routers another path. Whoever sends them to a program is therefore
trusted with all of that.
"""

from __future__ import annotations

import re

_ADDRESSES = """
    cf-connecting-ip cf-connecting-ipv6 cf-ipcountry cf-pseudo-ipv4 client-ip do-connecting-ip
    fastly-client-ip fly-client-ip forwarded forwarded-for forwarded-for-ip real-ip remote-addr
    remote-host true-client-ip x-appengine-remote-addr x-appengine-user-ip x-azure-clientip
    x-azure-socketip x-client-ip x-cluster-client-ip x-connecting-ip x-envoy-external-address
    x-nf-client-connection-ip x-proxyuser-ip x-true-client-ip x-vercel-forwarded-for
"""
# The host, scheme, port and path that the client asked for.
_URLS = """
    front-end-https x-envoy-original-host x-envoy-original-path x-host x-http-host-override
    x-ingress-path x-replaced-path x-rewrite-url x-scheme x-script-name x-scriptname x-url-scheme
"""
# The user who has signed in, or the certificate of the client.
_USERS = """
    auth-user cf-access-authenticated-user-email cf-access-jwt-assertion remote-email
    remote-groups remote-name remote-user x-client-dn x-client-verify x-goog-iap-jwt-assertion
    x-jwt-assertion x-proxy-user x-userinfo
"""
_FAMILIES = """
    client-cert ssl-client- tailscale-user- x-amzn-oidc- x-arr- x-auth-request- x-auth-user
    x-authenticated- x-authentik- x-client-cert x-forward x-goog-authenticated-user-
    x-ms-client-principal x-original- x-pomerium- x-real- x-remote- x-ssl- x-vouch- x-webauth-
"""
_NAMES = frozenset(f"{_ADDRESSES} {_URLS} {_USERS}".split())
_PREFIXES = tuple(_FAMILIES.split())
# Gateways to CGI and its successors read all of these as the same character.
_SEPARATOR = re.compile(r"[^a-z0-9]")


def is_asserted(name: str) -> bool:
    """Whether only a web server in front that is trusted may send this header to a program."""
    plain = _SEPARATOR.sub("-", name.lower())
    return plain in _NAMES or plain.startswith(_PREFIXES)
