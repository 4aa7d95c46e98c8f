"""New work of an endpoint: whether a change to its specification lets it use more than before.
Pure."""

from __future__ import annotations

from moorage.common.model.spec import EndpointSpec


def is_new_work(before: EndpointSpec, replicas: int, after: EndpointSpec) -> bool:
    """Whether ``after`` may run more replicas than ``before``, or different ones. ``replicas``: the
    number desired now.

    An exhausted budget refuses only such changes; it does not prevent anyone from using less."""
    if most_replicas(after, after.replicas) > most_replicas(before, replicas):
        return True
    if after.replicas > replicas:
        return True
    return most_replicas(after, after.replicas) > 0 and after.template() != before.template()


def most_replicas(spec: EndpointSpec, replicas: int) -> int:
    """Maximum number of replicas that may run without another change. ``replicas``: the number
    desired now."""
    return replicas if spec.autoscale is None else spec.autoscale.max
